"""A jail for scripted programs that runs nothing: it answers what the program would.

For scripted runs with `scripted.jail = false`. It never sees code of a model: a scripted engine
says only programs of its own. A text that is none of them is the trusted program of
`generator.health`, and is answered like a valid one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from spade_async.engine.scripted_programs import RIGHT, Program, ProgramRun
from spade_async.sandbox_policy import SandboxPolicy
from spade_async.sandbox_records import Event
from spade_async.types import CallReport, Outcome, Reply

_REPORT = CallReport(0.0, 0.0)


class ScriptedJail:
    """The part of `sandbox.Pool` that a generator uses."""

    def __init__(self, policy: SandboxPolicy) -> None:
        self.policy = policy
        self.live = 0
        self.capabilities: dict[str, Any] = {"level": "scripted", "layers": {}}

    async def __aenter__(self) -> ScriptedJail:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None

    def session(self, source: str, seed: int) -> ScriptedSession:
        """See `Pool.session`."""
        return ScriptedSession(self, Program.of_source(source), seed)

    def stats(self) -> dict[str, float]:
        """Gauges as in `Pool.stats`; nothing ever waits."""
        return {"live": float(self.live), "spare": 0.0, "waiting": 0.0}

    def drain_latencies(self) -> list[float]:
        """No call takes time."""
        return []

    def events(self) -> list[Event]:
        """Nothing happens."""
        return []


class ScriptedSession:
    """One program with one instance seed."""

    def __init__(self, jail: ScriptedJail, program: Program | None, seed: int) -> None:
        self._jail = jail
        program = program or Program(0)
        self._program = program
        self._fault = program.fault
        self._run = ProgramRun(program, seed)
        self.loaded = (
            Reply(Outcome.EXCEPTION, detail="RuntimeError: scripted", report=_REPORT)
            if self._fault == "load"
            else _reply("")
        )

    async def __aenter__(self) -> ScriptedSession:
        self._jail.live += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self._jail.live -= 1

    async def reset(self, seed: int | None = None, *, unseeded: bool = False) -> Reply:
        """See `JailSession.reset`; its programs have no instance of their own without a seed."""
        del unseeded
        if seed is not None:
            self._run = ProgramRun(self._program, seed)
        if self._fault == "reset":
            return Reply(Outcome.EXCEPTION, detail="KeyError: scripted", report=_REPORT)
        return _reply(self._run.reset())

    async def step(self, action: str) -> Reply:
        """See `JailSession.step`; a stuck program ends at the wall limit, as in the jail."""
        if self._fault == "stuck" and action == RIGHT:
            limit_s = self._jail.policy.wall_s_per_call
            await asyncio.sleep(limit_s)
            return Reply(Outcome.TIMED_OUT, detail="wall", report=CallReport(limit_s, limit_s))
        observation, reward, terminated = self._run.step(action)
        return _reply(observation, reward, terminated)

    async def hint(self) -> Reply:
        """See `JailSession.hint`."""
        return _reply(self._run.HINT)


def _reply(observation: str, reward: float | None = None, terminated: bool = False) -> Reply:
    return Reply(Outcome.FINISHED, observation, reward, terminated=terminated, report=_REPORT)
