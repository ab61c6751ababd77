"""A jail that runs no code: each session answers with scripted replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spade_async.errors import SandboxBusy
from spade_async.sandbox_records import Event
from spade_async.types import CallReport, Outcome, Reply


def value(observation: str = "", reward: float | None = None, *, end: bool = False) -> Reply:
    """A finished reply; 10 ms of wall time, so that sums are easy to check."""
    return Reply(
        Outcome.FINISHED, observation, reward, terminated=end, report=CallReport(0.01, 0.005)
    )


def bad(outcome: Outcome, detail: str = "it went wrong") -> Reply:
    return Reply(outcome, detail=detail, report=CallReport(0.01, 0.005))


@dataclass
class Script:
    """What one session says. `step` is a list said in turn, or a function of the action."""

    load: Reply = field(default_factory=value)
    reset: Reply = field(default_factory=lambda: value("what is 1 + 1?"))
    hint: Reply = field(default_factory=lambda: value("count"))
    step: list[Reply] | Callable[[str], Reply] = field(
        default_factory=lambda: [value("done", 0.0, end=True)]
    )


class FakeSession:
    def __init__(self, pool: FakeJail, script: Script, seed: int) -> None:
        self._pool, self._script, self.seed = pool, script, seed
        self.loaded = script.load
        self.calls: list[str] = []
        self._turn = 0

    async def __aenter__(self) -> FakeSession:
        self._pool.attempts += 1
        if self._pool.busy > 0:
            self._pool.busy -= 1
            raise SandboxBusy("the queue is full")
        if self._pool.fault is not None:
            raise self._pool.fault
        self._pool.live += 1
        self._pool.opened.append(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._pool.live -= 1

    async def reset(self, seed: int | None = None, *, unseeded: bool = False) -> Reply:
        self.calls.append("reset without a seed" if unseeded else "reset")
        self._turn = 0
        return self._script.reset

    async def step(self, text: str) -> Reply:
        self.calls.append(f"step {text}")
        if callable(self._script.step):
            return self._script.step(text)
        self._turn += 1
        return self._script.step[min(self._turn, len(self._script.step)) - 1]

    async def hint(self) -> Reply:
        self.calls.append("hint")
        return self._script.hint


class FakeJail:
    """`script` is one for all sessions, or a function of (number of the session, seed)."""

    def __init__(self, script: Script | Callable[[int, int], Script] | None = None) -> None:
        self._script = script if script is not None else Script()
        self.opened: list[FakeSession] = []
        self.attempts = 0
        self.live = 0
        self.busy = 0
        """How many entries are refused as busy before one is let in."""
        self.fault: Exception | None = None
        self.latencies: list[float] = []
        self.happened: list[Event] = []
        self.counters: dict[str, float] = {}
        self.capabilities: dict[str, Any] = {"level": "auto"}

    def session(self, source: str, seed: int) -> FakeSession:
        script = self._script(len(self.opened), seed) if callable(self._script) else self._script
        return FakeSession(self, script, seed)

    def stats(self) -> dict[str, float]:
        return {"live": self.live, "spare": 1, "waiting": 0} | self.counters

    def events(self) -> list[Event]:
        drained, self.happened = self.happened, []
        return drained

    def drain_latencies(self) -> list[float]:
        drained, self.latencies = self.latencies, []
        return drained
