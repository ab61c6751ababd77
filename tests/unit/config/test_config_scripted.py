"""The section [scripted] and the kinds it belongs to: refused where they make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.config.load import flatten, resolve
from spade_async.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"


def refused(name: str, *sets: str) -> str:
    with pytest.raises(ConfigError) as fault:
        resolve(CONFIGS / name, sets)
    (line,) = str(fault.value).splitlines()
    return line


def test_scripted_run_is_told_from_a_real_one() -> None:
    assert resolve(CONFIGS / "scripted.toml").is_scripted
    assert not resolve(CONFIGS / "nano.toml").is_scripted


def test_scripted_section_is_refused_without_the_kind() -> None:
    line = refused("nano.toml", "scripted.validity=0.5")
    assert "scripted.validity" in line
    assert 'engine.kind="builtin"' in line


def test_one_scripted_part_alone_is_refused_and_both_keys_are_named() -> None:
    for line in (
        refused("nano.toml", 'engine.kind="scripted"'),
        refused("nano.toml", 'learner.kind="scripted"'),
    ):
        assert "engine.kind=" in line
        assert "learner.kind=" in line


def test_other_domain_is_refused_with_the_one_to_set() -> None:
    line = refused("scripted.toml", 'domain.hook="spade_async.nano.domain"')
    assert 'set domain.hook="spade_async.engine.scripted_domain"' in line


def test_more_turns_than_the_agent_has_are_refused() -> None:
    line = refused("scripted.toml", "scripted.turns=3")
    assert "scripted.turns=3" in line
    assert "agent.max_turns=1" in line


@pytest.mark.parametrize("key", ["agent.thinking", "designer.thinking"])
def test_a_thinking_switch_is_refused_because_there_is_no_template(key: str) -> None:
    line = refused("scripted.toml", f"{key}=false")
    assert f'{key}=false, but engine.kind="scripted" has no chat template' in line
    assert f"leave {key} out" in line


def test_share_above_one_is_refused() -> None:
    assert "scripted.hang_share" in refused("scripted.toml", "scripted.hang_share=2")


def test_resolved_configuration_holds_the_section() -> None:
    assert flatten(resolve(CONFIGS / "scripted.toml"))["scripted.token_s"] == 0.002
