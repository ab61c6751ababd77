"""Finds out whether engine and jail still work, after a sample went missing by our own fault.

One missing sample is a fact to record; a dead part must end the process, or every later sample
would be missing as well. Both are told apart by trying, not by reading the fault's text.
"""

from __future__ import annotations

import asyncio

from spade_async.agent.episode import Player
from spade_async.environment.session import JailUse, open_session
from spade_async.errors import GenerationError, ProcessFailure, SandboxError, SpadeError

_TRUSTED_SOURCE = """
class HealthEnv:
    def reset(self, seed=None):
        return "ready", {}
    def step(self, action):
        return "done", 1.0, True, False, {}
"""
_LIMIT_S = 30.0


async def check(player: Player) -> None:
    """Return when engine and jail answer.

    Raises:
        ProcessFailure: one of them is dead; says which, why and what to do.
    """
    await _try(GenerationError, "the engine is dead", _engine(player), "see the log above")
    await _try(SandboxError, "the jail is dead", _jail(player), "run spade-async doctor")


async def _engine(player: Player) -> None:
    token = player.tokens.stop_token_ids[0]
    await player.engine.score([token, token], 1.0)


async def _jail(player: Player) -> None:
    async with open_session(player.pool, _TRUSTED_SOURCE, 0, JailUse()) as session:
        for reply in (session.loaded, await session.reset(), await session.step("x")):
            if not reply.ok:
                raise SandboxError(
                    f"a trusted program ended as {reply.outcome.value}: {reply.detail}"
                )


async def _try(kind: type[SpadeError], what: str, probe: object, remedy: str) -> None:
    assert asyncio.iscoroutine(probe)
    try:
        async with asyncio.timeout(_LIMIT_S):
            await probe
    except TimeoutError as cause:
        raise ProcessFailure(f"{what}: no answer in {_LIMIT_S:g} s; {remedy}") from cause
    except kind as cause:
        raise ProcessFailure(f"{what}: {cause}; {remedy}") from cause
