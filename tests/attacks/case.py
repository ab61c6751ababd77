"""One attack: what untrusted code does, and what must come of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent, indent

import pytest
from _pytest.mark.structures import ParameterSet

from spade_async.types import Outcome, Reply

FINISHED, EXCEPTION, BAD_VALUE = Outcome.FINISHED, Outcome.EXCEPTION, Outcome.BAD_VALUE
TIMED_OUT, OVER_MEMORY, OVER_OUTPUT = Outcome.TIMED_OUT, Outcome.OVER_MEMORY, Outcome.OVER_OUTPUT
REFUSED, CRASHED = Outcome.REFUSED_CALL, Outcome.CRASHED
VIOLATION = Outcome.PROTOCOL_VIOLATION

HELD = "held"
"""What an attack returns when each of its attempts was refused; anything else says what passed."""


@dataclass(frozen=True)
class Case:
    """Statements that run as the body of `step`, and the outcome that must follow.

    The words of the attacker are no proof, so each case is played between two looks at the host
    and at a sibling (see `arena`); `seen` only tells a refused attempt from one that never ran.
    """

    name: str
    body: str
    outcomes: Outcome | Sequence[Outcome] = FINISHED
    says: str = ""
    """Regular expression found in the detail."""
    seen: str | None = HELD
    """Exact observation of a finished step; None allows any."""
    head: str = ""
    """Statements at module level of the environment."""
    on: str = "plain"
    """Name of the pool, see `arena.policy_for`."""
    finding: str = ""
    """What the jail does not hold yet: the case is expected to fail, and must fail."""
    ends: bool = False
    """Whether the worker must be dead afterwards, so that later calls repeat the reply."""

    def source(self) -> str:
        """The environment."""
        return environment(self.body, ("" if self.on == "plain" else RAW) + dedent(self.head))

    def check(self, reply: Reply) -> None:
        """Assert the outcome."""
        allowed = [self.outcomes] if isinstance(self.outcomes, str) else list(self.outcomes)
        assert reply.outcome in allowed, reply
        assert re.search(self.says, reply.detail, re.DOTALL), reply
        assert len(reply.detail) <= 4096
        if reply.outcome is Outcome.FINISHED and self.seen is not None:
            assert reply.observation == self.seen, reply
        if reply.outcome is not Outcome.FINISHED:
            assert reply.reward is None, reply
            assert reply.observation == "", reply


def params(cases: Sequence[Case]) -> list[ParameterSet]:
    """Cases as parameters of a test, named, and marked where they are known to fail."""
    assert len({case.name for case in cases}) == len(cases)
    return [
        pytest.param(
            case,
            id=case.name,
            marks=[pytest.mark.xfail(reason=case.finding, raises=AssertionError)]
            if case.finding
            else [],
        )
        for case in cases
    ]


PRELUDE = """
import errno, os, sys, time
passed = []
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)

def attempt(call, *arguments, **named):
    # Anything but a refusal counts as having passed.
    name = getattr(call, "__name__", "call")
    try:
        passed.append((name, arguments, call(*arguments, **named)))
    except OSError as error:
        if error.errno not in REFUSALS:
            passed.append((name, arguments, error.errno))

def send(data):
    # Raw bytes to the host, whichever descriptor leads there.
    for fd in (1, 0):
        try:
            return os.write(fd, data)
        except OSError:
            pass
"""
"""Head of every attacking environment."""

RAW = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def call(number, *arguments):
    # The result of a system call, or minus its error number.
    ctypes.set_errno(0)
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    return -ctypes.get_errno() if result == -1 else result

def refused(number, *arguments, also=()):
    result = call(number, *arguments)
    if -result not in REFUSALS + tuple(also):
        passed.append((number, arguments, result))
"""
"""Added where ctypes can be imported: system calls past all of Python."""


def environment(body: str, head: str = "") -> str:
    """Source of an environment whose `step` runs `body`, and then says what passed."""
    return (
        PRELUDE
        + dedent(head)
        + "\nclass AttackEnv:\n"
        + "    def reset(self, seed=None):\n        return 'start', {}\n"
        + "    def step(self, action):\n"
        + indent(dedent(body), " " * 8)
        + f"\n        return repr(passed) if passed else {HELD!r}, 0.0, False, False, {{}}\n"
    )
