"""Programs in the style of the reference's released pools, the odd forms included.

Each comes with what wins: a function of the seed, worked out here and not by the program.
"""

from __future__ import annotations

import random

from tests.support.pool_program import PoolProgram, box
from tests.support.pool_programs_odd import ODD

# One question, checked as the reference's skeleton does it: by letters, then by math_verify. A
# docstring line was put before it, as the pools do.
SINGLE_TURN = '''"""Game: fraction sum. Skill: Mathematical Reasoning."""
import random
import re
from math_verify import parse, verify


class FractionSumEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns
        self.turn_count = 0
        self.reset()

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.a, self.b = rng.randint(1, 9), rng.randint(2, 9)
        self.turn_count = 0
        return f"What is {self.a}/{self.b} + 1? Answer as \\\\boxed{{p/q}}.", {}

    def solution(self) -> str:
        return f"{self.a + self.b}/{self.b}"

    def _check(self, text: str) -> bool:
        if text.strip() == self.solution():
            return True
        try:
            return verify(parse(self.solution()), parse(text))
        except Exception:
            return False

    def step(self, action: str):
        self.turn_count += 1
        match = re.search(r"\\\\boxed\\{(.*)\\}", action)
        if not match:
            return "Please box the answer.", 0.0, False, self.turn_count >= self.max_turns, {}
        if self._check(match.group(1)):
            return "Correct!", 1.0, True, False, {"success": True}
        truncated = self.turn_count >= self.max_turns
        shown = f" It was {self.solution()}." if truncated else ""
        return f"Not equal.{shown}", 0.0, False, truncated, {"success": False}
'''


def _fraction(seed: int) -> list[str]:
    rng = random.Random(seed)
    a, b = rng.randint(1, 9), rng.randint(2, 9)
    return [box(rf"\frac{{{2 * (a + b)}}}{{{2 * b}}}")]  # not in lowest terms: equal all the same


# Several turns, keyword-only seed, typed, with a closing and a block that runs only as a script.
TRADING = '''from __future__ import annotations
import random
from typing import Any, Dict, Tuple


class MarketTradingEnv:
    """Buy when it is cheap, sell when it is dear."""

    ACTIONS = ("buy", "sell", "wait")

    def __init__(self, max_turns: int = 6):
        self.max_turns = max_turns
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Dict[str, Any] | None = None):
        rng = random.Random(seed)
        self.prices = [rng.randint(1, 4), rng.randint(6, 9)] * 4
        self.turn, self.cash, self.held = 0, 5, 0
        return self._show("The market opens."), {}

    def _show(self, text: str) -> str:
        return (
            f"{text} Day {self.turn}, price {self.prices[self.turn]}, cash {self.cash}, "
            f"held {self.held}. Actions: {', '.join(self.ACTIONS)}. Reach 7 in cash. "
            "Answer with \\\\boxed{action}."
        )

    def step(self, action: str) -> Tuple[str, float, bool, bool, Dict[str, Any]]:
        word = action.replace("\\\\boxed{", "").rstrip("}").strip().lower()
        price = self.prices[self.turn]
        self.turn += 1
        if word == "buy" and self.cash >= price:
            self.cash, self.held, text = self.cash - price, self.held + 1, "Bought."
        elif word == "sell" and self.held:
            self.cash, self.held, text = self.cash + price, self.held - 1, "Sold."
        else:
            text = "Nothing happens."
        won = self.cash >= 7
        truncated = not won and self.turn >= self.max_turns
        return self._show(text), 1.0 if won else 0.0, won, truncated, {"turn": self.turn}

    def solution(self):
        return "\\\\boxed{buy} \\\\boxed{sell}"

    def close(self):
        self.closed = True


if __name__ == "__main__":
    raise SystemExit("only as a script")
'''

# No seed at all, a bare observation, and the global generator; nothing is imported.
NO_SEED = """class CountingEnv:
    max_turns = 3

    def reset(self):
        self.letters = [random.choice("abc") for _ in range(9)]
        self.turn = 0
        return "How many a are in " + "".join(self.letters) + "?"

    def step(self, action):
        self.turn += 1
        if not action.strip():
            return "Say something.", 0, False, self.turn >= self.max_turns, {}
        right = action == "\\\\boxed{%d}" % Counter(self.letters)["a"]
        return ("Yes." if right else "No."), int(right), True, False, {}
"""


