"""Values of [designer.reward] that cannot go with the rest: one line, both keys named."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.config.load import resolve
from spade_async.config.schema import Config
from spade_async.coordinator.compare import Comparison
from spade_async.errors import ConfigError
from spade_async.grpo.baseline import Valued
from spade_async.types import Role


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text("[train]\nsteps = 7\n")
    return path


@pytest.mark.parametrize(
    ("sets", "parts"),
    [
        (
            ["designer.reward.variant=micro_lp"],
            ["designer.reward.delay=0", 'variant="micro_lp"', ">= 2"],
        ),
        (
            ["designer.reward.variant=micro_lp", "designer.reward.delay=1"],
            ["designer.reward.delay=1", ">= 2"],
        ),
        (
            ["designer.reward.variant=blend", "designer.reward.weight_micro_lp=0.5"],
            ["designer.reward.delay=0", "designer.reward.weight_micro_lp=0.5"],
        ),
        (
            ["designer.reward.variant=blend", "run.compat=reference"],
            ["designer.reward.delay=0", 'variant="blend"', ">= 1"],
        ),
        (
            ["designer.reward.delay=8"],
            ["designer.reward.delay=8", "async.designer_bound >= 9", "it is 8"],
        ),
        (
            ["designer.reward.delay=4", "async.staleness=2"],
            ["designer.reward.delay=4", "async.designer_bound >= 5", "it is 4", "async.staleness"],
        ),
        (
            ["designer.reward.delay=1", "async.staleness=0"],
            ["async.designer_bound >= 2", "it is 0"],
        ),
        (
            ["designer.reward.gamma_slow=0.99"],
            ["designer.reward.gamma_slow=0.99", "designer.reward.gamma_fast=0.98"],
        ),
        (
            ["designer.reward.plateau_low=0.7"],
            ["designer.reward.plateau_low=0.7", "designer.reward.plateau_high=0.6"],
        ),
        (
            ["learner.normalise_std=true", "learner.advantage=leave_one_out"],
            ["learner.normalise_std=true", 'learner.advantage="leave_one_out"'],
        ),
        (
            ["learner.normalise_std=true", "designer.reward.baseline=skill_mean"],
            ["learner.normalise_std=true", 'designer.reward.baseline="skill_mean"'],
        ),
        (["designer.reward.timed_out=0.5"], ["designer.reward.timed_out", "<= 0"]),
        (
            ["designer.reward.variant=regrets"],
            ["designer.reward.variant='regrets'", '"regret", "blend"'],
        ),
    ],
)  # fmt: skip
def test_a_clash_is_one_line_that_names_both_keys(
    file: Path, sets: list[str], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(file, sets)
    lines = str(caught.value).splitlines()
    assert len(lines) == 1, lines
    assert all(part in lines[0] for part in parts), lines[0]


@pytest.mark.parametrize(
    "sets",
    [
        ["designer.reward.delay=7"],
        ["designer.reward.variant=blend"],
        ["designer.reward.variant=micro_lp", "designer.reward.delay=2"],
        ["designer.reward.variant=blend", "run.compat=reference", "designer.reward.delay=1"],
        ["learner.normalise_std=true", "learner.advantage=z_score"],
    ],
)
def test_what_goes_together_resolves(file: Path, sets: list[str]) -> None:
    resolve(file, sets)


def comparison(**data: dict) -> Comparison:
    return Comparison.of(Config.model_validate(data))


def test_rules_per_role_by_default_by_shorthand_and_by_key():
    usual = comparison()
    assert (usual.agent, usual.designer, usual.scale(4, 40)) == ("dr_grpo", "dr_grpo", 1.0)
    both = comparison(learner={"normalise_std": True})
    assert (both.agent, both.designer) == ("z_score", "z_score")
    apart = comparison(
        learner={"advantage": "leave_one_out"}, designer={"reward": {"baseline": "skill_mean"}}
    )
    assert (apart.rule(Role.AGENT), apart.rule(Role.DESIGNER)) == ("leave_one_out", "skill_mean")


def test_compatibility_has_the_reference_rules_where_no_key_is_set():
    found = comparison(run={"compat": "reference"})
    assert (found.agent, found.designer) == ("z_score", "skill_mean")
    assert found.scale(24, 192) == 32.0
    assert found.scale(24, 1920) == 50.0
    samples = [Valued("g", "", 0.0), Valued("g", "", 1.0), Valued("h", "", 1.0)]
    low, high, lone = found.advantages(samples, Role.AGENT)
    # 1e-8 beside the deviation: just inside of -1 and 1; a lone play is worth 0.
    assert (low, high) == (-high, pytest.approx(1.0, abs=1e-7))
    assert high < 1.0
    assert lone == 0.0
    assert found.advantages([Valued("d", "s", 0.7)], Role.DESIGNER) == [0.0]
    own = comparison(run={"compat": "reference"}, designer={"reward": {"scale": "none"}})
    assert own.scale(24, 192) == 1.0


def test_groups_without_variance_are_kept_or_skipped():
    samples = [
        Valued("g", "", 1.0),
        Valued("g", "", 1.0),
        Valued("h", "", 0.0),
        Valued("h", "", 1.0),
    ]
    assert comparison().equal_groups(samples) == set()
    assert comparison(learner={"zero_variance": "skip"}).equal_groups(samples) == {"g"}


@pytest.mark.parametrize("key", ["regret_norm", "micro_lp_norm", "frontier_norm", "plateau_ramp"])
def test_what_a_part_is_divided_by_is_no_tiny_number(file: Path, key: str) -> None:
    # A part of weight 0 over 1e-320 was no number, and so was the pay of every design.
    with pytest.raises(ConfigError, match=rf"designer.reward.{key}=1e-320: .*>= 0.001"):
        resolve(file, [f"designer.reward.{key}=1e-320"])
    assert getattr(resolve(file, [f"designer.reward.{key}=0.001"]).designer.reward, key) == 0.001
