"""Further checks of a program that can run (design step 3; SPADE reference 2.7).

imports, diversity, reaction, random_play, solution: which of them are on is `contract.checks`. They
share their plays: one worker plays at random, one more is asked only where that leaves a doubt or a
solution is there to be tried. A program is rejected on evidence alone, never for want of it.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from spade_async.config.contract import ContractConfig
from spade_async.environment.contract import probe_action
from spade_async.environment.harness import Told, tell, with_harness
from spade_async.environment.inspector import inspect
from spade_async.environment.random_play import (
    RandomPlays,
    boxed,
    options,
    play_at_random,
    words,
)
from spade_async.environment.session import Jail, JailUse, MeteredSession, open_session
from spade_async.environment.solution import Reading, read_solution
from spade_async.environment.stages import StageResult
from spade_async.environment.text import one_line
from spade_async.seeds import derive
from spade_async.types import Outcome, Stage

FEW_PLAYS = 4
"""Random episodes when only differences are wanted: two instances, twice each."""
NUM_STATES = 4
"""Instances whose states are compared."""
NUM_ACTIONS = 32
"""Different actions whose effects on one instance are compared, at most."""
NUM_SOLVED = 3
"""Instances on which a solution is tried."""

_IMPORTS = re.compile(r"\bimport\b|__import__|import_module")
_SOLUTION = re.compile(r"\bdef[ \t]+solution\b")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is checked, and how."""

    pool: Jail
    source: str
    rules: ContractConfig
    seed: int
    max_turns: int
    single_turn: bool
    """Whether the probed episodes ended after one step."""
    use: JailUse


async def extra_checks(subject: Subject) -> list[StageResult]:
    """Results in the order of stages, up to the first that is not ok.

    Raises:
        SandboxError: the jail failed.
    """
    results: list[StageResult] = []
    checks = subject.rules.checks
    if "imports" in checks and _IMPORTS.search(subject.source):
        results.append(await _imports(subject))
        if not results[-1].ok:
            return results
    if {"diversity", "reaction", "random_play"} & set(checks):
        results += await _played(subject)
        if not results[-1].ok:
            return results
    if "solution" in checks and _SOLUTION.search(subject.source):
        results.append(await _solution(subject))
    return results


async def _imports(subject: Subject) -> StageResult:
    before_s = subject.use.wall_s
    found = await inspect(subject.pool, subject.source, use=subject.use)
    seconds = subject.use.wall_s - before_s
    if found is None:
        return StageResult(Stage.IMPORTS, True, "the text could not be read", seconds)
    listed = subject.rules.imports
    unlisted = [n for n in found.imports if listed and n.split(".")[0] not in listed]
    if unlisted:
        detail = f"imports {_names(unlisted)}, which contract.imports does not list"
        return StageResult(Stage.IMPORTS, False, detail, seconds)
    if found.missing:
        detail = f"imports {_names(found.missing)}, which the jail does not have"
        return StageResult(Stage.IMPORTS, False, detail, seconds)
    detail = f"imports {_names(found.imports)}" if found.imports else "imports nothing"
    return StageResult(Stage.IMPORTS, True, detail, seconds)


def _names(names: tuple[str, ...] | list[str]) -> str:
    return one_line(", ".join(names[:8]) + (" ..." if len(names) > 8 else ""), 300)


async def _played(subject: Subject) -> list[StageResult]:
    rules = subject.rules
    is_bounded = "random_play" in rules.checks
    plays = await play_at_random(
        subject.pool,
        subject.source,
        seed=subject.seed,
        num_episodes=rules.random_plays if is_bounded else FEW_PLAYS,
        max_turns=subject.max_turns,
        use=subject.use,
    )
    if plays.bad is not None:
        return [_failed(plays)]
    results: list[StageResult] = []
    if "diversity" in rules.checks:
        results.append(await _diversity(subject, plays))
    if "reaction" in rules.checks and all(r.ok for r in results):
        results.append(await _reaction(subject, plays))
    if is_bounded and all(r.ok for r in results):
        success = plays.success
        if success is None:
            detail, is_ok = "no episode of random actions came to its end", True
        else:
            is_ok = success <= rules.random_success
            detail = (
                f"random actions won {success:.0%} of {len(plays.episodes)} episodes"
                f"{'' if is_ok else f', more than {rules.random_success:.0%}'}"
            )
        results.append(StageResult(Stage.RANDOM_PLAY, is_ok, detail, plays.wall_s))
    return results


