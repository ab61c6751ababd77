"""The real supervisor over stub parts: how runs end, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spade_async.config.load import resolve
from spade_async.config.run_folder import RunFolder
from spade_async.supervisor.resources import read_resources
from spade_async.telemetry.status import RunStatus, read_status
from spade_async.weights.folder import weights_folder
from tests.support.tiny_chat_model import make_chat_model
from tests.support.whole_run import CONFIG

ROOT = Path(__file__).parents[2]
GOOD = ("coordinator=coordinate", "gen-0=work", "learner=work")
LIMIT_S = 90.0


class Run:
    """One supervisor under test."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "run"
        self.config = tmp_path / "stub.toml"
        self.write_config(
            f'extends = "{CONFIG}"\n[model]\npath = "{make_chat_model(tmp_path / "model")}"\n'
            "[supervisor]\nmax_deaths = 3\nbackoff_s = 0.05\n"
        )
        self.process: subprocess.Popen[str] | None = None

    def write_config(self, text: str) -> None:
        self.config.write_text(text)

    def start(self, *behaviours: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.stub_run", str(self.root), str(self.config),
             *behaviours],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def end(self) -> tuple[int, str, str]:
        """(exit code, stdout, stderr), and what must hold however a run ends."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.living() == []
        assert not weights_folder(resolve(self.config), self.root).exists()
        info = self.info()
        if "socket_folder" in info:
            assert not Path(info["socket_folder"]).exists()
        return self.process.returncode, out, err

    def info(self) -> dict[str, str]:
        path = RunFolder(self.root).info
        return json.loads(path.read_text()) if path.exists() else {}

    def status(self) -> RunStatus | None:
        return read_status(RunFolder(self.root).status)

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not what():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def wait_ready(self, *names: str) -> None:
        logs = [RunFolder(self.root).logs / f"{name}.log" for name in names]
        self.wait(lambda: all(log.exists() and "ready" in log.read_text() for log in logs))

    def living(self) -> list[int]:
        """Pids of processes whose command line names the run folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self.process and int(entry.name) != self.process.pid:
                try:
                    command = (entry / "cmdline").read_bytes().decode(errors="replace")
                except OSError:
                    continue
                if str(self.root) in command or str(self.root.parent) in command:
                    found.append(int(entry.name))
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    if run.process is not None and run.process.poll() is None:
        run.process.kill()
        run.process.communicate()


def test_finished_run_is_success_and_leaves_its_facts(run: Run) -> None:
    run.start("coordinator=finish", "gen-0=work", "learner=work")
    code, out, _ = run.end()
    assert code == 0
    assert "END finished" in out
    info = run.info()
    assert info["model_folder"].endswith("/model")
    assert set(info["processes"]) == {"coordinator", "gen-0", "learner"}
    cost = read_resources(RunFolder(run.root))
    assert cost is not None
    assert cost.wall_seconds > 0.5
    assert cost.cpu_seconds > 0.1
    assert cost.warm_start_seconds is None


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (("coordinator=coordinate", "gen-0=crash", "learner=work"),
         ("3 deaths", "gen-0", "exit code 1", "ValueError: no room for the prompt", "gen-0.log")),
        (("coordinator=coordinate", "gen-0=work", "learner=die"),
         ("3 deaths", "learner", "SIGKILL")),
        (("coordinator=coordinate", "gen-0=vanish", "learner=work"),
         ("3 deaths", "gen-0", "left before the run was done")),
        (("coordinator=coordinate", "gen-0=refuse", "learner=work"),
         ("gen-0", "exit code 78", "ConfigError: another tokenizer")),
        (("coordinator=fail", "gen-0=work", "learner=work"),
         ("coordinator", "exit code 1", "RuntimeError: the ledger is gone")),
        (("coordinator=vanish", "gen-0=work", "learner=stubborn"), ("coordinator", "left before")),
    ],
    ids=["crash", "kill", "early", "refused", "coordinator", "stubborn"],
)  # fmt: skip
def test_death_that_comes_again_ends_the_run_with_one_line(
    run: Run, parts: tuple[str, ...], words: tuple[str, ...]
) -> None:
    run.start(*parts)
    code, out, _ = run.end()
    assert code == 1
    (line,) = [text for text in out.splitlines() if text.startswith("END ")]
    for word in (*words, "--resume", str(run.root)):
        assert word in line
    status = run.status()
    assert status is not None
    assert (status.state, bool(status.failure)) == ("failed", True)


