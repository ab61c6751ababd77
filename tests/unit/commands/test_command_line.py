from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spade_async import cli
from spade_async.commands.doctor import jail_findings, profile_findings

RUNNER = CliRunner()
NANO = str(Path(__file__).parents[3] / "configs" / "nano.toml")


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["spade-async", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


@pytest.mark.parametrize(
    "verb", ["train", "status", "report", "show", "export", "compare", "doctor", "config"]
)
def test_every_verb_explains_itself(verb: str) -> None:
    answer = RUNNER.invoke(cli.app, [verb, "--help"])
    assert answer.exit_code == 0
    assert "Usage" in answer.output


def test_shown_configuration_is_toml_that_gives_the_same_run(tmp_path: Path) -> None:
    answer = RUNNER.invoke(cli.app, ["config", "show", NANO, "--set", "train.steps=3"])
    assert answer.exit_code == 0
    assert tomllib.loads(answer.output)["train"]["steps"] == 3
    again = tmp_path / "again.toml"
    again.write_text(answer.output)
    assert RUNNER.invoke(cli.app, ["config", "show", str(again)]).output == answer.output
    assert "# staleness: agent groups are about " in answer.output
    assert "async.agent_bound=4" in answer.output


def test_our_errors_are_red_lines_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_main(monkeypatch, "config", "show", NANO, "--set", "desinger.x=1", "--set", "a.b=2")
    shown = capsys.readouterr()
    assert code == 2
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0].startswith('error: unknown key "desinger": did you mean "designer"?')
    assert len(lines) == 2


def test_resume_without_a_folder_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, "train", NANO, "--resume") == 2
    assert "--resume needs a run: spade-async train RUN --resume" in capsys.readouterr().err


def test_missing_model_folder_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code = run_main(
        monkeypatch, "train", NANO, "--set", "model.path=/nowhere/model", "--run-dir", str(run)
    )
    assert code == 2
    assert "no such folder" in capsys.readouterr().err
    assert not run.exists()


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from spade_async import cli\n"
        "heavy = {'torch', 'transformers', 'numpy', 'zmq', 'tensorboard'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_each_jail_layer_is_a_finding_with_its_remedy() -> None:
    layers = {
        "seccomp": {"ok": True, "detail": "", "remedy": ""},
        "worker_pid_namespace": {"ok": False, "detail": "EPERM", "remedy": "allow user namespaces"},
    }
    jail, seccomp, namespace = jail_findings({"level": "basic", "layers": layers})
    assert "basic" in jail.detail
    assert (seccomp.ok, seccomp.detail) == (True, "holds")
    assert (namespace.ok, namespace.needed, namespace.remedy) == (
        False, False, "allow user namespaces",
    )  # fmt: skip


def test_doctor_finds_a_pair_that_imports_and_cannot_serve(tmp_path, monkeypatch):
    # Standard input is nothing where it is merely imported, and the broker's socket in a template.
    (tmp_path / "two_faced.py").write_text("import os\nos.close(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "mine.toml"
    path.write_text('[mine]\npackages = ["two_faced"]\n')
    found = {finding.name: finding for finding in profile_findings(path)}
    bad = found["jail profile mine"]
    assert (bad.ok, bad.needed) == (False, True)
    assert "profile mine: the template left before it was ready" in bad.detail
    assert "two_faced" in bad.detail


def test_doctor_tries_the_profiles_of_a_file_and_names_a_bad_one(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[good]\npackages = ["json"]\n[bad]\npackages = ["no_such_module"]\n')
    found = {finding.name: finding for finding in profile_findings(path)}
    assert found["jail profile good"].ok
    bad = found["jail profile bad"]
    assert (bad.ok, bad.needed) == (False, True)
    assert "no_such_module" in bad.detail
    assert "pip install" in bad.remedy
    assert found["jail profile good"].detail.endswith("imports json; a worker of it has played")
    path.write_text("[a]\npackges = []\n")
    (wrong,) = profile_findings(path)
    assert "did you mean 'packages'" in wrong.detail
