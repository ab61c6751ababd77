"""Limits of a pool as the cores get them: the TOML text of `sandbox_policy.limits_text`."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from typing import Any

from spade_async.errors import SandboxError
from spade_async.jail_backends.frame import DETAIL_BYTES, REPLY_OVERHEAD


@dataclass(frozen=True, slots=True)
class Limits:
    """What a `ProcessCore` needs of the text; further keys belong to the native core."""

    level: str
    """What the pool may demand of the machine; "strict" wants every layer."""
    num_workers: int
    spares: int
    queue: int
    wall_s_per_call: float
    cpu_s_per_call: float
    load_wall_s: float
    start_s: float
    memory_bytes: int
    """Address space of a child above what it has when it is ready."""
    reply_bytes: int
    source_bytes: int
    action_bytes: int
    max_turns: int
    imports: tuple[str, ...]
    import_paths: tuple[str, ...]
    python: str
    without: frozenset[str]
    """Layers left out on purpose, by tests and benches."""
    profile: str = ""
    """Name of the profile, for messages."""
    tiers: tuple[str, ...] = ()
    virtual_clock: bool = False

    @property
    def lifetime_cpu_s(self) -> int:
        """Hard CPU limit of a whole child, in seconds: a backstop above the limits per call."""
        total = self.load_wall_s + (self.max_turns + 4) * self.cpu_s_per_call + 2.0
        return max(2, math.ceil(min(total, 1e9)))

    @property
    def reply_cap(self) -> int:
        """Longest reply frame that is read."""
        return self.reply_bytes + REPLY_OVERHEAD + DETAIL_BYTES


_LISTS = ("imports", "import_paths", "tiers")
_NEEDED = tuple(
    name for name in Limits.__slots__ if name not in (*_LISTS, "profile", "virtual_clock")
)


def parse_limits(text: str) -> Limits:
    """Read the text. Where it has profiles, the first one rules.

    Raises:
        ValueError: not TOML, or a limit is missing.
        SandboxError: the profile asks for what only the native core gives.
    """
    values: dict[str, Any] = tomllib.loads(text)
    if values.get("profiles"):
        first = values["profiles"][0]
        own = {name: value for name, value in first.items() if name in Limits.__slots__}
        values = {**values, **own, "profile": first.get("name", "")}
    lists = {name: tuple(values.get(name, ())) for name in _LISTS}
    try:
        taken = {name: values[name] for name in _NEEDED}
    except KeyError as missing:
        raise ValueError(f"limits without {missing.args[0]}") from None
    taken |= {**lists, "without": frozenset(taken["without"])}
    taken["profile"] = str(values.get("profile", ""))
    limits = Limits(**taken, virtual_clock=bool(values.get("virtual_clock", False)))
    if limits.tiers:
        raise SandboxError(
            f"sandbox profile {limits.profile!r} asks for {', '.join(limits.tiers)}: that needs "
            'backend "native"'
        )
    return limits
