"""Two ranks with a part of the step each have the gradient of one with all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from spade_async.learner.metrics import TokenFigures
from tests.support.rank_worker import gradient, make, part, step_samples
from tests.support.tiny_model import make_tiny_llama


def test_two_gloo_ranks_equal_one(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path / "model")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.rank_worker", str(rank), "2",
             str(tmp_path / "meeting"), str(folder), str(tmp_path / f"{rank}.pt")],
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    for process in ranks:
        _, said = process.communicate(timeout=240)
        assert process.returncode == 0, said.decode()
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert torch.equal(found[0]["gradient"], found[1]["gradient"])
    assert found[0]["loss"] == found[1]["loss"]

    state, updater = make(folder)
    samples = step_samples()
    loss = updater.accumulate(samples, TokenFigures(2.0))
    expected = gradient(state)
    assert found[0]["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    torch.testing.assert_close(found[0]["gradient"], expected, rtol=0, atol=1e-6)

    # Each by itself and then the mean: what must not be done is far away.
    apart = []
    for rank in range(2):
        updater.accumulate(part(samples, rank), TokenFigures(2.0))
        apart.append(gradient(state))
    assert (sum(apart) / 2 - expected).abs().max() > 1e-3
