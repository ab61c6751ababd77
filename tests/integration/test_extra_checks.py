"""The further checks of a program, in the jail: what each rejects and what it must let pass."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.config.contract import ContractConfig
from spade_async.environment.validate import ValidationReport, validate
from spade_async.sandbox import Pool, SandboxPolicy
from spade_async.types import Stage
from tests.support import environments
from tests.support.pool_programs import PROGRAMS

pytestmark = pytest.mark.timeout(90)
TURNS = 6
POLICY = SandboxPolicy(num_workers=4, spares=2, max_turns=TURNS)


def reports(
    sources: list[str], rules: ContractConfig | None, profile: str = "compute"
) -> list[ValidationReport]:
    async def use() -> list[ValidationReport]:
        policy = SandboxPolicy(num_workers=4, spares=2, max_turns=TURNS, profiles=(profile,))
        async with Pool(policy) as pool:
            work = (
                validate(pool, s, seed=4, max_turns=TURNS, hint_mode="none", rules=rules)
                for s in sources
            )
            return list(await asyncio.gather(*work))

    return asyncio.run(use())


HEAD = "import random\n\nclass TrialEnv:\n"
SAME_INSTANCE = (
    HEAD
    + """
    def reset(self, seed=None):
        self.answer = 17
        return "What is 8 + 9?", {}
    def step(self, action):
        return "over", float("17" in action), True, False, {}
"""
)
HIDDEN = (
    HEAD
    + """
    def reset(self, seed=None):
        self.code, self.turn = "%04d" % random.Random(seed).randrange(10_000), 0
        return "Guess my code of four digits.", {}
    def step(self, action):
        self.turn += 1
        guess = action.replace("\\\\boxed{", "").replace("}", "")
        if len(guess) != 4:
            return "Four digits!", 0.0, False, self.turn >= 3, {}
        right = sum(a == b for a, b in zip(guess, self.code))
        return f"{right} in place", float(right == 4), right == 4, self.turn >= 3, {}
"""
)
DEAF = (
    HEAD
    + """
    def reset(self, seed=None):
        self.n, self.turn = random.Random(seed).random(), 0
        return f"Say anything {self.n}", {}
    def step(self, action):
        self.turn += 1
        return f"turn {self.turn}", 0.0, False, self.turn >= 4, {}
"""
)
GIVEN_AWAY = (
    HEAD
    + """
    def reset(self, seed=None):
        self.n = random.Random(seed).random()
        return f"Say anything {self.n}", {}
    def step(self, action):
        return "well done", 1.0, True, False, {}
"""
)
COIN = (
    HEAD
    + """
    def reset(self, seed=None):
        self.side = random.Random(seed).choice(["heads", "tails"])
        self.n = seed
        return f"heads or tails? {'x' * (self.n % 7)}", {}
    def step(self, action):
        return "over", float(self.side in action), True, False, {}
"""
)
RARELY_RAISES = (
    HEAD
    + """
    def reset(self, seed=None):
        self.n, self.turn = random.Random(seed).randint(1, 9), 0
        return f"Divide {self.n} by? You may say 'nothing'.", {}
    def step(self, action):
        self.turn += 1
        word = action.replace("\\\\boxed{", "").replace("}", "")
        if word.isdigit() and int(word) > 42:
            self.n / 0
        return word, 0.0, False, self.turn >= 3, {}
"""
)
WRONG_SOLUTION = (
    environments.GOOD
    + """
    def solution(self):
        return str(self.a - self.b - 1000)
"""
)
RIGHT_SOLUTION = (
    environments.GOOD.replace("action.strip()", r"action[7:-1].strip()")
    + """
    def solution(self):
        return str(self.a + self.b)
"""
)
PROSE = (
    environments.GOOD
    + """
    def solution(self):
        return "Add the two numbers that you were shown and say the sum."
"""
)
RAISES = (
    environments.GOOD
    + """
    def solution(self):
        raise NotImplementedError
"""
)
UNSPEAKABLE = (
    environments.GOOD
    + r"""
    def solution(self):
        return '["\\ud800"]' if self.a % 2 else "\ud800"
