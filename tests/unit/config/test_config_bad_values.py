"""Values that would be read as something else, or cannot go together: one line, keys named."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.config.clashes import DEFAULTS
from spade_async.config.load import dump_resolved, load_resolved, resolve
from spade_async.config.schema import AsyncConfig
from spade_async.errors import ConfigError

NANO = Path(__file__).parents[3] / "configs" / "nano.toml"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("async.agent_bound=true", ("async.agent_bound=True", "an integer >= 0")),
        ("train.steps='5'", ("train.steps='5'", "an integer")),
        ("learner.lr='fast'", ("learner.lr='fast'", "a finite number")),
        ("learner.lr=nan", ("learner.lr=nan", "finite")),
        ("sandbox.allow_unsafe='yes'", ("sandbox.allow_unsafe='yes'", "true or false")),
        ("sandbox.allow_unsafe=1", ("sandbox.allow_unsafe=1", "true or false")),
        ("async.agent_bound=-1", ("async.agent_bound=-1", ">= 0")),
        ("async.designer_bound=-1", ("async.designer_bound=-1", ">= 0")),
        ("async.staleness=-1", ("async.staleness=-1", ">= 0")),
        ("generator.concurrent_tasks=0", ("generator.concurrent_tasks=0", ">= 1")),
        ("designer.skills=[]", ("designer.skills=[]", "at least 1")),
        ("learner.betas=[0.9, 1.0]", ("learner.betas=[0.9, 1.0]", "< 1")),
        ("agent.pool_share=1.0", ("agent.pool_share=1.0", "designer.group_size=")),
        ("async.stalenes=1", ('"async.stalenes"', '"async.staleness"')),
        ("train=5", ("train=5", "table")),
    ],
)
def test_a_bad_value_is_one_line_with_its_key(setting: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(NANO, [setting])
    (line,) = str(caught.value).splitlines()
    for word in words:
        assert word in line


@pytest.mark.parametrize("key", ["agent_bound", "designer_bound"])
def test_a_shorthand_that_contradicts_a_bound_names_both_keys(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(NANO, ["async.staleness=2", f"async.{key}=7"])
    assert "async.staleness=2" in str(caught.value)
    assert f"async.{key}=7" in str(caught.value)


def test_a_shorthand_that_agrees_or_stands_alone_is_fine(tmp_path: Path) -> None:
    assert resolve(NANO, ["async.staleness=2"]).async_.bounds == (2, 4)
    both = ["async.staleness=2", "async.agent_bound=2", "async.designer_bound=4"]
    config = resolve(NANO, both)
    assert config.async_.bounds == (2, 4)
    dump_resolved(config, tmp_path)
    assert load_resolved(tmp_path) == config
    fields = AsyncConfig.model_fields
    assert {key: fields[key].default for key in DEFAULTS} == DEFAULTS


def test_whole_numbers_may_be_written_as_such_for_a_fraction() -> None:
    assert resolve(NANO, ["learner.lr=1"]).learner.lr == 1.0
    assert resolve(NANO, ["run.disk_budget='2GB'"]).run.disk_budget == 2_000_000_000
