from __future__ import annotations

import json
from pathlib import Path

import pytest

from spade_async.config.load import (
    as_dict,
    differences,
    digest,
    dump_resolved,
    load_resolved,
    resolve,
)
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import ConfigError

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text("[train]\nsteps = 7\n")
    return path


def problems(path: Path, *sets: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve(path, sets)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("path", sorted((REPOSITORY / "configs").glob("*.toml")), ids=str)
def test_every_shipped_configuration_resolves(path: Path) -> None:
    assert resolve(path).train.steps > 0


def test_unknown_section_names_the_nearest_key_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "typo.toml"
    path.write_text("[desinger]\ngroup_size = 4\n")
    assert problems(path) == [f'unknown key "desinger": did you mean "designer"? (in {path})']


def test_unknown_key_names_the_nearest_key_at_its_depth(file: Path) -> None:
    (line,) = problems(file, "designer.group_sise=4")
    assert 'unknown key "designer.group_sise": did you mean "designer.group_size"?' in line
    assert "(in --set designer.group_sise=4)" in line


def test_key_like_no_other_lists_what_is_known(file: Path) -> None:
    (line,) = problems(file, "train.zzzzqqqq=4")
    assert line.startswith('unknown key "train.zzzzqqqq": known here: steps')


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("async.agent_bound=-1", "async.agent_bound=-1: must be an integer >= 0 and <= 1000"),
        ("train.steps=2.5", "train.steps=2.5: must be an integer >= 0"),
        ("train.steps=many", "train.steps='many': must be an integer >= 0"),
        ("learner.lr=nan", "learner.lr=nan: must be a finite number >= 0.0 and <= 1.0"),
        ("learner.lr=inf", "learner.lr=inf: must be a finite number"),
        ("sandbox.level=weak", 'sandbox.level=\'weak\': must be one of "auto", "strict"'),
        ("sandbox.profiles=[]", "sandbox.profiles=[]: must be"),
        ("sandbox.code_cache_bytes=-1", "sandbox.code_cache_bytes=-1: must be an integer >= 0"),
        ("sandbox.rotate_after_s=nan", "sandbox.rotate_after_s=nan: must be a finite number"),
        ("regret.mastered_at=2", "regret.mastered_at=2: must be a finite number >= 0.0 and <= 1"),
        ("learner.betas=[1]", "learner.betas=[1]: must be a list of 2"),
        ("designer=3", "designer=3: must be a table of keys"),
        ("run.name=a/b", "run.name='a/b': must be a string of the form"),
    ],
)
def test_value_out_of_range_says_key_value_and_what_is_allowed(
    file: Path, override: str, message: str
) -> None:
    (line,) = problems(file, override)
    assert line.startswith(message)
    assert line.endswith(f"(in --set {override})")


def test_several_problems_are_all_listed(file: Path) -> None:
    assert len(problems(file, "train.step=1", "desinger.x=1")) == 2
    assert len(problems(file, "train.steps=-1", "learner.lr=-1")) == 2


def test_cross_field_problem_names_both_numbers(file: Path) -> None:
    (line,) = problems(file, "agent.groups_per_step=1")
    assert "agent.groups_per_step=1" in line
    assert "designer.group_size=8" in line


def test_extends_is_relative_to_the_file_and_laid_under_it(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "b.toml").write_text("[train]\nsteps = 3\n[learner]\nlr = 0.5\n")
    child = tmp_path / "c.toml"
    child.write_text('extends = "base/b.toml"\n[train]\nsteps = 4\n')
    config = resolve(child, ["learner.warmup_steps=2"])
    assert (config.train.steps, config.learner.lr, config.learner.warmup_steps) == (4, 0.5, 2)


