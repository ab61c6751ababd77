"""The warm start learns: a short one already writes programs and answers better than chance."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from spade_async.nano.cache import WarmStartSize
from spade_async.nano.muon import orthogonal
from spade_async.nano.probe import answer_accuracy, design_figures
from spade_async.nano.warm_start import rate, warm_start

_LOSSES = re.compile(r"loss designer ([\d.]+) agent ([\d.]+)")


def run(folder: Path, size: WarmStartSize) -> list[tuple[float, float]]:
    """Warm-start into `folder`; (designer, agent) losses as they were reported."""
    folder.mkdir()
    losses: list[tuple[float, float]] = []

    def progress(fraction: float, text: str) -> None:
        if found := _LOSSES.search(text):
            losses.append((float(found[1]), float(found[2])))

    warm_start(folder, 1, size, progress)
    return losses


@pytest.mark.timeout(240)
def test_a_short_warm_start_lowers_both_losses(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    losses = run(folder, WarmStartSize(steps=41, programs=8, answers=24))
    designer, agent = zip(*losses, strict=True)
    # 277 tokens: the first loss is near log(277) = 5.6; grammar is mostly fixed text, so the
    # designer's falls fast; answers start with learning which characters answer at all.
    assert designer[0] > 4.0
    assert designer[-1] < 1.2
    assert agent[0] > 4.0
    assert agent[-1] < 2.4
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    designs = design_figures(model, tokenizer, num_samples=16, temperature=0.3)
    assert designs.num_valid > 0
    shares = answer_accuracy(model, tokenizer, per_level=24, hinted=True, temperature=0.0)
    assert len(shares) == 4 * 13
    assert all(0.0 <= share <= 1.0 for share in shares.values())


@pytest.mark.timeout(120)
def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    size = WarmStartSize(steps=2, programs=2, answers=4)
    digests = []
    for name in ("a", "b"):
        run(tmp_path / name, size)
        digests.append((tmp_path / name / "model.safetensors").read_bytes())
    assert digests[0] == digests[1]


def test_the_rate_rises_then_falls_to_near_zero() -> None:
    rates = [rate(step, 500) for step in range(500)]
    assert rates[0] < 0.05
    assert max(rates) == 1.0
    assert 0.0 < rates[-1] < 0.01
    peak = rates.index(1.0)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)


def test_an_orthogonal_update_has_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 32, 32), (2, 96, 32), (2, 32, 96)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
        # Five iterations of these coefficients send singular values into about [0.3, 1.3].
        assert float(values.max()) < 1.3
        assert float(values.median()) > 0.6
