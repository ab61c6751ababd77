"""configs/games_reference.toml against the recipe of the paper's games runs, number by number."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spade_async.config.load import resolve
from spade_async.config.schema import Config
from spade_async.coordinator.compare import Comparison
from spade_async.designer.prompt import route_of
from spade_async.designer.rewards.facts import Facts
from spade_async.designer.rewards.learning_potential import Trackers
from spade_async.designer.rewards.registry import make
from spade_async.designer.skills import Rotation, chosen_skills, domain_skills
from spade_async.domain import load_domain
from spade_async.types import Role

FILE = Path(__file__).parents[3] / "configs" / "games_reference.toml"
EIGHT = [
    "model.path=Qwen3-8B",
    "designer.max_new_tokens=20000",
    "learner.kl_to_start=0.005",
    "agent.thinking=true",
    "designer.thinking=true",
]
RECIPE: dict[str, Any] = {
    "run.compat": "reference",
    "train.steps": 400,
    "checkpoint.every": 16,
    "model.max_context_tokens": 32768,
    "agent.groups_per_step": 24,
    "agent.seeds_per_environment": 8,
    "agent.temperature": 0.6,
    "agent.max_turns": 25,
    "agent.max_new_tokens_per_turn": 8192,
    "agent.thinking": None,
    "designer.temperature": 0.6,
    "designer.max_new_tokens": 16384,
    "designer.thinking": None,
    "designer.skills_per_window": 3,
    "designer.hint": "self",
    "regret.reference_hinted_plays": 16,
    "designer.validator": "off",
    "designer.self_judge": "off",
    "designer.repair_turns": 0,
    "designer.reward.variant": "blend",
    "designer.reward.delay": 4,
    "designer.reward.weight_plateau": 0.6,
    "designer.reward.weight_regret": 0.4,
    "designer.reward.weight_micro_lp": 0.0,
    "designer.reward.weight_frontier": 0.0,
    "designer.reward.plateau_low": 0.4,
    "designer.reward.plateau_high": 0.6,
    "designer.reward.plateau_ramp": 0.25,
    "designer.reward.regret_norm": 0.15,
    "designer.reward.regret_range": "floor",
    "designer.reward.gamma_fast": 0.98,
    "designer.reward.gamma_slow": 0.85,
    "designer.reward.scale_max": 50.0,
    "designer.novelty_penalty": 0.0,
    "designer.plays_per_skeleton": 0,
    "designer.reward.repair_penalty": 0.0,
    "agent.pool_share": 0.0,
    "regret.leak_discount": False,
    "grounding.max_document_words": 6000,
    "grounding.memory_capacity": 200,
    "grounding.num_exemplars": 2,
    "grounding.num_avoid": 1,
    "learner.lr": 1e-6,
    "learner.warmup_steps": 0,
    "learner.betas": (0.9, 0.98),
    "learner.weight_decay": 0.1,
    "learner.clip_low": 0.2,
    "learner.clip_high": 0.28,
    "learner.correction.rule": "tis_token",
    "learner.correction.cap": 2.0,
    "learner.passes": 1,
    "learner.kl_to_start": 0.0,
    "learner.entropy_weight": 0.0,
}


@pytest.fixture(scope="module")
def config() -> Config:
    return resolve(FILE)


def value(config: Config, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(("key", "wanted"), RECIPE.items(), ids=RECIPE.keys())
def test_key_has_the_value_of_the_recipe(config: Config, key: str, wanted: Any) -> None:
    assert value(config, key) == wanted


def test_a_cycle_is_24_programs_of_three_skills_and_192_plays_per_step(config: Config) -> None:
    designer, agent = config.designer, config.agent
    assert designer.skill_window * designer.group_size == 24
    assert designer.groups_per_step * designer.group_size == 24
    assert agent.groups_per_step * agent.seeds_per_environment == 192
    names = chosen_skills(designer.skills, domain_skills(load_domain(config.domain.hook)))
    rotation = Rotation(names, designer.skills_per_window, designer.skill_window)
    cycles = [Counter(rotation.skill(12 * cycle + i).name for i in range(12)) for cycle in range(3)]
    first = ["Mathematical Reasoning", "Logical Deduction", "Spatial Reasoning"]
    second = ["Pattern Recognition", "Optimization", "Causal Inference"]
    assert [dict(cycle) for cycle in cycles] == [
        dict.fromkeys(first, 4), dict.fromkeys(second, 4), dict.fromkeys(first, 4)
    ]  # fmt: skip


def test_baselines_scale_and_balance_of_the_roles_are_the_recipes(config: Config) -> None:
    rules = Comparison.of(config)
    assert (rules.agent, rules.designer, rules.lone_is_zero) == ("z_score", "skill_mean", True)
    assert rules.is_agent_reference
    assert rules.scale(24, 192) == 32.0
    # A mean over all samples gives 24 programs this share beside the mean of 192 episodes.
    assert config.learner.designer_weight * rules.scale(24, 192) == pytest.approx(32 * 24 / 192)
    assert rules.rule(Role.AGENT) == "z_score"


def test_pay_is_the_floored_blend(config: Config) -> None:
    """Mean return 0.5 is on the plateau; regret 0.9 - 0.5 over 0.15 is floored and capped at 1."""
    variant = make(config.designer.reward, config.run.compat)
    trackers = Trackers(gamma_fast=0.98, gamma_slow=0.85)

    def pay(hint: float, *means: float) -> float | None:
        plays = {offset: [mean] * 8 for offset, mean in enumerate(means)}
        facts = Facts(skill="s", plays=plays, hint_mean=hint, regret=None)
        return variant.raw(facts, trackers).value

    assert pay(0.9, 0.5, 0.5, 0.5, 0.5) == pytest.approx(1.0)
    assert pay(0.575, 0.5, 0.5, 0.5, 0.5) == pytest.approx(0.4 * 0.5 + 0.6)
    assert pay(0.1, 0.2, 0.2, 0.2, 0.2) == pytest.approx(0.6 * 0.2)
    assert pay(1.0, 1.0, 1.0, 1.0, 1.0) == pytest.approx(0.0)


def test_prompt_is_that_of_the_corpus_and_the_delay_fits_the_bound(config: Config) -> None:
    assert route_of("auto", "a document", config.agent.max_turns, config.run.compat) == "corpus"
    assert config.async_.bounds[1] >= config.designer.reward.delay + 1


def test_what_8b_changes_is_said_in_the_file_and_resolves() -> None:
    text = " ".join(FILE.read_text().replace("#", " ").split())
    for change in EIGHT:
        assert f"--set {change}" in text
    config = resolve(FILE, EIGHT)
    assert (config.designer.max_new_tokens, config.learner.kl_to_start) == (20_000, 0.005)
    assert (config.agent.thinking, config.designer.thinking) == (True, True)