def _failed(plays: RandomPlays) -> StageResult:
    """A program that fails on odd actions is at fault like one that fails on the probes."""
    assert plays.bad is not None
    action = plays.episodes[-1].actions[-1:] if plays.episodes else []
    what = f"step with {action[0]!r}" if action else "reset"
    if plays.reward_fault is not None:
        detail = one_line(f"{what}: {plays.reward_fault}", 400)
        return StageResult(Stage.REWARD, False, detail, plays.wall_s, Outcome.BAD_VALUE)
    cause = one_line(plays.bad.detail, 300) or "no detail"
    stage = Stage.STEP if action else Stage.RESET
    detail = f"{what}: {plays.bad.outcome.value}: {cause}"
    return StageResult(stage, False, one_line(detail, 500), plays.wall_s, plays.bad.outcome)


async def _diversity(subject: Subject, plays: RandomPlays) -> StageResult:
    if plays.seeds_differ:
        return StageResult(Stage.DIVERSITY, True, "first observations differ by seed", 0.0)
    before_s = subject.use.wall_s
    found: set[tuple[object, Told | None]] = set()
    async with _harnessed(subject) as session:
        for index in range(NUM_STATES if session.loaded.ok else 0):
            first = await session.reset(derive(subject.seed, "states", index))
            found.add(((first.outcome, first.observation), await tell(session)))
    seconds = subject.use.wall_s - before_s
    if len(found) == 1 and next(iter(found))[1] is not None:
        detail = f"{NUM_STATES} seeds gave the same instance, in its state as well"
        return StageResult(Stage.DIVERSITY, False, detail, seconds)
    return StageResult(Stage.DIVERSITY, True, "states differ by seed", seconds)


async def _reaction(subject: Subject, plays: RandomPlays) -> StageResult:
    matters = plays.actions_matter
    if matters is None:
        return StageResult(Stage.REACTION, True, "episodes of one step: not judged", 0.0)
    if matters:
        return StageResult(Stage.REACTION, True, "answers differ by action", 0.0)
    before_s = subject.use.wall_s
    first = plays.episodes[0].first
    offered = [boxed(text) for text in (*options(first), *words(first))]
    tried = list(dict.fromkeys((*map(probe_action, range(3)), *offered)))[:NUM_ACTIONS]
    found: set[tuple[object, Told | None]] = set()
    async with _harnessed(subject) as session:
        for action in tried if session.loaded.ok else []:
            await session.reset(derive(subject.seed, "reaction"))
            reply = await session.step(action)
            found.add(((reply.outcome, reply.observation, reply.reward), await tell(session)))
    seconds = subject.use.wall_s - before_s
    if len(found) == 1 and next(iter(found))[1] is not None:
        detail = f"{len(tried)} different actions had the same effect, on its state as well"
        return StageResult(Stage.REACTION, False, detail, seconds)
    return StageResult(Stage.REACTION, True, "states differ by action", seconds)


async def _solution(subject: Subject) -> StageResult:
    before_s = subject.use.wall_s
    won = 0
    async with _harnessed(subject) as session:
        for index in range(NUM_SOLVED if session.loaded.ok else 0):
            seed = derive(subject.seed, "solution", index)
            if not (await session.reset(seed)).ok:
                break
            told = await tell(session)
            if told is None or told.solution is None:
                break
            reading = read_solution(told.solution, single_turn=subject.single_turn)
            if await _wins(session, seed, reading, subject.max_turns):
                won += 1
            elif reading.is_certain or won:
                seconds = subject.use.wall_s - before_s
                detail = one_line(f"solution() {told.solution!r} does not win its instance", 300)
                return StageResult(Stage.SOLUTION, False, detail, seconds)
            else:
                break
    detail = f"it wins {won} of {NUM_SOLVED} instances" if won else "it cannot be read: not judged"
    return StageResult(Stage.SOLUTION, True, detail, subject.use.wall_s - before_s)


async def _wins(session: MeteredSession, seed: int, reading: Reading, max_turns: int) -> bool:
    for way in reading.ways:
        if not (await session.reset(seed)).ok:
            return False
        for action in way[:max_turns]:
            reply = await session.step(action)
            if not reply.ok or reply.terminated or reply.truncated:
                if reply.ok and reply.terminated and (reply.reward or 0.0) > 0.0:
                    return True
                break
    return False


def _harnessed(subject: Subject) -> AbstractAsyncContextManager[MeteredSession]:
    source = with_harness(subject.source)
    return open_session(subject.pool, source, derive(subject.seed, "harness"), subject.use)
