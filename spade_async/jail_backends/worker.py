"""A child with its place in the pool: the session it serves and the call in flight."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from spade_async.jail_backends.answer import Answer, failed
from spade_async.jail_backends.child import Child
from spade_async.jail_backends.frame import LOAD, FrameReader
from spade_async.jail_backends.limits import Limits
from spade_async.jail_backends.memory import memory_of
from spade_async.types import Outcome

CLOSED = "the worker closed its reply pipe"
_LOOK_S = 0.25


@dataclass(slots=True)
class Call:
    """A call in flight. Times are of the monotonic clock, in seconds."""

    operation: int
    kind: int
    begun: float
    wall_s: float
    cpu_s: float
    cpu_before_ns: int | None
    next_check: float


@dataclass(slots=True, eq=False)
class Worker:
    """One child. `is_ready` once it has said so and was limited from outside."""

    child: Child
    reader: FrameReader
    ready_by: float
    unsent: bytes
    """Bytes of a request that the pipe has not taken yet."""
    is_ready: bool = False
    session: int | None = None
    sequence: int = 0
    call: Call | None = None
    closed_until: float | None = None
    """Its reply pipe is closed; the cause of its end is awaited until then."""
    num_calls: int = 0
    wall_s: float = 0.0
    """Seconds of the calls answered."""
    bytes_in: int = 0
    """Bytes sent to it since its session began."""
    bytes_out: int = 0
    cpu_at_start_ns: int | None = None
    is_ended: bool = False
    """It is out of the book: killed or over."""
    watched: set[int] = field(default_factory=set)
    """Descriptors that the loop watches."""

    def begin(self, operation: int, kind: int, limits: Limits, num_cpus: int) -> None:
        """Note a call that is about to be sent."""
        now = time.monotonic()
        if kind == LOAD:
            wall_s, cpu_s = limits.load_wall_s, limits.load_wall_s
        else:
            wall_s, cpu_s = limits.wall_s_per_call, limits.cpu_s_per_call
        # A child uses no more CPU time than wall time on each CPU that it can occupy.
        next_check = now + min(wall_s, cpu_s / num_cpus, self._look_s())
        before = self.child.cpu_ns()
        self.call = Call(operation, kind, now, wall_s, cpu_s, before, next_check)

    def _look_s(self) -> float:
        """Seconds until a child behind a supervisor is looked at again; its pipe tells nothing."""
        return _LOOK_S if self.child.command.supervised else math.inf

    def cpu_s(self) -> float | None:
        """CPU seconds since the call in flight began."""
        if self.call is None or self.call.cpu_before_ns is None:
            return None
        now_ns = self.child.cpu_ns()
        return None if now_ns is None else max(0, now_ns - self.call.cpu_before_ns) / 1e9

    def account(self) -> dict[str, int | float | None]:
        """What its session has used, by the names of `sandbox_records.Resources`."""
        now_ns = self.child.cpu_ns()
        known = now_ns is not None and self.cpu_at_start_ns is not None
        return {
            "calls": self.num_calls,
            "wall_s": self.wall_s,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "cpu_ns": now_ns - self.cpu_at_start_ns if known else None,  # type: ignore[operator]
            **memory_of(self.child.pid),
        }

    def late(self, now: float, num_cpus: int) -> Answer | None:
        """The answer if a deadline has passed; otherwise sets the time of the next look."""
        call = self.call
        assert call is not None
        if self.child.has_closed():
            return failed(Outcome.PROTOCOL_VIOLATION, CLOSED)
        cpu_s, wall_s = self.cpu_s(), now - call.begun
        if cpu_s is not None and cpu_s >= call.cpu_s:
            detail = f"cpu: {cpu_s:.3f} s used, limit {call.cpu_s:g} s"
            return failed(Outcome.TIMED_OUT, detail, cpu_s)
        if wall_s >= call.wall_s:
            detail = f"wall: {wall_s:.3f} s passed, limit {call.wall_s:g} s"
            if cpu_s is not None:
                detail += f" ({cpu_s:.3f} s of them on the CPU)"
            return failed(Outcome.TIMED_OUT, detail, cpu_s)
        left = min(call.wall_s - wall_s, self._look_s())
        if cpu_s is not None:
            left = min(left, (call.cpu_s - cpu_s) / num_cpus)
        call.next_check = now + max(left, 0.001)
        return None
