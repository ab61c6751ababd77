"""Every recipe starts its real processes: `train --fake-weights`, two steps each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.whole_run import spade

CONFIGS = Path(__file__).parents[2] / "configs"
pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("name", ["qwen3_4b_games", "qwen3_8b_games", "qwen3_30b_a3b_games"])
def test_a_dry_run_of_a_recipe_makes_two_steps_and_says_what_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = tmp_path / "run"
    ended = spade(
        "train", CONFIGS / f"{name}.toml", "--fake-weights", "--run-dir", run, timeout_s=360
    )
    assert ended.code == 0, ended.err
    assert "fake weights: a tiny random model" in ended.out
    report = json.loads(spade("report", run, "--json").out)
    assert (report["fake_weights"], report["steps"]) == (True, 2)
    assert report["samples_trained"] > 0
    for key in ("samples_lost", "samples_trained_twice", "samples_over_bound", "restarts"):
        assert report[key] == 0
