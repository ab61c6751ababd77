"""Play one instance of a draft with probe actions and keep every reply (design step 3).

Nothing is judged here: a `ProbeRun` is the raw material of `validate.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spade_async.environment import contract
from spade_async.environment.session import Jail, JailUse, open_session
from spade_async.types import Outcome, Reply


@dataclass(slots=True)
class ProbeRun:
    """Replies of one worker for one instance, in call order; stops at the first bad one."""

    load: Reply
    reset: Reply | None = None
    hint: Reply | None = None
    """Asked for between reset and the first step, as an episode does. A hint that raises does not
    stop the run."""
    steps: list[Reply] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the program ended the episode by itself."""
        return bool(self.steps) and (self.steps[-1].terminated or self.steps[-1].truncated)

    @property
    def broken(self) -> bool:
        """Whether a reply other than the hint was bad, so that the run says no more."""
        replies = [r for r in (self.load, self.reset, *self.steps) if r is not None]
        return not all(r.ok for r in replies) or self.reward_fault is not None

    @property
    def reward_fault(self) -> str | None:
        """What is wrong with the last step's reward, or None."""
        if not self.steps:
            return None
        last = self.steps[-1]
        if last.outcome is Outcome.BAD_VALUE and "reward" in last.detail.lower():
            return last.detail
        return contract.reward_problem(last.reward) if last.ok else None

    def facts(self) -> Iterator[tuple[str, tuple[object, ...]]]:
        """What must be equal in another worker: (name of the call, its values)."""
        calls: list[tuple[str, Reply | None]] = [
            ("load", self.load),
            ("reset", self.reset),
            ("hint", self.hint),
            *((f"step {i + 1}", reply) for i, reply in enumerate(self.steps)),
        ]
        for name, reply in calls:
            if reply is not None:
                values = (reply.outcome, reply.observation, reply.reward)
                yield name, (*values, reply.terminated, reply.truncated)


async def probe(
    pool: Jail,
    source: str,
    instance: int,
    *,
    offset: int,
    max_turns: int,
    with_hint: bool,
    use: JailUse,
) -> ProbeRun:
    """Play instance seed `instance` in a fresh worker; `offset` picks the first probe action.

    Raises:
        SandboxError: the jail failed.
    """
    async with open_session(pool, source, instance, use) as session:
        run = ProbeRun(session.loaded)
        if not run.load.ok:
            return run
        run.reset = await session.reset()
        if not run.reset.ok:
            return run
        if with_hint:
            run.hint = await session.hint()
            if run.hint.outcome not in (Outcome.FINISHED, Outcome.EXCEPTION, Outcome.BAD_VALUE):
                return run
        for turn in range(contract.probe_turns(max_turns)):
            action = contract.probe_action(turn, offset)
            run.actions.append(action)
            run.steps.append(await session.step(action))
            if run.broken or run.ended:
                break
        return run
