from __future__ import annotations

import math

import numpy as np
import pytest

from spade_async.grpo.correction.report import TokenColumns, all_masked, report


def columns(**values: list[float]) -> TokenColumns:
    size = len(values["raw"])
    base = {
        "log_ratio": [0.0] * size,
        "used": values["raw"],
        "gradient": [1.0] * size,
        "advantages": [1.0] * size,
        "ages": [0] * size,
    } | values
    arrays = {k: np.array(v, dtype=np.int64 if k == "ages" else float) for k, v in base.items()}
    return TokenColumns(**arrays)


def test_figures_are_those_worked_out_by_hand() -> None:
    found = report(
        columns(
            raw=[1.0, 4.0, 0.5, 0.5],
            used=[1.0, 2.0, 0.5, 0.0],
            gradient=[-1.0, -2.0, 1.0, 0.0],
            advantages=[1.0, 1.0, -2.0, -2.0],
            ages=[0, 1, 3, 40],
            log_ratio=[0.0, math.log(4.0), math.log(0.5), math.log(0.5)],
        )
    )
    assert found["learner/clip_share"] == 0.5
    assert found["learner/weight_mean_raw"] == 1.5
    assert found["learner/weight_mean"] == pytest.approx(3.5 / 4)
    assert found["learner/truncated_mass"] == pytest.approx(2.5 / 6)
    assert found["learner/ess"] == pytest.approx(3.5**2 / (4 * 5.25))
    assert found["learner/masked_share_positive"] == 0.0
    assert found["learner/masked_share_negative"] == 0.5
    assert found["learner/stale_gradient_share"] == pytest.approx(3 / 4)
    assert found["learner/kl_age/0"] == 0.0
    assert found["learner/kl_age/1"] == pytest.approx(3 - math.log(4))
    assert found["learner/kl_age/3-4"] == pytest.approx(-0.5 + math.log(2))
    assert "learner/kl_age/2" not in found
    assert "learner/kl_age/17+" in found


def test_what_does_not_exist_is_absent() -> None:
    assert report(columns(raw=[])) == {}
    found = report(columns(raw=[2.0], used=[0.0], gradient=[0.0], log_ratio=[math.nan]))
    assert found.keys().isdisjoint(
        {"learner/ess", "learner/stale_gradient_share", "learner/masked_share_negative"}
    )
    assert not any("kl_age" in tag for tag in found)


def test_all_masked_needs_an_advantage_that_was_masked() -> None:
    assert all_masked(columns(raw=[1.0, 1.0], gradient=[0.0, 0.0]))
    assert not all_masked(columns(raw=[1.0, 1.0], gradient=[0.0, 1e-9]))
    assert not all_masked(columns(raw=[1.0], gradient=[0.0], advantages=[0.0]))
