from __future__ import annotations

from typing import Any

import pytest

from benches import learner
from benches.grpo import our_side, workload


def side(**changed: Any) -> dict[str, Any]:
    row = {"tokens_per_s": 100.0, "peak_bytes": 10, "loss": 0.5, "grad_norm": 2.0, "versions": {}}
    return row | changed


def result(ours: dict[str, Any], trl: dict[str, Any]) -> dict[str, Any]:
    return {"alone": None, "sides": {"ours": ours, "trl": trl}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokens_per_s": 140.0}, "1.40 x TRL's"),
        ({"tokens_per_s": 150.0, "loss": 0.5002}, "the losses differ"),
        ({"tokens_per_s": 150.0, "grad_norm": 2.1}, "the gradients' norms differ"),
        ({"tokens_per_s": 150.0, "peak_bytes": 11}, "peak memory 11"),
        ({"tokens_per_s": 150.0, "versions": {"torch": "1"}}, "torch or transformers differ"),
    ],
)
def test_what_does_not_hold_is_said(changed: dict[str, Any], said: str) -> None:
    (line,) = learner.failures(result(side(**changed), side()))
    assert said in line


def test_nothing_is_said_of_what_holds_or_did_not_run() -> None:
    assert learner.failures(result(side(tokens_per_s=150.0), side())) == []
    assert learner.failures({"alone": "--quick"}) == []


def test_the_work_of_a_step_is_fixed() -> None:
    assert workload.trained_tokens(workload.FULL) == 12_693
    groups = workload.groups(workload.FULL)
    assert [len(g) for g in groups] == [8] * 8
    assert all(len({r.reward for r in g}) == 2 for g in groups)
    assert groups == workload.groups(workload.FULL)


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("aten::addmm", "products"),
        ("aten::add_", "elementwise"),
        ("aten::_foreach_add_", "optimiser"),
        ("aten::_log_softmax_backward_data", "softmax"),
        ("aten::_to_copy", "copies"),
        ("aten::embedding_dense_backward", "look-ups"),
        ("aten::to", "views"),
        ("aten::transpose", "views"),
        ("MmBackward0", "autograd"),
    ],
)
def test_each_operation_of_a_profile_has_one_kind(operation: str, kind: str) -> None:
    assert our_side.kind_of(operation) == kind
