"""What an interpreter needs to serve environments: its compiled parts and the files it reads.

Found out once per pool by doing it: the interpreter of the children runs the trusted runner here on
the host, with the same flags and imports, and tells which files it has mapped and loaded. A jail
then shows exactly these. No untrusted code is near.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spade_async.errors import SandboxError
from spade_async.jail_backends import look, standalone
from spade_async.jail_backends.limits import Limits

FLAGS = ("-s", "-S", "-P", "-B")
"""No site, no user folder, no script folder on the path, no writing of compiled files."""

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHON_DISABLE_REMOTE_DEBUG": "1",
}
"""All that a child's environment holds."""

BOOT = """
import binascii, json, marshal, os
def take(count):
    held = b""
    while len(held) < count:
        part = os.read(0, count - len(held))
        if not part:
            os._exit(0)
        held += part
    return held
def code(text):
    return marshal.loads(binascii.a2b_base64(text))
server, runner, settings = json.loads(take(int.from_bytes(take(4), "little")))
space = {"__name__": "spade_server"}
exec(code(server), space)
space["start"](code(runner), *settings)
"""
"""Program of a child: the rest arrives on its standard input, already compiled."""

_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found."""

    address_space_bytes: int
    """Limit of a child: what it has when it is ready, and `memory_bytes`."""
    executable: str
    """The interpreter itself, past any virtual environment."""
    hello: bytes
    """First bytes of a child's standard input: the compiled parts and its settings."""
    folders: tuple[str, ...]
    """Folders of the standard library."""
    extra: tuple[str, ...]
    """Folders and files of further packages, only those that were loaded."""
    hidden: tuple[str, ...]
    """Folders below `folders` that are nobody's business: packages installed for others."""
    libraries: tuple[tuple[str, str], ...]
    """(path on the host, path under which the loader looks for it)."""


def survey(limits: Limits, runner: str, num_files: int) -> Survey:
    """Run the interpreter of `limits` once.

    Args:
        limits: limits of the pool.
        runner: source of the runner, the same that the native template executes.
        num_files: descriptors that a child may have once it is ready; 0 lets it keep its pipes and
            open nothing.

    Raises:
        SandboxError: it cannot be run, or one of `imports` cannot be imported.
    """
    server = Path(standalone.__file__).read_text()
    program = Path(look.__file__).read_text() + "look()\n"
    arguments = (list(limits.imports), list(limits.import_paths), limits.max_turns)
    # Not warmed and not frozen: a process that lives for one episode would only lose by it.
    options = {
        "profile": limits.profile, "virtual_clock": limits.virtual_clock, "warm": False
    }  # fmt: skip
    question = json.dumps([server, runner, *arguments, options]).encode()
    try:
        done = subprocess.run(
            [limits.python, *FLAGS, "-c", program], input=question, capture_output=True,
            env=ENVIRONMENT, cwd="/", timeout=_START_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise SandboxError(
            f"{limits.python} cannot be started ({cause}); check sandbox.python"
        ) from cause
    if done.returncode != 0 or not done.stderr.endswith(b"\0"):
        said = done.stderr.decode("utf-8", "replace").strip() or "it said nothing"
        raise SandboxError(
            f"{limits.python} cannot run the runner with imports={list(limits.imports)}: "
            f"{said.splitlines()[-1][:500]}; check sandbox.python and sandbox.imports"
        )
    found = json.loads(done.stdout)
    address_space_bytes = found["bytes"] + limits.memory_bytes
    settings = (
        arguments,
        options,
        limits.reply_bytes,
        max(limits.source_bytes, limits.action_bytes) + (1 << 20),
        _rlimits(limits, address_space_bytes, num_files),
    )
    hello = json.dumps([found["server"], found["runner"], settings]).encode()
    folders = _standard(found["path"])
    extra = _extra(found["path"], (*found["loaded"], *found["mapped"]), limits.import_paths)
    return Survey(
        address_space_bytes=address_space_bytes,
        executable=found["executable"],
        hello=struct.pack("<I", len(hello)) + hello,
        folders=folders,
        extra=extra,
        hidden=_hidden(folders),
        libraries=_libraries(found["mapped"], (*folders, *extra), found["executable"]),
    )


def _rlimits(limits: Limits, address_space_bytes: int, num_files: int) -> list[tuple[int, int]]:
    """Limits that a child sets on itself, hard and soft, before it loads anything."""
    return [
        (resource.RLIMIT_AS, address_space_bytes),
        (resource.RLIMIT_CPU, limits.lifetime_cpu_s),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, num_files),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ]


def _standard(path: list[str]) -> tuple[str, ...]:
    """Folders that a bare interpreter imports from, the outermost of each."""
    folders = [folder for folder in path if os.path.isdir(folder)]
    return tuple(one for one in folders if not any(_below(one, other) for other in folders))


def _hidden(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Folders of installed packages below those of the standard library."""
    names = ("site-packages", "dist-packages")
    inner = (os.path.join(folder, name) for folder in folders for name in names)
    return tuple(name for name in inner if os.path.isdir(name))


def _extra(
    path: list[str], files: tuple[str, ...], import_paths: tuple[str, ...]
) -> tuple[str, ...]:
    """The first folder or file below one of `import_paths` for each file that was loaded."""
    found = set()
    # The longest path first: a packages folder usually lies below the standard library's.
    roots = [root for root in sorted(import_paths, key=len, reverse=True) if root not in path]
    for name in files:
        root = next((root for root in roots if _below(name, root)), None)
        if root is not None:
            found.add(os.path.join(root, os.path.relpath(name, root).split(os.sep)[0]))
    return tuple(sorted(found))


def _below(name: str, root: str) -> bool:
    return name != root and name.startswith(root.rstrip("/") + "/")


def _libraries(
    mapped: list[str], folders: tuple[str, ...], executable: str
) -> tuple[tuple[str, str], ...]:
    """Mapped files outside the folders, shared libraries under each name they are asked for by."""
    found = {(executable, executable)}
    loader = _loader(executable)
    if loader is not None:
        found.add((os.path.realpath(loader), loader))
    for name in mapped:
        if any(_below(name, folder) for folder in folders) or name.endswith("/gconv-modules.cache"):
            continue
        found.add((name, name))
        stem, is_library, _ = os.path.basename(name).partition(".so")
        if not is_library:
            continue
        for entry in os.scandir(os.path.dirname(name)):
            is_link = entry.name.startswith(f"{stem}.so.") and entry.is_symlink()
            if is_link and os.path.realpath(entry.path) == os.path.realpath(name):
                found.add((name, entry.path))
    return tuple(sorted(found))


def _loader(executable: str) -> str | None:
    """Path of the program interpreter that a 64-bit ELF file names; None for a static program."""
    with open(executable, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return None
        offset, size, count = (
            *struct.unpack_from("<Q", head, 32),
            *struct.unpack_from("<HH", head, 54),
        )
        for index in range(count):
            file.seek(offset + index * size)
            entry = file.read(56)
            if struct.unpack_from("<I", entry)[0] == 3:  # PT_INTERP
                start, length = (
                    struct.unpack_from("<Q", entry, 8)[0],
                    struct.unpack_from("<Q", entry, 32)[0],
                )
                file.seek(start)
                return file.read(length).rstrip(b"\0").decode()
    return None
