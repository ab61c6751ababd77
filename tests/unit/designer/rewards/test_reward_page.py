"""Every block of docs/rewards.md against the code, on random designs."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, get_args

import pytest

from spade_async.config.reward import RewardConfig
from spade_async.designer.reward import PayRule, design_reward
from spade_async.designer.rewards.facts import Facts, Raw
from spade_async.designer.rewards.micro_lp import micro_lp
from spade_async.designer.rewards.registry import REFERENCE, VARIANTS, make
from spade_async.designer.rewards.scale import reference_scale
from spade_async.designer.rewards.variance import variance_bonus
from spade_async.grpo.baseline import RULES, Valued, advantages

PAGE = (Path(__file__).parents[4] / "docs" / "rewards.md").read_text()
SECTIONS = dict(
    re.findall(r"^#{2,3} `?([\w ]+?)`?\n(.*?)(?=^#{2,3} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
)


class Level:
    def level(self, skill: str) -> float:
        return 0.4


def run(section: str, names: dict[str, Any]) -> dict[str, Any]:
    """The python blocks of a section, executed with these names."""
    for block in re.findall(r"```python\n(.*?)```", SECTIONS[section], re.DOTALL):
        exec(block, names)
    return names


def design(seed: int) -> tuple[Facts, dict[str, Any]]:
    """A random design and the page's symbols for it."""
    draw = random.Random(seed)
    plays = {
        offset: [draw.choice([0.0, 1.0, draw.random()]) for _ in range(draw.randint(2, 8))]
        for offset in sorted(draw.sample(range(5), draw.randint(2, 4)))
    }
    facts = Facts(skill="s", plays=plays, regret=draw.uniform(-1.0, 1.0), hint_mean=0.5)
    returns = [r for returns in plays.values() for r in returns]
    points = [(o, fmean(returns), len(returns)) for o, returns in plays.items()]
    names = {
        "returns": returns, "w": fmean(returns), "points": points, "regret": facts.regret,
        "level": 0.4, "low": 0.4, "high": 0.6, "ramp": 0.25, "exp": math.exp,
    }  # fmt: skip
    return facts, names


def value(config: RewardConfig, facts: Facts) -> float:
    found = make(config).raw(facts, Level()).value
    assert found is not None
    return found


def test_the_page_has_every_variant_and_baseline_and_no_other():
    choices = get_args(RewardConfig.model_fields["variant"].annotation)
    assert set(choices) == set(VARIANTS) == set(REFERENCE)
    assert set(choices) <= set(SECTIONS)
    assert all(f"\n{rule} = " in SECTIONS["Baselines"] for rule in RULES)


@pytest.mark.parametrize("variant", ["regret", "solve_rate", "micro_lp", "learning_potential"])
@pytest.mark.parametrize("seed", range(20))
def test_each_variant_is_what_the_page_says(variant: str, seed: int) -> None:
    facts, names = design(seed)
    config = RewardConfig(variant=variant)
    assert value(config, facts) == pytest.approx(run(variant, names)["value"], abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_two_buckets_and_the_bonus_are_what_the_page_says(seed: int) -> None:
    facts, names = design(seed)
    found = value(RewardConfig(variant="micro_lp", micro_lp="two_bucket"), facts)
    assert found == pytest.approx(run("micro_lp", dict(names))["two_bucket"], abs=1e-12)
    bonus = run("Variance bonus", dict(names))["bonus"]
    assert variance_bonus(facts.returns) == pytest.approx(bonus, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_blend_is_what_the_page_says(seed: int) -> None:
    facts, names = design(seed)
    draw = random.Random(seed)
    weights = {name: draw.random() for name in "abcd"}
    config = RewardConfig(
        variant="blend",
        weight_regret=weights["a"],
        weight_micro_lp=weights["b"],
        weight_plateau=weights["c"],
        weight_frontier=weights["d"],
    )
    names |= weights | {"micro_lp": micro_lp(facts, "slope")}
    names["plateau"] = run("solve_rate", dict(names))["plateau"]
    assert value(config, facts) == pytest.approx(run("blend", names)["value"], abs=1e-12)


def test_the_default_weights_are_those_of_the_page():
    config = RewardConfig()
    weights = (config.weight_regret, config.weight_micro_lp, config.weight_plateau)
    assert (*weights, config.weight_frontier) == (0.4, 0.0, 0.6, 0.0)
    assert "`a = .4, c = .6, b = d = 0`" in PAGE


def test_pay_is_what_the_page_says():
    rule = PayRule(novelty_penalty=0.2, invalid=-1.0, repair_penalty=0.1)
    for repaired in ((), ("fences",)):
        names = {
            "value": 0.7, "novelty_penalty": 0.2, "skeleton_share": 0.25, "repair_penalty": 0.1,
            "text_repaired": bool(repaired),
        }  # fmt: skip
        found = design_reward(Raw(value=0.7), rule, skeleton_share=0.25, repaired=repaired)
        assert found == pytest.approx(run("Pay", names)["pay"])


def test_baselines_and_scale_are_what_the_page_says():
    group, other = [0.0, 1.0, 0.25], [0.5, 1.0]
    samples = [Valued("g", "s", r) for r in group] + [Valued("h", "s", r) for r in other]
    names = {
        "group": group, "skill": group + other, "mean": fmean, "pstdev": pstdev,
        "num_episodes": 192, "num_designs": 24, "interval": 4,
    }  # fmt: skip
    found = run("Baselines", names)
    for rule in RULES:
        assert advantages(samples, rule)[:3] == pytest.approx(found[rule])
    assert reference_scale(24, 192, 4) == found["scale"] == 32.0
