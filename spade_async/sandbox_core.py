"""What both facades of the jail share: the native core, its figures, its faults.

The only place that imports the compiled module, besides the choice of another backend and
`transport.native`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spade_async import _sandbox_rs
from spade_async.errors import SandboxBusy, SandboxError
from spade_async.jail_backends import make_core
from spade_async.sandbox_policy import SandboxPolicy, check_text, limits_text
from spade_async.sandbox_profiles import profile
from spade_async.sandbox_records import Event, Resources
from spade_async.types import CallReport, Outcome, Reply

RESET, STEP, HINT, PING = 1, 2, 3, 5
NOT_STARTED = Reply(Outcome.FINISHED, detail="not loaded yet")
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


JailError = _sandbox_rs.JailError
"""What the native core raises; `fault_of` makes it ours."""
_sandbox_rs.use_records(_OUTCOMES, Reply, CallReport)


def fault_of(error: _sandbox_rs.JailError) -> SandboxError:
    """A fault of the native core as ours."""
    kind = SandboxBusy if isinstance(error, _sandbox_rs.JailBusy) else SandboxError
    return kind(str(error))


class _Faults:
    """The context of `faults`. A class: a generator would cost each call a microsecond more."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, _sandbox_rs.JailError):
            raise fault_of(error) from None


_FAULTS = _Faults()


def faults() -> _Faults:
    """Turn faults of the native core into ours, within ``with``."""
    return _FAULTS


def reply_of(answer: tuple[Any, ...]) -> Reply:
    """An answer of a core in Python as a record; the native core makes its own."""
    outcome, text, reward, terminated, truncated, detail, wall_s, cpu_s, num_bytes = answer
    report = CallReport(wall_s, cpu_s, num_bytes)
    return Reply(_OUTCOMES[outcome], text, reward, terminated, truncated, detail, report)


def outcome_of(done: Any) -> Reply | SandboxError:
    """A completion as data: the reply, or the fault that took its place."""
    if type(done) is Reply:
        return done
    return SandboxError(done) if isinstance(done, str) else reply_of(done)


def value_of(done: Any) -> Reply:
    """A completion as a reply.

    Raises:
        SandboxError: a fault of ours took its place.
    """
    value = outcome_of(done)
    if isinstance(value, SandboxError):
        raise value
    return value


class PoolBase:
    """Policy, native core and figures of one pool.

    Its figures raise `SandboxError` unless the pool is open, and in a forked child.
    """

    _blocking: bool

    def __init__(
        self, policy: SandboxPolicy | None = None, *, _without: frozenset[str] = frozenset()
    ) -> None:
        if policy is not None and not isinstance(policy, SandboxPolicy):
            raise ValueError(f"policy is {type(policy).__name__}: pass a SandboxPolicy")
        self.policy = policy if policy is not None else SandboxPolicy()
        self._profiles = {name: at for at, name in enumerate(self.policy.profile_names)}
        self._limits = limits_text(self.policy, _sandbox_rs.__file__, _without, self._blocking)
        self._core: Any = None
        self._closed = False

    def _new_core(self) -> Any:
        with faults():
            return make_core(self.policy, self._limits, _sandbox_rs)

    def _started(self) -> Any:
        if self._core is None:
            state = "closed; start a new one" if self._closed else "not started; enter it first"
            raise SandboxError(f"sandbox pool is {state}")
        return self._core

    def _profile(self, name: str | None, forkable: bool = False) -> int:
        """Number of a profile of this pool; None takes the first."""
        name = next(iter(self._profiles)) if name is None else name
        if not isinstance(name, str) or name not in self._profiles:
            known = ", ".join(self._profiles)
            raise ValueError(
                f"profile {name!r} is not one of this pool's ({known}): name it in "
                "SandboxPolicy(profiles=...)"
            )
        number = self._profiles[name]
        if not forkable:
            return number
        kept = {"files", "threads"}.intersection(profile(self.policy.profiles[number]).tiers)
        if kept:
            # A copy has one thread of its worker's, and its /tmp would be that of its siblings.
            raise ValueError(
                f"profile {name!r}: a session with {' and '.join(sorted(kept))} cannot be forked; "
                "choose a profile without that tier"
            )
        return number

    def _checked_steps(
        self, steps: Iterable[tuple[Any, str]], kind: type[Any]
    ) -> list[tuple[int, str]]:
        """Session numbers and texts of a batch, before anything of it is sent.

        Raises:
            ValueError: a text cannot be sent, a session occurs twice or is another pool's.
            SandboxError: a session is not open.
        """
        calls: list[tuple[int, str]] = []
        for pair in steps:
            is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
            session, text = pair if is_pair else (None, "")
            check_text("action", text, self.policy.action_bytes)
            if not isinstance(session, kind) or session._pool is not self:
                raise ValueError(
                    f"step_many: entry {len(calls)} is no session of this pool; pass pairs of a "
                    "session and a text"
                )
            calls.append((session._open_number(), text))
        if len({number for number, _ in calls}) < len(calls):
            raise ValueError("step_many: a session occurs twice; step it once per call")
        return calls

    @property
    def capabilities(self) -> dict[str, Any]:
        """Level and layers that hold on this machine, each found out by doing it.

        `level` is the highest that holds and what is missing; `layers` has by name `ok`, `detail`
        (what was seen) and `remedy`, see docs/levels.md.
        """
        with faults():
            capabilities: dict[str, Any] = self._started().capabilities()
        return capabilities

    def stats(self) -> dict[str, int]:
        """Counters since the start (by outcome too) and the gauges live, spare, waiting.

        Counts of sessions, workers, calls or deaths by name: see docs/sandbox_api.md.
        """
        with faults():
            return dict(self._started().stats())

    def drain_latencies(self) -> list[float]:
        """Wall seconds of each call since the last drain; at most 65,536 are kept."""
        with faults():
            latencies: list[float] = self._started().drain_latencies()
        return latencies

    def events(self) -> list[Event]:
        """What happened since the last look; the newest 4,096 are kept."""
        with faults():
            rows = self._started().drain_events()
        return [Event(*row) for row in rows]


def resources_of(core: Any, session: int | None) -> Resources | None:
    """What a session has used; None when it has no worker."""
    if session is None or core is None:
        return None
    with faults():
        used = core.used(session)
    return None if used is None else Resources(**used)
