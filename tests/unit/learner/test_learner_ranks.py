"""Slices of the weights on several ranks give the steps of one process, and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from spade_async.disk.manifest import damage
from spade_async.learner.ranks import Ranks
from tests.support.rank_worker import run_ranks, run_steps, step_gradient
from tests.support.tiny_model import make_tiny_llama

LEARNER: dict[str, Any] = {
    "lr": 1e-3,
    "weight_decay": 0.1,
    "kl_to_start": 0.1,
    "designer_weight": 0.5,
    # Seven micro-batches: the ranks have unequal shares.
    "micro_batch_tokens": 40,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["weights"].keys() == expected["weights"].keys()
    for name, tensor in expected["weights"].items():
        torch.testing.assert_close(found["weights"][name], tensor, rtol=0, atol=1e-5)
    for step in found["metrics"]:
        assert_same_step(found, expected, step)


def assert_same_step(found: dict[str, Any], expected: dict[str, Any], step: int) -> None:
    metrics = expected["metrics"][step]
    assert found["metrics"][step].keys() == metrics.keys()
    for name, value in metrics.items():
        if not name.endswith(("_s", "_per_s")):
            assert found["metrics"][step][name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    torch.testing.assert_close(found["learned"][step], expected["learned"][step], rtol=0, atol=1e-4)


# As for any other split of a step: in float32 the sums are grouped in another way, in float64
# nothing is left of that, so there is no other cause.
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("double", "bound"), [(False, 1e-6), (True, 1e-13)])
def test_the_gradient_of_a_step_on_two_ranks_is_that_of_one(
    folder: Path, tmp_path: Path, double: bool, bound: float
) -> None:
    plan = {"learner": LEARNER | {"entropy_weight": 0.01}, "gradient_of": 3, "double": double}
    expected = step_gradient(folder, plan)
    assert float(expected["gradient"].abs().max()) > 0.01
    found = run_ranks(
        2, folder, tmp_path / "found", **plan | {"learner": plan["learner"] | {"ranks": 2}}
    )
    assert found["loss"] == pytest.approx(expected["loss"], rel=0, abs=bound)
    torch.testing.assert_close(found["gradient"], expected["gradient"], rtol=0, atol=bound)


@pytest.mark.timeout(600)
def test_a_run_of_one_then_two_then_one_rank_equals_one_all_along(
    folder: Path, tmp_path: Path
) -> None:
    expected = run_steps(folder, {"learner": LEARNER, "steps": [1, 5]})
    root = str(tmp_path / "checkpoints")
    run_steps(folder, {"learner": LEARNER, "steps": [1, 2], "root": root})
    found = run_ranks(
        2, folder, tmp_path / "found", steps=[2, 4], root=root, resume="branch-0-step-1",
        learner=LEARNER | {"ranks": 2, "activation_checkpointing": True},
    )  # fmt: skip
    checkpoint = tmp_path / "checkpoints" / "branch-0-step-3"
    assert damage(checkpoint) is None
    files = {p.name for p in checkpoint.iterdir()}
    assert {f"learner_state-0000{n}-of-00002.tensors" for n in range(2)} <= files
    AutoModelForCausalLM.from_pretrained(checkpoint)
    # Two ranks' slices in one process.
    last = run_steps(
        folder, {"learner": LEARNER, "steps": [4, 5], "root": root, "resume": checkpoint.name}
    )
    assert_same(last, expected)
    assert found["metrics"].keys() == {2, 3}
    for step in (2, 3):
        assert_same_step(found, expected, step)


def test_every_rank_has_as_many_micro_batches_and_each_counts_once() -> None:
    for count in range(6):
        plan = [[index] for index in range(count)]
        for world in (1, 2, 3, 4):
            shares = [Ranks(rank, world).share(plan) for rank in range(world)]
            assert len({len(share) for share in shares}) == 1
            counted = [part for share in shares for part, counts in share if counts]
            assert sorted(counted) == plan
