"""The games contract: what a program is, which actions probe it, which rewards and returns count.

Pure rules, no resources (design step 3). A program is Python text that defines one class whose name
ends in ``Env`` (other than ``Env`` itself; the first one in the file counts) with::

    reset(seed) -> (observation: str, info: dict)
    step(action: str) -> (observation: str, reward: float, terminated: bool, truncated: bool, info)
    hint() -> str                       # only with designer.hint = "environment"

``reset(seed)`` alone decides the instance: the same seed in another worker gives the same episode.
The text is never executed, compiled or parsed here: a hostile source can crash the parser, so all
that happens in the host is bounded regular expressions.
"""

from __future__ import annotations

import hashlib
import math
import re

MAX_SOURCE_BYTES = 64 << 10
"""Longest program text that is looked at, UTF-8."""
MAX_HINT_CHARS = 1000
"""Longest hint text of a program."""
MAX_OBSERVATION_CHARS = 32 << 10
"""Longest observation shown to the agent; the context usually ends long before."""
REWARD_BOUND = 10.0
"""A step's reward lies in [-REWARD_BOUND, REWARD_BOUND]; wider or non-finite is a rejection."""
RETURN_BOUND = 1.0
"""The return of an episode is clamped to [-RETURN_BOUND, RETURN_BOUND]."""
TERMINATION_MARGIN = 2
"""Turns past `max_turns` in which a multi-turn program may still end by itself."""
PROBE_ACTIONS = (r"\boxed{1}", "test", "42")
"""What validation plays, in rotation: a boxed number, a word, a bare number."""
CLASS_SUFFIX = "Env"

_CLASS = re.compile(r"^class[ \t]+([A-Za-z_][A-Za-z0-9_]{0,199})[ \t]*[(:]", re.MULTILINE)
# One pass over strings, comments, numbers and blanks. Alternatives are tried in this order, so a
# '#' inside a string is never a comment and a digit inside a name never a number. An open string
# matches as well: without that, hostile text would be scanned once per quote.
_LITERALS = re.compile(
    r"(?P<string>(?:(?<![A-Za-z0-9_])[rRbBfFuU]{1,2})?"
    r"(?:'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)"
    r"|'(?:\\.|[^'\\\n])*+'?|\"(?:\\.|[^\"\\\n])*+\"?))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*+)"
    r"|(?P<number>\d[A-Za-z0-9_.]*+)"
    r"|(?P<blank>(?:\s++|\#[^\n]*+)++)",
    re.DOTALL,
)


def environment_id(source: str) -> str:
    """First 16 hex digits of sha256 of the program text (UTF-8)."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def skeleton(source: str) -> str:
    """Digest (16 hex digits) of the program's shape.

    Numbers and string literals become one mark each, comments go, blanks fold to one space: two
    programs that differ in constants only share a skeleton. Text after `MAX_SOURCE_BYTES`
    characters is ignored.
    """
    folded = _LITERALS.sub(_fold, source[:MAX_SOURCE_BYTES]).strip()
    return hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _fold(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "name":
        return match.group()
    return {"string": "''", "number": "0", "blank": " "}.get(kind or "", "")


def class_name(source: str) -> str | None:
    """Name of the class the contract takes from this text, as far as a regex can see; or None."""
    for match in _CLASS.finditer(source[:MAX_SOURCE_BYTES]):
        name = match.group(1)
        if name.endswith(CLASS_SUFFIX) and name != CLASS_SUFFIX:
            return name
    return None


def source_problem(source: str) -> str | None:
    """Why this text is not worth a worker (empty, too long, not Unicode), or None."""
    if not source.strip():
        return "the program is empty"
    try:
        size = len(source.encode("utf-8"))
    except UnicodeEncodeError as cause:
        return f"the program holds a lone surrogate at character {cause.start}"
    if size > MAX_SOURCE_BYTES:
        return f"the program has {size} bytes, more than {MAX_SOURCE_BYTES}"
    return None


def reward_problem(reward: float | None) -> str | None:
    """Why a step's reward is not acceptable, or None."""
    if reward is None or not math.isfinite(reward):
        return f"the reward is {reward}, not a finite number"
    if abs(reward) > REWARD_BOUND:
        return f"the reward {reward:g} is outside [-{REWARD_BOUND:g}, {REWARD_BOUND:g}]"
    return None


def hint_problem(text: str) -> str | None:
    """Why a hint of the program is not acceptable, or None."""
    if not text.strip():
        return "hint() gave an empty text"
    if len(text) > MAX_HINT_CHARS:
        return f"hint() gave {len(text)} characters, more than {MAX_HINT_CHARS}"
    return None


def probe_action(turn: int, offset: int = 0) -> str:
    """The probe action of a turn (0-based); `offset` varies the first one between seeds."""
    return PROBE_ACTIONS[(turn + offset) % len(PROBE_ACTIONS)]


def probe_turns(max_turns: int) -> int:
    """Most steps of a probing episode: single-turn programs get one, others a margin."""
    return max_turns if max_turns <= 1 else max_turns + TERMINATION_MARGIN


def episode_return(last_reward: float | None, *, terminated: bool) -> float:
    """Return of an episode in [-1, 1].

    The last step's reward, clamped, when the environment terminated; 0.0 when the episode was
    ended by a turn limit or by the context (a real return: the task was not solved in time).
    Source: SPADE reference 2.3 (rewards of earlier steps do not count).

    Raises:
        ValueError: terminated without a reward, or a non-finite one (an outcome, never a return).
    """
    if not terminated:
        return 0.0
    if last_reward is None or not math.isfinite(last_reward):
        raise ValueError(f"last_reward={last_reward}: a terminated episode has a finite reward")
    return max(-RETURN_BOUND, min(RETURN_BOUND, last_reward))
