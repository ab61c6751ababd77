"""The worlds of the age table, its arithmetic, and that the configuration follows the table."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from benches import correction, correction_nano
from benches.offpolicy.delayed import Setting, learn
from benches.offpolicy.drawing import svg
from spade_async.config.correction import LEAST_KL, RULES, CorrectionConfig
from spade_async.grpo.correction import make_rule

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "results" / "bench_correction.json"


def outcome(name: str, ages: list[int], steps: int = 12, **values: float):
    setting = Setting(3, 3, steps, groups=4, group_size=4, lr=4.0, noise=0.1, pull=0.2)
    config = CorrectionConfig.model_validate({"rule": name, **values})
    seeds = torch.zeros(len(ages), dtype=torch.int64)
    return learn(make_rule(config), RULES[name].min_passes, setting, torch.tensor(ages), seeds)


def test_fresh_samples_have_no_divergence_full_sample_size_and_one_score_for_all_rules() -> None:
    reference = outcome("none", [0], steps=5)
    assert float(reference.score) > 0.1
    for name in RULES.keys() - {"gepo", "decoupled_ppo"}:
        found = outcome(name, [0], steps=5)
        assert float(found.kl) == pytest.approx(0.0, abs=1e-12)
        assert float(found.ess) == pytest.approx(1.0)
        torch.testing.assert_close(found.score, reference.score)


def test_a_replica_does_not_depend_on_its_neighbours() -> None:
    together = outcome("tis_token", [0, 3, 8])
    for index, age in enumerate((0, 3, 8)):
        alone = outcome("tis_token", [age])
        torch.testing.assert_close(alone.score[0], together.score[index])
        torch.testing.assert_close(alone.kl[0], together.kl[index])


def test_divergence_grows_with_age_and_no_score_is_above_the_attainable() -> None:
    found = outcome("none", [0, 2, 8])
    assert found.kl.tolist() == sorted(found.kl.tolist())
    assert float(found.kl[2]) > 1e-3
    assert float(found.score.max()) <= 1.0


def test_a_rule_holds_up_to_the_age_before_its_first_miss() -> None:
    row = {"score": [1.0, 0.95, 0.91, 0.8, 0.99, 0.5, 0.4], "kl": [0, 0.1, 0.3, 1, 2, 3, 4]}
    assert correction._limits(row, 1.0) == {"holds_to": 2, "broke": True, "held_kl": 0.3}
    assert correction._limits({"score": [0.5] * 7, "kl": [0.0] * 7}, 1.0)["holds_to"] is None
    worlds = {
        "a": {"rules": {"x": {"held_kl": 0.5, "broke": False}}},
        "b": {"rules": {"x": {"held_kl": 0.2, "broke": True}}},
    }
    assert correction._supported("x", worlds) == 0.2
    worlds["b"]["rules"]["x"]["broke"] = False
    assert correction._supported("x", worlds) == 0.5


def test_the_configuration_says_what_the_stored_table_supports() -> None:
    stored = json.loads(STORED.read_text())["result"]["supported_kl"]
    assert stored.keys() == RULES.keys()
    for name, kl in stored.items():
        expected = LEAST_KL if kl is None else max(LEAST_KL, math.floor(kl * 100) / 100)
        assert RULES[name].supported_kl == pytest.approx(expected), name


def test_the_page_shows_the_stored_table() -> None:
    page = (ROOT / "docs" / "correction.md").read_text()
    result = json.loads(STORED.read_text())["result"]
    for line in correction.table(result).splitlines():
        assert line.rstrip() in page


def test_the_picture_is_well_formed() -> None:
    result = json.loads(STORED.read_text())["result"]
    picture = ElementTree.fromstring(svg(result))
    cells = [e for e in picture.iter() if e.tag.endswith("rect")]
    assert len(cells) == 2 * len(RULES) * len(correction.AGES)


def nano_run(rule: str, age: int, seed: int, **figures: object) -> dict[str, object]:
    names = ("held_out_change", "regret", "validity", "agent_age", "kl_generator", "ess", "cpu_s")
    found: dict[str, object] = dict.fromkeys((*names, "kl_generator_max", "truncated_mass"), 0.5)
    found |= {"rule": rule, "age": age, "seed": seed, "steps": 40, "alarms": []}
    return found | {"samples_over_bound": 0, "agent_age": float(age)} | figures


def test_the_nano_table_is_over_seeds_and_names_what_was_not_run() -> None:
    runs = [nano_run("none", 4, s, held_out_change=c) for s, c in ((1, 0.1), (2, 0.2))]
    runs[1]["alarms"] = ["divergence"]
    result = {"steps": 40, "rules": ["none"], "ages": [4, 16], "runs": runs}
    four, sixteen = correction_nano.table(result).splitlines()[1:3]
    assert "0.150 ± 0.071" in four
    assert four.endswith("divergence 1")
    assert sixteen.endswith("not measured")


def test_a_nano_run_that_was_not_as_old_as_it_says_is_a_failure() -> None:
    good = nano_run("none", 16, 1)
    young = nano_run("none", 16, 2, agent_age=3.0)
    over = nano_run("none", 0, 3, samples_over_bound=2)
    unscored = nano_run("none", 0, 4, held_out_change=None)
    found = correction_nano.failures({"runs": [good, young, over, unscored]})
    assert [line.partition(": ")[0] for line in found] == [
        "none, age 16, seed 2", "none, age 0, seed 3", "none, age 0, seed 4",
    ]  # fmt: skip