def test_unknown_key_in_an_ancestor_names_the_ancestor(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("[trian]\nsteps = 3\n")
    child = tmp_path / "c.toml"
    child.write_text('extends = "b.toml"\n')
    (line,) = problems(child)
    assert "b.toml" in line


def test_a_file_that_extends_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('extends = "a.toml"\n')
    assert "extends itself" in problems(path)[0]


@pytest.mark.parametrize("override", ["steps", "=3", "train.=3", "train..steps=3"])
def test_override_of_wrong_form_is_explained(file: Path, override: str) -> None:
    assert problems(file, override) == [f"--set {override}: write it as section.key=value"]


def test_override_values_are_toml_else_strings(file: Path) -> None:
    config = resolve(
        file,
        [
            "run.name=first",
            "learner.normalise_std=true",
            'designer.skills=["A", "B"]',
            "learner.lr=3e-4",
        ],
    )
    assert config.run.name == "first"
    assert config.learner.normalise_std is True
    assert config.designer.skills == ("A", "B")
    assert config.learner.lr == 3e-4


def test_missing_and_broken_files_are_one_line(tmp_path: Path) -> None:
    assert problems(tmp_path / "no.toml")[0].startswith("no configuration file")
    assert "is a folder" in problems(tmp_path)[0]
    broken = tmp_path / "broken.toml"
    broken.write_text("[train\n")
    assert "is not TOML" in problems(broken)[0]


def test_resolved_configuration_survives_the_run_folder(file: Path, tmp_path: Path) -> None:
    config = resolve(file, ["async.staleness=0"])
    dump_resolved(config, tmp_path)
    assert load_resolved(tmp_path) == config
    assert as_dict(config)["async"]["staleness"] == 0


def test_folder_without_configuration_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder"):
        load_resolved(tmp_path)


def test_damaged_resolved_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_resolved(tmp_path)


def test_digest_ignores_the_number_of_steps_and_nothing_else() -> None:
    base = Config()
    longer = base.model_copy(update={"train": base.train.model_copy(update={"steps": 9})})
    other = base.model_copy(update={"run": base.run.model_copy(update={"seed": 18})})
    assert digest(base) == digest(longer)
    assert digest(base) != digest(other)
    assert differences(base, longer) == []
    assert differences(base, other) == ["run.seed: 17 -> 18"]


def test_code_without_a_jail_must_be_spelled_out(file: Path) -> None:
    (line,) = problems(file, "sandbox.backend=subprocess")
    assert "without a jail" in line
    assert "sandbox.allow_unsafe=true" in line
    config = resolve(file, ["sandbox.backend=subprocess", "sandbox.allow_unsafe=true"])
    assert config.sandbox.backend == "subprocess"
    (line,) = problems(file, "sandbox.backend=docker")
    assert "native" in line
    assert "nsjail" in line


def test_unknown_keys_of_the_jail_name_the_nearest(file: Path) -> None:
    (line,) = problems(file, "sandbox.profile=numpy")
    assert 'unknown key "sandbox.profile": did you mean "sandbox.profiles"?' in line
    (line,) = problems(file, "sandbox.rotate_afters=3")
    assert 'did you mean "sandbox.rotate_after' in line


def test_a_run_folder_stands_for_its_own_configuration(tmp_path: Path) -> None:
    config = resolve(REPOSITORY / "configs" / "nano.toml", ["learner.lr=3e-4", "async.staleness=2"])
    dump_resolved(config, tmp_path)
    assert resolve(tmp_path) == config
    assert resolve(tmp_path, ["train.steps=7"]).train.steps == 7
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match="is a folder and no run folder"):
        resolve(empty)


def test_a_run_from_before_a_key_goes_on_as_it_was(tmp_path: Path) -> None:
    dump_resolved(Config(), tmp_path)
    written = RunFolder(tmp_path).config
    data = json.loads(written.read_text())
    assert load_resolved(tmp_path).regret.early_class
    del data["regret"]["early_class"]
    written.write_text(json.dumps(data))
    assert not load_resolved(tmp_path).regret.early_class
