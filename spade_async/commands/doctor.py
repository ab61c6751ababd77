"""`spade-async doctor`: what works on this machine, found out by trying it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spade_async.commands.doctor_config import config_findings
from spade_async.commands.finding import Finding
from spade_async.engine.vllm.installed import CPU_INSTALL, look
from spade_async.errors import SpadeError
from spade_async.sandbox_policy import LEVELS
from spade_async.weights.folder import check_shared_memory

if TYPE_CHECKING:
    from spade_async.sandbox_profiles import Profile

_PROBE_TIMEOUT_S = 120.0
_MIN_DISK_BYTES = 1 << 30
# One line of JSON from a child process: importing torch here would cost seconds and memory.
_TORCH_PROBE = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
devices = [torch.cuda.get_device_name(index) for index in range(count)]
threads = torch.get_num_threads()
print(json.dumps({"version": torch.__version__, "threads": threads, "devices": devices}))
"""
_VLLM_PROBE = """
import json, vllm
print(json.dumps({"version": vllm.__version__}))
"""


def examine(profiles: Path | None = None, config: Path | None = None) -> list[Finding]:
    """Try everything; a check that breaks is a finding, never an exception.

    Args:
        profiles: TOML file with profiles of the jail, to be tried besides the built-in ones.
        config: configuration or run folder, to be read and looked at besides.
    """
    findings: list[Finding] = []

    def _profiles() -> list[Finding]:
        return profile_findings(profiles)

    def _configuration() -> list[Finding]:
        return config_findings(config)

    checks: tuple[Callable[[], list[Finding]], ...] = (
        _python, _jail, _profiles, _torch, _vllm, _shared_memory, _disk, _sqlite,
        _configuration,
    )  # fmt: skip
    for check in checks:
        try:
            findings += check()
        except Exception as error:  # the doctor reports whatever breaks
            name = check.__name__.lstrip("_").replace("_", " ")
            findings.append(Finding(name, False, True, f"{type(error).__name__}: {error}"))
    return findings


def doctor(
    *, as_json: bool, console: Console, profiles: Path | None = None, config: Path | None = None
) -> int:
    """Print the findings. Returns 0 when a training run is possible, else 1."""
    findings = examine(profiles, config)
    missing = [f for f in findings if f.needed and not f.ok]
    if as_json:
        found = [asdict(f) for f in findings]
        print(json.dumps({"can_train": not missing, "findings": found}, indent=2))
        return 1 if missing else 0
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        mark, style = (
            ("ok", "green") if finding.ok else ("no", "red" if finding.needed else "yellow")
        )
        text = Text(finding.detail)
        if not finding.ok and finding.remedy:
            text.append(f"\n-> {finding.remedy}", style="bold")
        table.add_row(Text(mark, style=style), Text(finding.name), text)
    console.print(table)
    if missing:
        names = ", ".join(f.name for f in missing)
        console.print(f"A training run is not possible: {names}.", style="red", markup=False)
        return 1
    console.print("A training run is possible.", style="green")
    return 0


def _python() -> list[Finding]:
    cores = len(os.sched_getaffinity(0))
    detail = f"{platform.python_version()} on {platform.machine()}, {cores} cores usable"
    linux = sys.platform == "linux"
    return [Finding("python", linux, True, detail, "" if linux else "run on Linux")]


def _jail() -> list[Finding]:
    try:
        from spade_async.sandbox import probe_capabilities
    except ImportError as error:
        remedy = "build it: pip install -e . (needs a Rust tool chain)"
        return [Finding("jail module", False, True, str(error), remedy)]
    try:
        capabilities = probe_capabilities()
    except SpadeError as error:
        remedy = "the kernel must allow seccomp and fork; see the message for the layer"
        return [Finding("jail", False, True, str(error), remedy)]
    return [*jail_findings(capabilities), _files()]


def _files() -> Finding:
    """The one layer that a profile adds: a file system of the episode's own, written to."""
    from spade_async.sandbox import SandboxPolicy, SyncPool

    source = (
        "class DoctorEnv:\n def reset(self, seed):\n"
        "  open('/tmp/a', 'w').write('kept')\n  return open('/tmp/a').read(), {}\n"
    )
    policy = SandboxPolicy(profiles=("files",), num_workers=1, spares=1)
    try:
        with SyncPool(policy) as pool, pool.session(source, 0) as session:
            reply = session.reset()
            detail = pool.capabilities["layers"]["files"]["detail"]
    except SpadeError as error:
        return Finding("jail: files", False, False, str(error), "other profiles run without it")
    if reply.observation != "kept":
        detail = f"an episode that writes a file comes to {reply.outcome.value}: {reply.detail}"
    return Finding("jail: files", reply.observation == "kept", False, detail)


