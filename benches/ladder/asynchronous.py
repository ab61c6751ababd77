"""The asyncio front's own rungs: what a future and a turn of the event loop add."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benches.ladder.native import PAUSE_S, SEED, policy
from benches.ladder.plan import Plan
from benches.ladder.row import Row, Unavailable, absent
from benches.ladder.workload import moves
from spade_async.sandbox import Pool, Session


async def _played(session: Session) -> None:
    reply = await session.reset() if session.loaded.ok else session.loaded
    if not reply.ok:
        raise RuntimeError(f"reset: {reply.detail}")


class Rungs:
    """One event loop and one pool for all asyncio rows."""

    def __init__(self, stack: ExitStack, plan: Plan) -> None:
        self._plan = plan
        self._runner = stack.enter_context(asyncio.Runner())
        try:
            limits = policy(spares=4, num_workers=4, warm=True)
            self.code = True
        except Unavailable:
            limits = policy(spares=4, num_workers=4, cache=False, warm=True)
            self.code = False
        self._runner.run(self._start(limits))
        stack.callback(lambda: self._runner.run(self._close()))

    async def _start(self, limits: object) -> None:
        self._pool = Pool(limits)  # type: ignore[arg-type]  # a SandboxPolicy
        await self._pool.start()
        self._session = self._pool.session(self._plan.source, SEED)
        await self._session.__aenter__()
        await _played(self._session)
        await self._rest()

    async def _close(self) -> None:
        await self._session.close()
        await self._pool.close()

    def steps(self) -> Sequence[float]:
        """Steps of one live session."""
        return self._runner.run(self._steps())

    async def _steps(self) -> list[float]:
        times = []
        for text in (moves(25) * 4)[: self._plan.steps_per_turn]:
            begun = time.perf_counter()
            reply = await self._session.step(text)
            times.append((time.perf_counter() - begun) * 1e6)
            if not reply.ok:
                raise RuntimeError(f"step: {reply.detail}")
            if reply.terminated or reply.truncated:
                await _played(self._session)
        return times

    def first_reply(self) -> Sequence[float]:
        """From the request for a worker, with spares ready, to the first observation."""
        return self._runner.run(self._first_reply())

    async def _first_reply(self) -> list[float]:
        begun = time.perf_counter()
        async with self._pool.session(self._plan.source, SEED) as session:
            await _played(session)
            taken = (time.perf_counter() - begun) * 1e6
        await self._rest()
        return [taken]

    async def _rest(self) -> None:
        """Wait until the spares are full and the ended worker is gone."""
        await asyncio.sleep(PAUSE_S)
        while self._pool.stats()["spare"] < 4:  # noqa: ASYNC110 - the pool has no event for it
            await asyncio.sleep(0.0005)
        await asyncio.sleep(PAUSE_S)


def rows(stack: ExitStack, plan: Plan) -> list[Row]:
    """The asyncio rows."""
    keys = {
        "async_us.step_hot": "asyncio front: step, hot",
        "async_us.first_reply_spare": "asyncio front: spare to first reply",
    }
    try:
        rungs = Rungs(stack, plan)
    except Unavailable as cause:
        return [absent(key, label, str(cause)) for key, label in keys.items()]
    except Exception as error:
        reason = f"failed: {type(error).__name__}: {error}"[:300]
        return [absent(key, label, reason) for key, label in keys.items()]
    takers: tuple[Callable[[], Sequence[float]], ...] = (rungs.steps, rungs.first_reply)
    return [Row(key, keys[key], take) for key, take in zip(keys, takers, strict=True)]
