"""Bad input at the command line: one clear line, an exit code, nothing lost, no traceback."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_async.config.run_folder import RunFolder
from tests.support.whole_run import CONFIG, ROOT, SMALL, Ended, WholeRun, sets, spade, whole_run

NOBODY = 65534
COULD_NOT_START = 2
pytestmark = pytest.mark.timeout(150)
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")


@pytest.fixture
def copy(finished: tuple[WholeRun, Ended], tmp_path: Path) -> Iterator[WholeRun]:
    """A copy of a run that could go on."""
    run, _ = finished
    root = tmp_path / "run"
    shutil.copytree(run.root, root)
    with whole_run(root, run.values["model.path"]) as run:
        yield run


def refused(*arguments: str | Path, code: int = COULD_NOT_START) -> str:
    """The line of a command that is refused."""
    ended = spade(*arguments)
    assert ended.code == code
    return ended.line()


def train(root: Path, *arguments: str | Path) -> Ended:
    return spade("train", CONFIG, *sets(SMALL), "--run-dir", root, *arguments)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("learner.grad_clipp=1", ("learner.grad_clipp", 'grad_clip"')),
        ("lerner.lr=1", ("lerner", "learner")),
        ("async.agent_bound=-1", ("async.agent_bound", "-1", ">= 0")),
        ("async.staleness=-1", ("async.staleness", "-1", ">= 0")),
        ("link.resend_s=0", ("link.resend_s", "0", "> 0")),
        ("designer.reward.delay=9", ("designer.reward.delay=9", "async.designer_bound >= 10")),
        ("generator.concurrent_tasks=-1", ("generator.concurrent_tasks", "-1")),
        ("learner.lr=fast", ("learner.lr", "fast")),
        ("train.steps=1e99", ("train.steps", "1e99")),
        ("designer.group_size=200", ("agent.groups_per_step", "designer.group_size=200")),
        ("engine.kind=vllm", ("engine.kind", "vllm", "builtin")),
        ('sandbox.profiles=["computer"]', ("sandbox", "computer", "did you mean 'compute'")),
        ('sandbox.profiles=["none.toml:x"]', ("sandbox", "none.toml", "No such file")),
        ("agent.pool=/no/such/pool", ("agent.pool", "/no/such/pool", "No such file")),
        ("grounding.corpus=/no/such/corpus", ("grounding.corpus", "/no/such/corpus", "not exist")),
        ("grounding.corpus=/dev/null", ("grounding.corpus", "/dev/null", "is no file or folder")),
        ("model.path=/no/such/model", ("model.path", "/no/such/model", "no such folder")),
        ("model.max_context_tokens=82", ("designer's prompt", "raise model.max_context_tokens=82")),
        ("agent.thinking=true", ("agent.thinking=true", "no switch", "leave agent.thinking out")),
        ("learner.device=cuda", ("learner.device", "cluster.gpus=0", 'set learner.device="cpu"')),
        ("learner.dtype=float9", ("learner.dtype", "float9", '"float32", "bfloat16"')),
    ],
)
def test_bad_setting_is_one_line_and_makes_no_folder(
    tmp_path: Path, setting: str, words: tuple[str, ...]
) -> None:
    root = tmp_path / "run"
    line = refused("train", CONFIG, "--set", setting, "--run-dir", root)
    for word in words:
        assert word in line
    assert not root.exists()


def damaged_model(model: Path, folder: Path, damage: str) -> Path:
    shutil.copytree(model, folder)
    weights = folder / "model.safetensors"
    tokenizer = folder / "tokenizer.json"
    if damage == "cut weights":
        os.truncate(weights, weights.stat().st_size // 2)
    elif damage == "no weights":
        weights.unlink()
    elif damage == "no tokenizer":
        tokenizer.unlink()
        (folder / "tokenizer_config.json").unlink()
    elif damage == "no template":
        (folder / "chat_template.jinja").unlink()
    elif damage == "no config":
        (folder / "config.json").unlink()
    elif damage == "other tokenizer":
        text = json.loads(tokenizer.read_text())
        text["version"] = "1.0 "
        tokenizer.write_text(json.dumps(text))
    return folder


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("cut weights", ("model.safetensors is damaged", "copy it again")),
        ("no weights", ("it has no weights",)),
        ("no tokenizer", ("it has no tokenizer",)),
        ("other tokenizer", ("tokenizer.json", "not the one this model was trained with")),
        ("no template", ("has no chat template", "use a chat model")),
        ("no config", ("it has no config.json",)),
    ],
)
def test_damaged_model_folder_is_one_line_and_makes_no_folder(
    tmp_path: Path, nano_model: Path, damage: str, words: tuple[str, ...]
) -> None:
    folder = damaged_model(nano_model, tmp_path / "model", damage)
    line = train(tmp_path / "run", "--set", f"model.path={folder}").line()
    for word in (str(folder), *words):
        assert word in line
    assert not (tmp_path / "run").exists()


def test_a_taken_port_is_one_line_and_makes_no_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = train(tmp_path / "run", "--set", f"link.endpoint=tcp://127.0.0.1:{port}").line()
    assert f"link.endpoint=tcp://127.0.0.1:{port}: port {port} is taken" in line
    assert "choose another port" in line
    assert not (tmp_path / "run").exists()


def test_folder_of_a_live_run_is_refused(tmp_path: Path, nano_model: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    with RunFolder(root).lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        for more in ((), ("--resume",)):
            ended = train(root, "--set", f"model.path={nano_model}", *more)
            assert ended.code == COULD_NOT_START
            assert f"in use by a live run (pid {os.getpid()})" in ended.line()
        assert [entry.name for entry in root.iterdir()] == ["lock"]


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_folder_with_a_run_needs_resume_and_its_own_configuration(copy: WholeRun) -> None:
    before = contents(copy.root)
    model = ("--set", f"model.path={copy.values['model.path']}")
    ended = train(copy.root, *model)
    assert ended.code == COULD_NOT_START
    assert "is not empty: add --resume" in ended.line()
    ended = train(copy.root, *model, "--set", "learner.lr=0.5", "--resume")
    assert ended.code == COULD_NOT_START
    assert "learner.lr" in ended.line()
    ended = train(copy.root.parent / "empty", *model, "--resume")
    assert ended.code == COULD_NOT_START
    assert "nothing to resume" in ended.line()
    assert contents(copy.root) == before


@as_root
def test_folder_without_permission_is_one_line(tmp_path: Path) -> None:
    """Somebody who may read everything that is needed, and write nothing."""
    # Imports and tables first: the interpreter's own files may be hidden from that user.
    program = (
        "import os, sys; from spade_async.cli import main; import spade_async.commands.train;"
        "from spade_async.sandbox_profiles import builtin_profiles; builtin_profiles();"
        "from pathlib import Path; from spade_async.config.load import resolve;"
        "from spade_async.supervisor.check_start import check_unmade_model;"
        f"check_unmade_model(resolve(Path({str(CONFIG)!r}), []));"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY});"
        "sys.argv = ['spade-async', *sys.argv[1:]]; main()"
    )
    root = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", program, "train", str(CONFIG), "--run-dir", str(root)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    ended = Ended(done.returncode, done.stdout, done.stderr)
    assert ended.code == COULD_NOT_START
    assert f"run folder {root} cannot be used: Permission denied" in ended.line()
    assert not root.exists()


def test_cut_ledger_is_one_line_and_is_left_as_it_is(copy: WholeRun) -> None:
    ledger = copy.folder.ledger
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        (copy.root / name).unlink(missing_ok=True)
    os.truncate(ledger, ledger.stat().st_size // 2)
    before = ledger.read_bytes()
    copy.start()
    ended = copy.end(60.0)
    assert ended.code == COULD_NOT_START
    line = ended.line()
    assert "ledger.sqlite" in line
    assert "damaged" in line or "malformed" in line
    # What is possible is said, and what is not is not advised.
    assert "restore it from a copy" in line
    assert f"model.path={copy.folder.checkpoints / 'branch-0-step-3'}" in line
    assert "--resume" not in line
    assert ledger.read_bytes() == before
    line = refused("report", copy.root)
    assert "ledger.sqlite" in line


def test_ledger_of_a_newer_program_is_one_line_and_is_left_as_it_is(copy: WholeRun) -> None:
    with contextlib.closing(sqlite3.connect(copy.folder.ledger)) as ledger:
        ledger.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
        ledger.commit()
    before = contents(copy.root)
    copy.start()
    ended = copy.end(60.0)
    assert ended.code == COULD_NOT_START
    line = ended.line()
    assert "schema 99, written by a newer program" in line
    assert "use the version that wrote it" in line
    assert "--resume" not in line
    assert contents(copy.root) == before


def test_lost_ledger_is_one_line_and_nothing_starts_from_scratch(copy: WholeRun) -> None:
    copy.folder.ledger.unlink()
    before = contents(copy.root)
    copy.start()
    ended = copy.end(60.0)
    assert ended.code == COULD_NOT_START
    assert "checkpoints and no ledger.sqlite" in ended.line()
    assert contents(copy.root) == before


def test_damaged_checkpoint_is_named_and_the_one_before_is_used(copy: WholeRun) -> None:
    newest = copy.folder.checkpoints / "branch-0-step-3"
    for file in newest.glob("*.safetensors"):
        os.truncate(file, file.stat().st_size // 2)
    copy.finish()
    (alert,) = [a for a in copy.status().alerts if a.kind == "checkpoint_damaged"]
    assert newest.name in alert.text
    assert list(copy.folder.checkpoints.glob(f"damaged-*{newest.name}*"))
    report = copy.report()
    assert (report["steps"], report["samples_lost"], report["samples_trained_twice"]) == (3, 0, 0)


def test_lost_checkpoints_fall_back_to_the_start_model(copy: WholeRun) -> None:
    shutil.rmtree(copy.folder.checkpoints)
    copy.finish()
    report = copy.report()
    assert (report["steps"], report["samples_lost"], report["samples_trained_twice"]) == (3, 0, 0)


def in_mounts(script: str, run: WholeRun, place: Path) -> Ended:
    """The run's command after some mounts in a mount namespace of its own."""
    kept = {key: value for key, value in os.environ.items() if key != "XDG_RUNTIME_DIR"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh", *run.command],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90,
        env={**kept, "PLACE": str(place)},
        check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def can_mount() -> bool:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


READ_ONLY_TMP = (
    'mount --bind "$PLACE" "$PLACE" && mount --rbind /tmp /tmp && mount -o remount,bind,ro /tmp'
)
"""/tmp turns read-only; what lies in it (an interpreter, this tree) stays to be read, and the run's
own place, a mount of its own, stays to be written."""


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("mount -t tmpfs -o size=64k tmpfs /dev/shm", ("/dev/shm", "MiB", "run_folder")),
        ("mount -t tmpfs -o mode=0555,ro tmpfs /dev/shm", ("/dev/shm", "run_folder")),
        (READ_ONLY_TMP, ("socket folder in /tmp", "Read-only")),
    ],
    ids=["small-shm", "read-only-shm", "read-only-tmp"],
)
def test_missing_place_outside_the_run_folder_is_one_line(
    nano_model: Path, script: str, words: tuple[str, ...]
) -> None:
    place = ROOT / "target" / f"places-{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(nano_model, place / "model")
    try:
        with whole_run(place / "run", place / "model") as run:
            ended = in_mounts(script, run, place)
            assert ended.code == COULD_NOT_START
            line = ended.line()
            for word in words:
                assert word in line
            assert not run.root.exists()
    finally:
        shutil.rmtree(place)