def jail_findings(capabilities: dict[str, Any]) -> list[Finding]:
    """The level of `probe_capabilities` and one finding per layer; the jail starts by then.

    A layer that does not hold lowers the level, and `sandbox.level` decides whether that is enough.
    """
    level = capabilities["level"]
    highest = level.partition(",")[0]
    held = LEVELS[LEVELS.index(highest) :] if highest in LEVELS else ()
    demands = f"sandbox.level may be {', '.join(('auto', *held))}"
    findings = [Finding("jail", True, True, f"starts, level {level}; {demands}")]
    for name, layer in capabilities["layers"].items():
        detail = layer["detail"] or ("holds" if layer["ok"] else "does not hold here")
        shown = name.replace("_", " ")
        findings.append(Finding(f"jail: {shown}", layer["ok"], False, detail, layer["remedy"]))
    return findings


def profile_findings(path: Path | None) -> list[Finding]:
    """One finding per pair of interpreter and packages that a profile of the jail names.

    A pair that imports is also made a template, and one of its workers plays an episode.
    """
    from spade_async.sandbox_profiles import builtin_profiles, check_profile, load_profiles

    try:
        own = load_profiles(path) if path is not None else {}
    except ValueError as error:
        return [Finding("jail profiles", False, True, str(error), f"correct {path}")]
    findings, tried = [], set()
    for record in (*builtin_profiles().values(), *own.values()):
        pair = (record.python, record.packages)
        if pair in tried or pair == ("", ()):  # the jail's own start has tried the bare one
            continue
        tried.add(pair)
        found = check_profile(record)
        needed = record.name in own
        name = f"jail profile {record.name}"
        finding = Finding(name, found.ok, needed, found.detail, found.remedy)
        findings.append(_served(record, finding) if found.ok else finding)
    return findings


def _served(record: Profile, imports: Finding) -> Finding:
    """The finding on a profile's pair, once a worker of it has been asked for an episode."""
    from spade_async.sandbox import SandboxPolicy, SyncPool

    source = "class DoctorEnv:\n def reset(self, seed): return 'ok', {}\n"
    try:
        policy = SandboxPolicy(profiles=(record,), num_workers=1, spares=1)
        with SyncPool(policy) as pool, pool.session(source, 0) as session:
            reply = session.reset()
    except (SpadeError, ValueError) as error:
        problem, remedy = str(error), "correct the profile, or what the text names"
    else:
        if reply.ok:
            return replace(imports, detail=f"{imports.detail}; a worker of it has played")
        problem = f"an episode in it comes to {reply.outcome.value}: {reply.detail}"
        remedy = "look at what the packages do when they are imported"
    return replace(imports, ok=False, detail=problem, remedy=remedy)


def _torch() -> list[Finding]:
    facts, problem = _probe(_TORCH_PROBE)
    if facts is None:
        return [Finding("torch", False, True, problem, "pip install torch")]
    cuda = ", ".join(facts["devices"]) or "none: the built-in engine uses the CPU"
    return [
        Finding("torch", True, True, f"{facts['version']}, {facts['threads']} threads by default"),
        Finding("CUDA", bool(facts["devices"]), False, cuda, "not needed for configs/nano.toml"),
    ]


def _vllm() -> list[Finding]:
    found = look()
    needed = 'needed for engine.kind="vllm" only (docs/vllm.md)'
    if found.problem is not None:
        detail, _, remedy = found.problem.partition(": ")
        return [Finding("vLLM", False, False, detail, f"{remedy}; {needed}")]
    facts, problem = _probe(_VLLM_PROBE)
    if facts is None:
        return [Finding("vLLM", False, False, f"it cannot be imported: {problem}", CPU_INSTALL)]
    build = "build for CPUs" if found.is_cpu_build else "build for GPUs"
    slow = ": the GPU here stays idle" if found.is_cpu_build and found.has_gpu else ""
    return [Finding("vLLM", True, False, f"{facts['version']}, {build}{slow}")]


def _shared_memory() -> list[Finding]:
    try:
        check_shared_memory()
    except SpadeError as error:
        return [Finding("shared memory", False, False, str(error))]
    free = shutil.disk_usage("/dev/shm").free
    return [Finding("shared memory", True, False, f"/dev/shm, {free >> 20} MiB free")]


def _disk() -> list[Finding]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    try:
        with tempfile.TemporaryDirectory(dir=here, prefix=".spade-doctor-"):
            pass
    except OSError as error:
        remedy = "use a --run-dir you may write to"
        return [Finding("disk", False, False, f"{here}: {error.strerror}", remedy)]
    detail = f"{here}: {free >> 30} GiB free"
    return [Finding("disk", free >= _MIN_DISK_BYTES, True, detail, "free at least 1 GiB")]


def _sqlite() -> list[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "probe.sqlite")
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        finally:
            connection.close()
    detail = f"{sqlite3.sqlite_version}, journal {mode}"
    return [Finding("SQLite", mode == "wal", True, detail, "use a Python with SQLite 3.7 or newer")]


def _probe(code: str) -> tuple[Any, str]:
    """(JSON answer of a small program in a child, "") or (None, why there is none)."""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"did not answer within {_PROBE_TIMEOUT_S:.0f} s"
    if answer.returncode != 0:
        last = answer.stderr.strip().splitlines()[-1:] or [f"exit code {answer.returncode}"]
        return None, last[0][:300]
    return json.loads(answer.stdout.strip().splitlines()[-1]), ""