def _counting(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [box([rng.choice("abc") for _ in range(9)].count("a"))]


# The constructor demands the limit; a base class named Env and one that is not the game.
DEMANDS_LIMIT = '''class Env:
    """What the text of the prompt calls a base class."""


class BaseGuessEnv(Env):
    def __init__(self, max_turns):
        self.max_turns = max_turns


class HotColdEnv(BaseGuessEnv):
    def __init__(self, max_turns):
        super(HotColdEnv, self).__init__(max_turns)

    def reset(self, seed=None):
        random.seed(seed)
        self.hidden, self.turn = random.randint(1, 50), 0
        return f"A number from 1 to 50, {self.max_turns} tries. \\\\boxed{{n}}", {"max": 50}

    def step(self, action):
        self.turn += 1
        digits = re.findall("[0-9]+", action)
        guess = int(digits[0]) if digits else 0
        if guess == self.hidden:
            return "Found.", 1.0, True, False, {}
        text = "higher" if guess < self.hidden else "lower"
        return text, 0.0, False, self.turn >= self.max_turns, {}
'''


def _hot_cold(seed: int) -> list[str]:
    return [box(random.Random(seed).randint(1, 50))]


# Something callable that is no class, injected names throughout, a queue and a cache.
FACTORY = """class _Maze:
    def __init__(self, size):
        self.size = size

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.walls = {(rng.randrange(self.size), rng.randrange(1, self.size)) for _ in range(3)}
        self.walls -= {(0, 0), (self.size - 1, self.size - 1)}
        rows = [
            "".join("#" if (x, y) in self.walls else "." for x in range(self.size))
            for y in range(self.size)
        ]
        self.text = "\\n".join(rows)
        return f"Shortest way from top left to bottom right, or -1?\\n{self.text}", {}

    @lru_cache(maxsize=None)
    def _steps(self, text):
        queue, seen = deque([(0, 0, 0)]), {(0, 0)}
        while queue:
            x, y, n = queue.popleft()
            if (x, y) == (self.size - 1, self.size - 1):
                return n
            for dx, dy in product((-1, 0, 1), repeat=2):
                nx, ny = x + dx, y + dy
                if abs(dx) + abs(dy) != 1 or not (0 <= nx < self.size and 0 <= ny < self.size):
                    continue
                if (nx, ny) not in self.walls and (nx, ny) not in seen:
                    seen.add((nx, ny))
                    queue.append((nx, ny, n + 1))
        return -1

    def solution(self):
        return str(self._steps(self.text))

    def step(self, action):
        right = action.strip() == "\\\\boxed{" + self.solution() + "}"
        return "done", float(right), True, False, {}


MazeEnv = functools.partial(_Maze, size=4)
"""


def _maze(seed: int) -> list[str]:
    rng, size = random.Random(seed), 4
    walls = {(rng.randrange(size), rng.randrange(1, size)) for _ in range(3)} - {(3, 3)}
    reached, steps = {(0, 0)}, 0
    while (3, 3) not in reached:
        grown = {
            (x + dx, y + dy)
            for x, y in reached
            for dx, dy in ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1))
            if 0 <= x + dx < size and 0 <= y + dy < size and (x + dx, y + dy) not in walls
        }
        if grown == reached:
            return [box(-1)]
        reached, steps = grown, steps + 1
    return [box(steps)]


# Values of other types: a fraction, integer flags, a named tuple, a subclass of str.
ODD_VALUES = """from collections import namedtuple
from fractions import Fraction

Result = namedtuple("Result", "observation reward terminated truncated info")


class Text(str):
    pass


class HalvesEnv:
    def reset(self, seed=None):
        self.n = random.Random(seed).randrange(2, 90, 2)
        return Text(f"Half of {self.n}?"), {}

    def step(self, action):
        right = action == f"\\\\boxed{{{self.n // 2}}}"
        return Result(Text("over"), Fraction(int(right)), 1, 0, OrderedDict(is_success=right))
"""

# Partial rewards on the way, which do not count; a limit far above any budget, told to the player.
LONG = """class StairsEnv:
    def __init__(self):
        self.max_turns = 100

    def reset(self, seed=None):
        self.goal, self.at, self.turn = 2 + (seed or 0) % 2, 0, 0
        return f"Climb {self.goal} stairs in {self.max_turns} turns: up or down.", {}

    def step(self, action):
        self.turn += 1
        self.at += {"\\\\boxed{up}": 1, "\\\\boxed{down}": -1}.get(action, 0)
        done = self.at >= self.goal
        reward = 1.0 if done else 0.25 * (self.at > 0)
        cut = not done and self.turn >= self.max_turns
        return f"stair {self.at}", reward, done, cut, {"progress": self.at / self.goal}
"""

PROGRAMS: dict[str, PoolProgram] = {
    "single turn, math_verify": PoolProgram(SINGLE_TURN, _fraction),
    "trading": PoolProgram(TRADING, lambda seed: [box("buy"), box("sell")]),
    "no seed": PoolProgram(NO_SEED, _counting),
    "demands limit": PoolProgram(DEMANDS_LIMIT, _hot_cold),
    "factory": PoolProgram(FACTORY, _maze),
    "odd values": PoolProgram(
        ODD_VALUES, lambda seed: [box(random.Random(seed).randrange(2, 90, 2) // 2)]
    ),
    "long": PoolProgram(LONG, lambda seed: [box("up")] * (2 + seed % 2)),
    **ODD,
}