"""
)
PLAN = PROGRAMS["trading"].source
WRONG_PLAN = PLAN.replace('"\\\\boxed{buy} \\\\boxed{sell}"', '"\\\\boxed{sell} \\\\boxed{buy}"')
NEEDS = "import networkx\n" + environments.GOOD
NEEDS_LATER = environments.GOOD.replace('return "over"', 'import requests; return "over"')

REJECTED = {
    "diversity": [SAME_INSTANCE],
    "reaction": [DEAF],
    "random_play": [GIVEN_AWAY, COIN],
    "solution": [WRONG_SOLUTION, WRONG_PLAN],
}
PASS = [
    HIDDEN, RIGHT_SOLUTION, PROSE, RAISES, UNSPEAKABLE, PLAN, environments.GOOD,
    *(PROGRAMS[n].source for n in ("single turn, math_verify", "demands limit", "factory",
                                   "aliased", "helpers", "guarded import")),
]  # fmt: skip


def test_each_check_rejects_what_it_is_for() -> None:
    assert WRONG_PLAN != PLAN
    cases = [(stage, source) for stage, sources in REJECTED.items() for source in sources]
    found = reports([source for _, source in cases], ContractConfig())
    got = [r.rejection.stage.value if r.rejection else None for r in found]
    assert got == [stage for stage, _ in cases]
    for report in found:
        assert report.num_turns is None
        assert report.rejection is not None
        assert "\n" not in report.rejection.reason
    # Nothing of it is asked unless it is said so.
    assert all(r.rejection is None for r in reports([s for _, s in cases], None))


def test_good_programs_pass_them_all() -> None:
    for report, source in zip(reports(PASS, ContractConfig()), PASS, strict=True):
        assert report.rejection is None, (report.rejection, source)
    stages = [s.stage for s in reports([RIGHT_SOLUTION], ContractConfig())[0].stages]
    assert stages[-5:] == [
        Stage.IMPORTS, Stage.DIVERSITY, Stage.REACTION, Stage.RANDOM_PLAY, Stage.SOLUTION,
    ]  # fmt: skip
    (numpy,) = reports([PROGRAMS["numpy"].source], ContractConfig(), "numpy")
    assert numpy.rejection is None


def test_details_say_what_was_judged_and_what_was_not() -> None:
    details = {
        name: {s.stage: s.detail for s in report.stages}
        for name, report in zip(
            ("right", "prose", "raises", "plan", "hidden"),
            reports([RIGHT_SOLUTION, PROSE, RAISES, PLAN, HIDDEN], ContractConfig()),
            strict=True,
        )
    }
    assert details["right"][Stage.SOLUTION] == "it wins 3 of 3 instances"
    assert details["plan"][Stage.SOLUTION] == "it wins 3 of 3 instances"
    assert details["prose"][Stage.SOLUTION] == "it cannot be read: not judged"
    assert details["raises"][Stage.SOLUTION] == "it cannot be read: not judged"
    assert details["right"][Stage.REACTION] == "episodes of one step: not judged"
    assert details["hidden"][Stage.DIVERSITY] == "states differ by seed"


def test_a_fault_on_an_odd_action_is_the_programs_fault_at_its_stage() -> None:
    (report,) = reports([RARELY_RAISES], ContractConfig())
    assert report.rejection is not None
    assert report.rejection.stage is Stage.STEP
    assert "ZeroDivisionError" in report.rejection.reason


def test_imports_that_are_not_there_are_found_before_they_are_reached() -> None:
    late, early = reports([NEEDS_LATER.replace("return", "return ", 1), NEEDS], ContractConfig())
    assert late.rejection is not None
    assert early.rejection is not None
    assert early.rejection.stage is Stage.LOAD
    unreached = environments.GOOD.replace(
        "def hint(self):", "def extra(self):\n        import requests\n\n    def hint(self):"
    )
    (found,) = reports([unreached], ContractConfig())
    assert found.rejection is not None
    assert found.rejection.stage is Stage.IMPORTS
    assert found.rejection.reason == "imports requests, which the jail does not have"


def test_a_list_of_imports_is_a_policy() -> None:
    rules = ContractConfig(checks=("imports",), imports=("random", "math"))
    fine, refused = reports([environments.GOOD, "import os\n" + environments.GOOD], rules)
    assert fine.rejection is None
    assert refused.rejection is not None
    assert refused.rejection.reason == "imports os, which contract.imports does not list"


def test_a_text_that_does_not_parse_is_repaired_marked_and_judged() -> None:
    faulty = environments.GOOD.replace('"over"', 'f"it was {no number}"')
    repaired, left = reports([faulty], ContractConfig()) + reports([faulty], None)
    assert repaired.rejection is None
    assert repaired.repairs == ("braces",)
    assert "{{no number}}" in repaired.source
    assert left.rejection is not None
    assert left.rejection.stage is Stage.LOAD
    (off,) = reports([faulty], ContractConfig(repair="off"))
    assert off.rejection is not None
    (whole,) = reports([environments.GOOD], ContractConfig())
    assert whole.repairs == ()


def test_what_the_checks_cost_is_stated() -> None:
    """Calls into the jail: load, reset and step in two workers, then the checks of each kind."""
    none, plays, solved = (
        reports([source], rules)[0].jail.calls
        for source, rules in (
            (environments.GOOD, ContractConfig(checks=())),
            (environments.GOOD, ContractConfig(checks=("random_play",))),
            (RIGHT_SOLUTION, ContractConfig(checks=("solution",))),
        )
    )
    assert none == 6
    # One load, then 20 episodes of a reset and one step.
    assert plays - none == 1 + 20 * 2
    # One load, then on 3 instances: reset, what it says, reset, step.
    assert solved - none == 1 + 3 * 4
