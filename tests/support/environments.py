"""Programs in the games contract, good and bad. Only ever run in the jail."""

from __future__ import annotations

GOOD = """
import random

class SumEnv:
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.a, self.b = rng.randint(2, 99), rng.randint(2, 99)
        return f"{self.a} + {self.b} = ?", {}

    def step(self, action):
        return "over", float(action.strip() == str(self.a + self.b)), True, False, {}

    def hint(self):
        return f"begin with {self.a // 10} tens"
"""

LEAKING = GOOD.replace('f"begin with {self.a // 10} tens"', 'f"say {self.a + self.b}"')

MULTI_TURN = """
import random

class GuessEnv:
    def reset(self, seed=None):
        self.hidden = random.Random(seed).randint(0, 7)
        self.turn = 0
        return "a number from 0 to 7", {}

    def step(self, action):
        self.turn += 1
        guess = int(action) if action.strip().isdigit() else -1
        won = guess == self.hidden
        text = "yes" if won else "higher" if guess < self.hidden else "lower"
        return text, float(won), won, not won and self.turn >= 3, {}

    def hint(self):
        return "halve what is left"
"""

SYNTAX_ERROR = "class BrokenEnv\n    pass\n"
NO_CLASS = "x = 1\n"
LOADING_RAISES = "raise RuntimeError('no')\n" + GOOD
RESET_RAISES = GOOD.replace("rng = random.Random(seed)", "raise KeyError('seed')")
EMPTY_OBSERVATION = GOOD.replace('f"{self.a} + {self.b} = ?"', '"  "')
WRONG_TUPLE = GOOD.replace('"over", ', "")
STEP_RAISES = GOOD.replace('return "over"', 'int(action); return "over"')
NAN_REWARD = GOOD.replace("float(action.strip() == str(self.a + self.b))", 'float("nan")')
HUGE_REWARD = GOOD.replace("float(action.strip() == str(self.a + self.b))", "11.0")
TEXT_REWARD = GOOD.replace("float(action.strip() == str(self.a + self.b))", '"1"')
FROM_URANDOM = GOOD.replace(
    "rng = random.Random(seed)", "import os; rng = random.Random(os.urandom(8))"
)
FROM_TIME = GOOD.replace(
    "rng = random.Random(seed)", "import time; rng = random.Random(time.perf_counter_ns())"
)
NEVER_ENDS = GOOD.replace("True, False, {}", "False, False, {}")
STEP_HANGS = GOOD.replace('return "over"', 'exec("while True: pass"); return "over"')
RESET_HANGS = GOOD.replace("rng = random.Random(seed)", "while True: pass")
NO_HINT = GOOD[: GOOD.index("    def hint")]
HINT_RAISES = GOOD.replace("self.a // 10", "self.a // 0")
EMPTY_HINT = GOOD.replace('f"begin with {self.a // 10} tens"', '" "')
LONG_HINT = GOOD.replace('f"begin with {self.a // 10} tens"', '"x" * 5000')
HINT_CHANGES_THE_GAME = MULTI_TURN.replace(
    'return "halve what is left"', 'self.hidden = 0; return "say nought"'
)

REJECTED: dict[str, tuple[str, str]] = {
    "syntax error": (SYNTAX_ERROR, "load"),
    "no class": (NO_CLASS, "load"),
    "loading raises": (LOADING_RAISES, "load"),
    "reset raises": (RESET_RAISES, "reset"),
    "reset hangs": (RESET_HANGS, "reset"),
    "empty observation": (EMPTY_OBSERVATION, "reset"),
    "wrong tuple": (WRONG_TUPLE, "step"),
    "step raises": (STEP_RAISES, "step"),
    "step hangs": (STEP_HANGS, "step"),
    "from urandom": (FROM_URANDOM, "determinism"),
    "from the clock": (FROM_TIME, "determinism"),
    "never ends": (NEVER_ENDS, "termination"),
    "NaN reward": (NAN_REWARD, "reward"),
    "reward out of range": (HUGE_REWARD, "reward"),
    "reward is text": (TEXT_REWARD, "reward"),
    "no hint": (NO_HINT, "hint"),
    "hint raises": (HINT_RAISES, "hint"),
    "empty hint": (EMPTY_HINT, "hint"),
    "long hint": (LONG_HINT, "hint"),
}
"""Name -> (program, stage at which validation rejects it)."""
