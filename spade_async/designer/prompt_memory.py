"""Earlier games in the designer's prompt: what to be inspired by, and what to avoid and why.

The reference (4.7) cuts a program in the middle of a line and names a game to avoid by the stem of
its file, which tells the model nothing. Here a cut falls between lines and says so, and a game to
avoid is shown with its code and the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spade_async.environment.contract import environment_id

MAX_INSPIRING_CHARS = 16_000
"""Longest program that is shown whole; an ordinary one of 320 lines fits."""
MAX_AVOIDED_CHARS = 2_000
"""Of a game to avoid the beginning is enough."""
REFERENCE_CHARS = 2_000
"""Where the reference cuts a program."""
_MAX_REASON_CHARS = 300


def memory_block(items: Iterable[dict[str, Any]]) -> list[str]:
    """Paragraphs of the prompt, at most one for either kind; none without items.

    Args:
        items: see `DesignRequest.exemplars`; without a kind an item is there to inspire.
    """
    inspiring: list[dict[str, Any]] = []
    avoided: list[dict[str, Any]] = []
    for item in items:
        is_avoided = item.get("kind") == "avoid"
        (avoided if is_avoided else inspiring).append(item)
    blocks = []
    if inspiring:
        shown = "\n\n".join(_shown("Earlier game", i, MAX_INSPIRING_CHARS) for i in inspiring)
        blocks.append(
            "These earlier games had the right difficulty. Find out what makes them work, and "
            f"write something different: another world, other rules, another way to win.\n\n{shown}"
        )
    if avoided:
        shown = "\n\n".join(_shown("Game to avoid", i, MAX_AVOIDED_CHARS) for i in avoided)
        blocks.append(
            "These earlier games are of no use for the reason given. Write nothing that resembles "
            f"them.\n\n{shown}"
        )
    return blocks


def reference_block(items: Iterable[dict[str, Any]]) -> list[str]:
    """As `memory_block`, by the reference's rules (4.7), for `run.compat = "reference"`.

    Programs are cut at 2,000 characters wherever that is. Of games to avoid the first alone is
    named, by what was wrong and by its file's stem (here the id), without its code.
    """
    shown = [dict(item) for item in items]
    inspiring = [item for item in shown if item.get("kind") != "avoid"]
    avoided = [item for item in shown if item.get("kind") == "avoid"][:1]
    for item in inspiring:
        item["source"] = str(item.get("source", ""))[:REFERENCE_CHARS]
    blocks = memory_block(inspiring)
    for item in avoided:
        solved = item.get("mean_no_hint")
        verdict = "too easy" if isinstance(solved, int | float) and solved > 0.5 else "too hard"
        rate = f", win rate {solved:.2f}" if isinstance(solved, int | float) else ""
        stem = environment_id(str(item.get("source", "")))
        blocks.append(f"Avoid games like this one: {verdict}{rate} ({stem}).")
    return blocks


def _shown(what: str, item: dict[str, Any], max_chars: int) -> str:
    facts = [f"skill {item['skill']}"] if item.get("skill") else []
    for key, text in (
        ("mean_no_hint", "mean return without a hint"),
        ("mean_with_hint", "with the hint"),
        ("regret", "gain from the hint"),
    ):
        value = item.get(key)
        if isinstance(value, int | float):
            facts.append(f"{text} {value:.2f}")
    head = f"{what} ({', '.join(facts)}):" if facts else f"{what}:"
    reason = " ".join(str(item.get("reason") or "").split())[:_MAX_REASON_CHARS]
    because = f"\nWhy: {reason}" if reason else ""
    return f"{head}{because}\n```python\n{_cut(str(item.get('source', '')), max_chars)}\n```"


def _cut(source: str, max_chars: int) -> str:
    """The program up to a line's end; what is left out is said."""
    text = source.rstrip()
    if len(text) <= max_chars:
        return text
    head = text[:max_chars]
    whole = head.rsplit("\n", 1)[0] if "\n" in head else head
    left_out = text[len(whole) :].strip("\n").count("\n") + 1
    return f"{whole}\n# ... {left_out} more lines"
