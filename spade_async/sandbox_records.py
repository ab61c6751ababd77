"""What the jail tells about its work besides replies: resources of a session, events of a pool."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resources:
    """What one session has used so far, seen from outside. A figure that cannot be read is None."""

    calls: int
    """Calls answered, loading included."""
    wall_s: float
    """Seconds from request to reply, added up."""
    bytes_in: int
    """Bytes sent to the worker."""
    bytes_out: int
    """Bytes it sent."""
    cpu_ns: int | None
    """CPU nanoseconds of the worker since the session began."""
    peak_rss_bytes: int | None
    """Highest resident size; pages shared with the template are in it."""
    private_bytes: int | None
    """Pages that are this worker's alone, now."""
    minor_faults: int | None
    """Page faults without input since the worker was forked."""
    major_faults: int | None
    """Page faults with input."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a pool and is worth a line or a mark.

    Kinds: the outcomes that end a session (`timed_out`, `over_memory`, `crashed`, ...), `busy`,
    `start_failed`, `template_died`, `template_restarted`, `template_rotated`, `broker_died`,
    `broker_restarted`, `stray_ended`, `broken`.
    """

    at: float
    """Unix time in seconds."""
    kind: str
    profile: str
    """Name of the profile concerned, or ""."""
    session: int | None
    """Number of the session concerned, if one is."""
    detail: str
