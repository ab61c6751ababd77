"""Hints (design step 4): from the policy itself, and the check that a hint is not the answer.

A hint that is the answer makes regret worthless: the designer would be paid for giving solutions
away. `leak_share` measures on how many instances that is so; the regret is multiplied by one minus
it. The reference only asks the model not to do it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence

from spade_async.environment.session import Jail, JailUse, open_session
from spade_async.environment.text import clean

MAX_ACTION_CHARS = 8 << 10
"""A longer candidate is not played: it would not fit into a call of the jail."""
MAX_HINT_WORDS = 100
"""Longest hint of mode "self"; the rest is cut."""

_END_TOKEN = re.compile(r"<\|[A-Za-z0-9_ ]{1,40}\|>|</s>|<eos>|<end_of_turn>|<\|endoftext\|>")
# Possessive: blanks behind an open fence would be tried at every split of them.
_FENCE = re.compile(r"```[A-Za-z]*+[^\S\n]*+\n(.*?)\n?```", re.DOTALL)
_THINK_END = "</think>"
_EDGES = " \t\r\n.,;:!?\"'`()[]*"


def candidates(hint: str, source: str) -> list[str]:
    """Actions by which a hint alone could be the answer: the text itself and its last word.

    A program that speaks of ``boxed`` is offered both forms boxed as well.
    """
    text = hint.strip()
    words = text.split()
    plain = [text]
    if words:
        plain += [words[-1], words[-1].strip(_EDGES)]
    boxed = [f"\\boxed{{{p}}}" for p in plain] if "boxed" in source else []
    # A program may say more than a call of the jail takes.
    fitting = (action for action in (*boxed, *plain) if 0 < len(action) <= MAX_ACTION_CHARS)
    return list(dict.fromkeys(fitting))


async def leak_share(
    pool: Jail,
    source: str,
    hint_text: str | None,
    seeds: Sequence[int],
    use: JailUse | None = None,
) -> float:
    """Share of instances, in [0, 1], where the hint alone is the answer.

    Each candidate is played as the first action after a reset; a terminated step with a reward
    above 0 counts as a success. A program that fails here gives no success. An instance whose own
    hint cannot be read is counted as leaked: what cannot be checked is not paid.

    Args:
        pool: the jail.
        source: a valid program.
        hint_text: hint of the whole environment, or None when the program gives one per instance.
        seeds: instances to try; without any the check is off and the share is 0.
        use: account of what it costs in the jail.

    Raises:
        SandboxError: the jail failed.
    """
    if not seeds:
        return 0.0
    account = use if use is not None else JailUse()
    tries = [_leaks(pool, source, hint_text, seed, account) for seed in seeds]
    found = await asyncio.gather(*tries)
    return sum(found) / len(seeds)


async def _leaks(pool: Jail, source: str, hint_text: str | None, seed: int, use: JailUse) -> bool:
    async with open_session(pool, source, seed, use) as session:
        if not session.loaded.ok or not (await session.reset()).ok:
            return hint_text is None
        text = hint_text
        if text is None:
            reply = await session.hint()
            if not reply.ok or not reply.observation.strip():
                return True
            text = reply.observation
        for index, action in enumerate(candidates(text, source)):
            if index and not (await session.reset()).ok:
                return False
            reply = await session.step(action)
            if reply.ok and reply.terminated and (reply.reward or 0.0) > 0.0:
                return True
        return False


def clean_hint(reply: str, max_words: int = MAX_HINT_WORDS) -> str | None:
    """The hint in a policy's reply: plain text, bounded; None when nothing is left.

    Drops what stands before the end of a thinking block and end-of-turn tokens (in a later prompt
    they would end the user's message), and unwraps a fence, also one with {"hint": ...} inside.
    """
    text = reply[:20_000]
    if _THINK_END in text:
        text = text.rsplit(_THINK_END, 1)[1]
    text = _END_TOKEN.sub(" ", text)
    fence = _FENCE.search(text)
    body = fence.group(1) if fence else text
    text = _unwrap(body.strip())
    words = clean(text, 10_000).split()
    return " ".join(words[:max_words]) or None


def _unwrap(body: str) -> str:
    if not body.startswith("{"):
        return body
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    hint = value.get("hint") if isinstance(value, dict) else None
    return hint if isinstance(hint, str) else body
