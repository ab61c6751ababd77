"""Programs of a scripted run: a number says everything about one, so a reply can carry it.

The text is a real environment that the jail can run; `scripted_jail` reads the same facts from its
comment without running anything. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NUM_NAMES = 1000
"""Different class names, and so skeletons."""
MAX_TURNS = 64
FAULTS = ("", "load", "reset", "stuck", "long")
"""What is wrong with a program. "" nothing; "load", "reset": rejected at that stage; "stuck":
valid, but the right action never returns; "long": valid, but its observation fits no context."""
RIGHT, WRONG = "right", "wrong"
"""The two actions an agent of a scripted run takes; RIGHT is paid 1."""
LONG_WORDS = 6_000

_FACTS = re.compile(r"# scripted: turns=(\d+) fault=(\w*)\n")
_NAME = re.compile(r"^class Game(\d+)Env", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
    """Facts of one program."""

    name: int
    """In [0, NUM_NAMES)."""
    turns: int = 1
    """Steps until it terminates, in [1, MAX_TURNS]."""
    fault: str = ""
    """One of FAULTS."""

    @property
    def code(self) -> int:
        """The program as one non-negative number."""
        return (FAULTS.index(self.fault) * MAX_TURNS + self.turns - 1) * NUM_NAMES + self.name

    @classmethod
    def of_code(cls, code: int) -> Program:
        """Inverse of `code`."""
        rest, name = divmod(code, NUM_NAMES)
        fault, turns = divmod(rest, MAX_TURNS)
        return cls(name, turns + 1, FAULTS[fault])

    @classmethod
    def of_source(cls, source: str) -> Program | None:
        """The facts in a program's text; None when it is not one of these."""
        facts, name = _FACTS.search(source), _NAME.search(source)
        if facts is None or name is None:
            return None
        return cls(int(name[1]), int(facts[1]), facts[2])

    @property
    def source(self) -> str:
        """The program's text."""
        return _SOURCE.format(
            name=self.name,
            turns=self.turns,
            fault=self.fault,
            load="raise RuntimeError('scripted')\n" if self.fault == "load" else "",
            reset="raise KeyError('scripted')" if self.fault == "reset" else "self.turn = 0",
            words=f' + " word" * {LONG_WORDS}' if self.fault == "long" else "",
            stuck=f'while action == "{RIGHT}":\n            pass' if self.fault == "stuck" else "",
            right=RIGHT,
        )


_SOURCE = """\
# scripted: turns={turns} fault={fault}
{load}class Game{name}Env:
    def reset(self, seed=None):
        {reset}
        return f"instance {{seed}}"{words}, {{}}

    def step(self, action):
        {stuck}
        self.turn += 1
        done = self.turn >= {turns}
        return ("over" if done else "go on"), float(action == "{right}"), done, False, {{}}

    def hint(self):
        return "take the way that is not the left one"
"""


class ProgramRun:
    """What a program answers, without running it; the jail gives the same."""

    HINT = "take the way that is not the left one"

    def __init__(self, program: Program, seed: int) -> None:
        self._program = program
        self._seed = seed
        self._turn = 0

    def reset(self) -> str:
        """First observation."""
        self._turn = 0
        words = " word" * LONG_WORDS if self._program.fault == "long" else ""
        return f"instance {self._seed}{words}"

    def step(self, action: str) -> tuple[str, float, bool]:
        """Observation, reward, terminated."""
        self._turn += 1
        done = self._turn >= self._program.turns
        return ("over" if done else "go on"), float(action == RIGHT), done
