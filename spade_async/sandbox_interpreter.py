"""The interpreter of a template: does it run, is it new enough, does it have the packages?

Found out by running it, with time-outs: what a user names here may be anything. The template starts
its interpreter without `site`, so the folders of its packages are asked for beforehand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from spade_async.errors import SandboxError

LEAST_VERSION = (3, 11)
_START_S = 30.0
_IMPORT_S = 120.0
# Also understood by interpreters that are too old, so that they can say so.
_LOOK = (
    "import sys, json; print(json.dumps([list(sys.version_info[:3]), [p for p in sys.path if p]]))"
)
_TRY = """
import importlib, json, sys
paths, names = json.loads(sys.argv[1])
sys.path[:0] = paths
for name in names:
    print(json.dumps(["importing", name]), flush=True)
    try:
        importlib.import_module(name)
    except BaseException as error:
        print(json.dumps(["failed", f"{type(error).__name__}: {error}"[:300]]), flush=True)
        break
else:
    print(json.dumps(["done", ""]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Examined:
    """What came of trying an interpreter and packages."""

    ok: bool
    detail: str
    remedy: str = ""


class _Unusable(Exception):
    """Why an interpreter is of no use, with the remedy as second argument."""


def search_paths(python: str) -> list[str]:
    """Folders that an interpreter imports from, in its order.

    Raises:
        SandboxError: it does not run or does not answer.
    """
    if os.path.abspath(python) == os.path.abspath(sys.executable):
        return [path for path in sys.path if path]
    try:
        return _look(python)[1]
    except _Unusable as cause:
        raise SandboxError(f"{cause.args[0]}; {cause.args[1]}") from None


def examine(python: str, packages: Sequence[str]) -> Examined:
    """Start the interpreter and import the packages as the template does."""
    try:
        version, paths = _look(python)
        if version < LEAST_VERSION:
            least = ".".join(map(str, LEAST_VERSION))
            found = ".".join(map(str, version))
            raise _Unusable(f"{python} is Python {found}", f"use {least} or newer")
        _try_imports(python, search_paths(python) if packages else paths, packages)
    except _Unusable as cause:
        return Examined(False, *cause.args)
    except SandboxError as cause:
        return Examined(False, str(cause), "name an interpreter that runs")
    found = ".".join(map(str, version))
    return Examined(True, f"{python} is Python {found}, imports {', '.join(packages) or 'nothing'}")


def _look(python: str) -> tuple[tuple[int, ...], list[str]]:
    """Version and folders of an interpreter."""
    done = _run([python, "-E", "-c", _LOOK], _START_S)
    remedy = "set python to the path of a Python interpreter"
    if done.returncode != 0:
        raise _Unusable(f"{python} is no usable interpreter: {_last(done)}", remedy)
    try:
        version, paths = json.loads(done.stdout)
        return tuple(int(part) for part in version), [str(path) for path in paths]
    except (ValueError, TypeError):
        raise _Unusable(f"{python} does not answer like a Python interpreter", remedy) from None


def _try_imports(python: str, paths: list[str], packages: Sequence[str]) -> None:
    question = json.dumps([paths, list(packages)])
    done = _run([python, "-S", "-s", "-P", "-B", "-c", _TRY, question], _IMPORT_S)
    lines = [line for line in done.stdout.splitlines() if line.startswith('["')]
    said = [tuple(json.loads(line)) for line in lines]
    if said and said[-1] == ("done", ""):
        return
    names = [text for kind, text in said if kind == "importing"]
    failed = [text for kind, text in said if kind == "failed"]
    name = names[-1] if names else ""
    why = failed[-1] if failed else f"it ended without an answer ({_last(done)})"
    remedy = f"install it ({python} -m pip install ...) or take it out of the profile's packages"
    raise _Unusable(f"package {name!r} cannot be imported by {python}: {why}", remedy)


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    environment = {"LC_ALL": "C.UTF-8"}  # as poor as that of a template: no PATH for a shim
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds, cwd="/",
            stdin=subprocess.DEVNULL, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        problem = f"{command[0]} did not answer within {seconds:.0f} s"
        raise _Unusable(problem, "set python to an interpreter that starts") from None
    except (OSError, ValueError) as cause:
        why = getattr(cause, "strerror", None) or str(cause)
        raise _Unusable(f"{command[0]} cannot be started: {why}", "name one that runs") from None


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1][:300] if lines else f"exit code {done.returncode}"
