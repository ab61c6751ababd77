"""Which core serves a pool: native, nsjail or subprocess."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from spade_async.errors import SandboxError
from spade_async.jail_backends.choice import check_backend
from spade_async.jail_backends.core import ProcessCore
from spade_async.jail_backends.limits import Limits, parse_limits
from spade_async.jail_backends.nsjail import NOBODY, NsjailLauncher
from spade_async.jail_backends.plain import PlainLauncher
from spade_async.jail_backends.protocol import Core
from spade_async.jail_backends.survey import Survey, survey

if TYPE_CHECKING:
    from spade_async.sandbox_policy import SandboxPolicy

_REQUIRED = (
    "pid_namespace",
    "mount_namespace",
    "seccomp",
    "no_new_privs",
    "capabilities",
    "self_test",
)
"""Without these nsjail is no jail: refused at every level."""


def make_core(policy: SandboxPolicy, limits_text: str, native: Any) -> Core:
    """Start the core of a pool.

    Args:
        policy: names the backend.
        limits_text: limits as `sandbox_policy.limits_text` writes them.
        native: the compiled module; the other backends take the runner's source from it.

    Raises:
        SandboxError: it cannot start here.
        ValueError: unknown backend, or an unsafe one that was not spelled out.
    """
    check_backend(policy.backend, policy.allow_unsafe)
    if policy.backend == "native":
        core: Core = native.Core(limits_text)
        return core
    limits = parse_limits(limits_text)
    if policy.backend == "subprocess":
        found = survey(limits, native.RUNNER_SOURCE, PlainLauncher.num_files)
        return ProcessCore(limits, found, PlainLauncher(found))
    found = survey(limits, native.RUNNER_SOURCE, NsjailLauncher.num_files)
    network = "network_namespace" not in limits.without
    if os.geteuid() != 0:
        return _nsjail(limits, found, os.geteuid(), True, network)
    try:
        return _nsjail(limits, found, NOBODY, True, network)
    except SandboxError as fault:
        # In a user namespace of its own the setup has only the rights of that user, who may not
        # enter the folders above the interpreter.
        if "Permission denied" not in str(fault):
            raise
    return _nsjail(limits, found, NOBODY, False, network)


def _nsjail(
    limits: Limits, found: Survey, outside_id: int, user: bool, network: bool
) -> ProcessCore:
    launcher = NsjailLauncher(
        found, outside_id=outside_id, user_namespace=user, network_namespace=network
    )
    return ProcessCore(limits, found, launcher, _REQUIRED)