def test_dead_part_is_named_told_and_started_again(run: Run) -> None:
    run.start("coordinator=coordinate", "gen-0=die_once", "learner=work")
    run.wait_ready("coordinator", "gen-0", "learner")
    assert run.process is not None
    first = [json.loads(line) for line in (run.root / "news").read_text().splitlines()]
    assert [(news["name"], news["again_in_s"]) for news in first] == [("gen-0", 0.05)]
    assert "SIGKILL" in first[0]["text"]
    parts = json.loads(RunFolder(run.root).info.read_text())["processes"]
    assert str(parts["gen-0"]["pid"]) not in first[0]["text"]
    assert os.getsid(parts["gen-0"]["pid"]) == parts["gen-0"]["pid"]
    run.process.send_signal(signal.SIGINT)
    code, out, _ = run.end()
    assert code == 0
    assert "was killed by SIGKILL" in out
    assert "started again in 0.1 s" in out


def test_ctrl_c_during_the_pause_before_a_restart_starts_nothing_more(run: Run) -> None:
    run.write_config(run.config.read_text().replace("0.05", "20.0"))
    run.start("coordinator=coordinate", "gen-0=die", "learner=work")
    run.wait((run.root / "news").exists)
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    code, out, _ = run.end()
    assert code == 0
    assert "END stopped and saved" in out


def test_ctrl_c_once_saves_and_stops(run: Run) -> None:
    run.start(*GOOD)
    run.wait_ready("coordinator", "gen-0", "learner")
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    code, out, _ = run.end()
    assert code == 0
    assert "press Ctrl-C again" in out
    assert "END stopped and saved" in out
    status = run.status()
    assert status is not None
    assert status.state == "stopped"


def test_ctrl_c_twice_stops_at_once_and_leaves_nothing(run: Run) -> None:
    run.start("coordinator=stubborn", "gen-0=stubborn", "learner=work")
    run.wait_ready("coordinator", "gen-0", "learner")
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    run.wait(lambda: run.process is not None and run.process.poll() is None)
    time.sleep(0.3)
    run.process.send_signal(signal.SIGTERM)
    code, out, _ = run.end()
    assert code == 130
    assert "END stopped at once" in out


def test_killed_supervisor_takes_its_parts_along_and_can_be_resumed(run: Run) -> None:
    run.start(*GOOD)
    run.wait_ready("coordinator", "gen-0", "learner")
    assert run.process is not None
    run.process.kill()
    run.process.communicate()
    run.wait(lambda: run.living() == [])
    run.start("coordinator=finish", "gen-0=work", "learner=work", "resume")
    code, _, err = run.end()
    assert (code, err) == (0, "")
    cost = read_resources(RunFolder(run.root))
    assert cost is not None
    assert cost.restarts == 1


def test_run_folder_in_use_is_refused_and_the_live_run_goes_on(run: Run) -> None:
    run.start(*GOOD)
    run.wait_ready("coordinator")
    first = run.process
    assert first is not None
    run.start(*GOOD, "resume")
    assert run.process is not None
    _, err = run.process.communicate(timeout=LIMIT_S)
    assert run.process.returncode == 2
    assert f"in use by a live run (pid {first.pid})" in err
    assert first.poll() is None
    run.process = first
    first.send_signal(signal.SIGINT)
    assert run.end()[0] == 0


def test_ctrl_c_while_the_model_is_made_leaves_nothing(run: Run) -> None:
    run.write_config('[domain]\nhook = "tests.support.slow_domain"\n[model]\npath = "slow"\n')
    run.start(*GOOD)
    run.wait(lambda: (status := run.status()) is not None and "warm_start/share" in status.metrics)
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    code, out, _ = run.end()
    assert code == 130
    assert "END stopped before the first step" in out
    assert "socket_folder" not in run.info()


@pytest.mark.parametrize(
    ("name", "words"),
    [("unknown", "makes no model of that name"), ("broken", "RuntimeError: no data")],
)
def test_model_that_cannot_be_made_is_one_line(run: Run, name: str, words: str) -> None:
    run.write_config(f'[domain]\nhook = "tests.support.slow_domain"\n[model]\npath = "{name}"\n')
    run.start(*GOOD)
    code, _, err = run.end()
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1
    # What was refused leaves no folder; the log of what broke is worth one.
    assert run.root.exists() == (name == "broken")


def test_parts_have_sessions_of_their_own_and_sigterm_is_a_clean_stop(run: Run) -> None:
    run.start(*GOOD)
    run.wait_ready("coordinator", "gen-0", "learner")
    parts = json.loads(RunFolder(run.root).info.read_text())["processes"]
    # Parts live in sessions of their own: Ctrl-C in the terminal reaches the supervisor alone.
    assert all(os.getsid(known["pid"]) == known["pid"] for known in parts.values())
    assert run.process is not None
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 0
