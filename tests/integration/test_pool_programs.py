"""Programs in the style of released pools load unchanged, validate and are played, in the jail."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.environment.session import JailUse, open_session
from spade_async.environment.validate import validate
from spade_async.sandbox import Pool, SandboxPolicy
from spade_async.types import Reply
from tests.support.pool_program import PoolProgram
from tests.support.pool_programs import PROGRAMS

pytestmark = pytest.mark.timeout(90)
BUDGET = 8
SEED = 3


def policy(profile: str = "compute") -> SandboxPolicy:
    return SandboxPolicy(num_workers=4, spares=2, max_turns=BUDGET, profiles=(profile,))


async def play(pool: Pool, program: str, seed: int, actions: list[str]) -> list[Reply]:
    """Replies up to the end of the episode."""
    replies = []
    async with open_session(pool, program, seed, JailUse()) as session:
        assert session.loaded.ok, session.loaded
        replies.append(await session.reset())
        assert replies[0].ok, replies[0]
        for action in actions:
            replies.append(await session.step(action))
            if not replies[-1].ok or replies[-1].terminated or replies[-1].truncated:
                break
    return replies


async def check(pool: Pool, name: str, program: PoolProgram) -> None:
    report = await validate(
        pool, program.source, seed=1, num_seeds=2, max_turns=BUDGET, hint_mode="none"
    )
    assert report.rejection is None, (name, report.rejection)
    for seed in (SEED, SEED + 1, SEED + 2):
        last = (await play(pool, program.source, seed, program.wins(seed)))[-1]
        assert (last.reward, last.terminated) == (1.0, True), (name, seed, last)
    action, reward = program.lost
    assert (await play(pool, program.source, SEED, [action]))[-1].reward == reward, name


@pytest.mark.parametrize("profile", ["compute", "numpy"])
def test_each_program_validates_and_is_won_and_lost(profile: str) -> None:
    async def all_of_them() -> None:
        async with Pool(policy(profile)) as pool:
            names = [name for name, p in PROGRAMS.items() if p.profile == profile]
            assert names
            await asyncio.gather(*(check(pool, name, PROGRAMS[name]) for name in names))

    asyncio.run(all_of_them())


def last_reply(source: str, actions: list[str], seed: int = SEED) -> Reply:
    async def use() -> Reply:
        async with Pool(policy()) as pool:
            return (await play(pool, source, seed, actions))[-1]

    return asyncio.run(use())


def test_a_limit_above_the_budget_is_cut_to_it_and_told_to_the_player() -> None:
    source = PROGRAMS["long"].source
    assert "in 8 turns" in last_reply(source, []).observation
    last = last_reply(source, ["wait"] * 50)
    assert (last.truncated, last.terminated, last.reward) == (True, False, 0.0)
    assert last.observation == "stair 0"
    # Rewards on the way do not decide: it is the last one that counts.
    assert last_reply(source, [r"\boxed{up}"]).reward == 0.25


@pytest.mark.parametrize(
    ("limit", "found"),
    [("100", 8), ("5", 5), ("0", 8), ("-1", 8), ("None", 8), ("True", 8), ("'4'", 8), ("8", 8)],
)
def test_what_a_programs_own_limit_becomes(limit: str, found: int) -> None:
    source = f"""
class LimitEnv:
    max_turns = {limit}
    def reset(self, seed=None): return str(self.max_turns), {{}}
    def step(self, action): return "over", 0.0, True, False, {{}}
"""
    assert last_reply(source, []).observation == str(found)


@pytest.mark.parametrize(
    ("parameters", "observation"),
    [
        ("self, seed=None", "(7,)"),
        ("self, seed", "(7,)"),
        ("self, *, seed=None", "(7,)"),
        ("self, options=None, seed=None", "(None, 7)"),
        ("self, s", "(7,)"),
        ("self, s=None", "(7,)"),
        ("self", "()"),
        ("self, options=None", "(None,)"),
        ("self, difficulty='easy'", "('easy',)"),
    ],
)
def test_reset_gets_the_seed_in_the_form_it_takes_it(parameters: str, observation: str) -> None:
    names = [p.split("=")[0].strip() for p in parameters.split(",") if p.strip() not in ("*",)]
    shown = "".join(f"{name}, " for name in names[1:])
    source = f"""
class FormEnv:
    def reset({parameters}): return repr(({shown})), {{}}
    def step(self, action): return "over", 0.0, True, False, {{}}
"""
    assert last_reply(source, [], seed=7).observation == observation


def test_a_type_error_inside_reset_is_the_programs_own() -> None:
    source = """
class WrongEnv:
    calls = 0
    def reset(self, seed=None):
        WrongEnv.calls += 1
        return len(seed), {}
    def step(self, action): return "over", 0.0, True, False, {}
"""
    report = asyncio.run(_validated(source))
    assert report.rejection is not None
    assert report.rejection.stage == "reset"
    assert "TypeError" in report.rejection.reason


async def _validated(source: str):
    async with Pool(policy()) as pool:
        return await validate(pool, source, seed=1, max_turns=BUDGET, hint_mode="none")


def test_info_tells_of_success_and_nothing_when_it_says_nothing() -> None:
    single = PROGRAMS["single turn, math_verify"]
    assert last_reply(single.source, single.wins(SEED)).detail == "success"
    odd = PROGRAMS["odd values"]
    assert last_reply(odd.source, odd.wins(SEED)).detail == "success"
    assert last_reply(odd.source, ["x"]).detail == "no success"
    prime = PROGRAMS["guarded import"]
    assert last_reply(prime.source, prime.wins(SEED)).detail == ""


@pytest.mark.parametrize(
    ("gold", "said", "equal"),
    [
        ("1/2", "0.5", True), ("1/2", r"\\frac{2}{4}", True), ("1/2", "50%", True),
        ("1/3", "0.3333333", True), ("1/3", "0.333", False), ("1200", "1,200", True),
        ("7", r"\\boxed{7}.", True), ("(1, 2)", "(1,2)", True), ("{1,2}", "1,2", True),
        ("yes", "Yes", True), ("yes", "no", False), ("8", "2^3", True), ("8", "2**99999", False),
        ("8", "", False), ("-3", "3", False), ("1e400", "7", False), ("2", "__import__", False),
    ],
)  # fmt: skip
def test_the_stand_in_for_math_verify(gold: str, said: str, equal: bool) -> None:
    source = f"""
from math_verify import parse, verify, LatexExtractionConfig
class VerifyEnv:
    def reset(self, seed=None): return "?", {{}}
    def step(self, action):
        found = verify(parse("{gold}"), parse("{said}", [LatexExtractionConfig()]))
        return "over", found, True, False, {{}}
"""
    assert last_reply(source, ["go"]).reward == float(equal)
