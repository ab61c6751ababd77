from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.commands.config import as_toml
from spade_async.config.correction import RULES, CorrectionConfig, parameters, supported_kl
from spade_async.config.load import as_dict, resolve
from spade_async.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text("[train]\nsteps = 7\n")
    return path


@pytest.mark.parametrize(
    ("sets", "parts"),
    [
        (["rule=tis_tokn"], ['rule="tis_tokn"', 'did you mean "tis_token"?']),
        (["rule=zzz"], ["known: none, tis_token"]),
        (["cap=0.5"], ["learner.correction.cap=0.5", ">= 1"]),
        (["capp=2"], ['did you mean "learner.correction.cap"?']),
        (
            ["rule=mis_geometric", "low=1.0", "high=1.0"],
            ["learner.correction.low=1.0", "below learner.correction.high=1.0"],
        ),
        (["low=0.5"], ["learner.correction.low=0.5", '"tis_token"', "learner.correction.cap"]),
        (["rule=none", "cap=2"], ['rule="none"', "its parameters: none"]),
        (
            ["rule=decoupled_ppo"],
            ["learner.passes=1", "reduces to a weighted policy gradient", "learner.passes=2"],
        ),
    ],
)
def test_a_wrong_correction_is_one_line_with_the_next_move(
    file: Path, sets: list[str], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(file, [f"learner.correction.{one}" for one in sets])
    lines = str(caught.value).splitlines()
    assert len(lines) == 1
    assert all(part in lines[0] for part in parts), lines[0]


def test_the_old_name_of_the_cap_is_told(file: Path) -> None:
    with pytest.raises(ConfigError, match=r'it is "learner.correction.cap" now'):
        resolve(file, ["learner.tis_cap=3"])


@pytest.mark.parametrize("name", RULES)
def test_every_rule_resolves_with_its_defaults(file: Path, name: str) -> None:
    passes = f"learner.passes={RULES[name].min_passes}"
    config = resolve(file, [f"learner.correction.rule={name}", passes]).learner.correction
    assert parameters(config) == RULES[name].defaults
    assert supported_kl(config) == RULES[name].supported_kl


def test_what_is_set_replaces_the_default() -> None:
    config = CorrectionConfig(rule="icepop", low=0.25, max_kl=0.5)
    assert parameters(config) == {"low": 0.25, "high": 5.0}
    assert supported_kl(config) == 0.5


def test_the_shown_configuration_can_be_fed_back(file: Path, tmp_path: Path) -> None:
    config = resolve(file, ["learner.correction.rule=icepop", "learner.correction.low=0.25"])
    shown = tmp_path / "shown.toml"
    shown.write_text(as_toml(as_dict(config)))
    assert resolve(shown) == config


@pytest.mark.parametrize("name", RULES)
def test_a_clip_is_refused_by_the_rules_that_have_none(file: Path, name: str) -> None:
    sets = [f"learner.correction.rule={name}", f"learner.passes={RULES[name].min_passes}"]
    for clip in ("clip_low", "clip_high"):
        if RULES[name].uses_clip:
            resolve(file, [*sets, f"learner.{clip}=0.3"])
            continue
        with pytest.raises(ConfigError, match=rf'learner\.{clip}=0\.3 has no meaning.*"{name}"'):
            resolve(file, [*sets, f"learner.{clip}=0.3"])
