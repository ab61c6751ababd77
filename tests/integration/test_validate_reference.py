"""The reference's checks in the jail: what it accepts, and the name of each rejection."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.environment.session import JailUse
from spade_async.environment.validate import ValidationReport
from spade_async.environment.validate_reference import validate_as_the_reference
from spade_async.sandbox import Pool, SandboxPolicy
from tests.support import environments
from tests.support.pool_programs import PROGRAMS

pytestmark = pytest.mark.timeout(90)

# What it accepts and ours does not (2.5).
ALWAYS_WINS = """
class WinEnv:
    def reset(self, seed=None): return "hello", {}
    def step(self, action): return "won", 1.0, True, False, {}
"""
ACCEPTED = [
    ALWAYS_WINS,
    environments.NEVER_ENDS,
    environments.FROM_URANDOM,
    environments.NO_HINT,
    environments.LEAKING,
    *(p.source for p in PROGRAMS.values() if p.profile == "compute"),
]
REJECTED = {
    "no game code": "  \n",
    "syntax error": environments.SYNTAX_ERROR,
    "execution error": environments.LOADING_RAISES,
    "no valid class": environments.NO_CLASS,
    "instantiation error": "class AEnv:\n    def __init__(self): 1 / 0\n",
    "missing method": "class AEnv:\n    def step(self, action): pass\n",
    "reset failed": environments.RESET_RAISES,
    "step failed on action 0": environments.WRONG_TUPLE,
    "step failed on action 1": environments.MULTI_TURN.replace(
        "self.turn += 1", "self.turn += 1; assert self.turn < 2"
    ),
    "second reset failed": environments.GOOD.replace(
        "rng = random.Random(seed)", "rng = random.Random(seed); assert seed != 123"
    ),
}


def reports(sources: list[str]) -> list[ValidationReport]:
    async def use() -> list[ValidationReport]:
        async with Pool(SandboxPolicy(num_workers=4, spares=2, max_turns=8)) as pool:
            tasks = [validate_as_the_reference(pool, s, use=JailUse()) for s in sources]
            return list(await asyncio.gather(*tasks))

    return asyncio.run(use())


def test_it_accepts_what_runs() -> None:
    for report in reports(ACCEPTED):
        assert report.rejection is None, (report.rejection, report.source)
        assert set(report.jail.outcomes) == {"finished"}


def test_each_rejection_has_the_references_name() -> None:
    found = reports(list(REJECTED.values()))
    names = [r.rejection.reason.split(":")[0] if r.rejection else None for r in found]
    assert names == list(REJECTED)


def test_braces_are_repaired_by_its_rule_damage_included() -> None:
    faulty = environments.GOOD.replace('"over"', 'f"{self.a!r} {no number}"')
    (report,) = reports([faulty])
    assert report.rejection is None
    assert report.repairs == ("braces",)
    # Errata: the valid field on the same line is doubled as well.
    assert 'f"{{self.a!r}} {{no number}}"' in report.source
