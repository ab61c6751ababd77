"""Program text and boxed text out of a chat model's reply; pure, bounded, no parsing of Python.

Departs from the reference (2.4, 2.2) where that loses replies: a thinking block is dropped first, a
fence may be cut, and the last box counts, because the earlier ones are examples. The reference's
own rules are in `parse_reference.py`.
"""

from __future__ import annotations

import re

from spade_async.environment.contract import MAX_SOURCE_BYTES, class_name

# Possessive where a line is read: an open fence line of 1 MB would be tried at every split of it.
_FENCE = re.compile(
    r"^[ \t]*+```[ \t]*+([A-Za-z0-9_+-]*+)[^\n]*+\n(.*?)(?:^[ \t]*+```|\Z)", re.M | re.S
)
_THINK_BEGIN, _THINK_END = "<think>", "</think>"
_BOX = "\\boxed{"
_MAX_ACTION_CHARS = 4000


def after_thinking(reply: str) -> str:
    """What follows the last thinking block; the reply itself when there is none.

    A block that is opened and never closed leaves nothing: drafts in it were not said.
    """
    if _THINK_END not in reply and reply.lstrip().startswith(_THINK_BEGIN):
        return ""
    return reply.rsplit(_THINK_END, 1)[-1]


def program(reply: str) -> str | None:
    """The program in a designer's reply, or None.

    The first Python (or unnamed) fence that defines a class ending in ``Env``, else the first such
    fence at all, else the whole reply when it defines one. An open fence runs to the end.
    """
    text = after_thinking(reply)[: 2 * MAX_SOURCE_BYTES]
    blocks = [
        body
        for language, body in _FENCE.findall(text)
        if language.lower() in ("", "python", "py", "python3") and body.strip()
    ]
    for body in blocks:
        if class_name(body) is not None:
            return _tidy(body)
    if blocks:
        return _tidy(blocks[0])
    return _tidy(text) if class_name(text) is not None else None


def _tidy(source: str) -> str:
    # One form on every path: Unix line ends, one new line at the end, no lone surrogates.
    text = source.replace("\r\n", "\n").strip("\n") + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")


def boxed(reply: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` with balanced braces, up to two outer pairs stripped.

    Examples: ``\boxed{42}`` gives "42", ``\boxed{{{x + 1}}}`` gives "x + 1",
    ``\boxed{\frac{1}{2}}`` gives ``\frac{1}{2}``; an empty or open box gives None.
    """
    text = after_thinking(reply)
    end = len(text)
    for _ in range(64):
        start = text.rfind(_BOX, 0, end)
        if start < 0:
            return None
        content = _balanced(text, start + len(_BOX))
        if content is not None and content.strip():
            return _strip_braces(content.strip())
        end = start
    return None


def _balanced(text: str, start: int) -> str | None:
    depth = 1
    for position in range(start, min(len(text), start + _MAX_ACTION_CHARS)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return None


def _strip_braces(content: str) -> str:
    for _ in range(2):
        inner = content[1:-1]
        if not (content.startswith("{") and content.endswith("}")):
            break
        if _balanced(content, 1) != inner or not inner.strip():
            break
        content = inner.strip()
    return content


def action(reply: str) -> str:
    r"""The action of an agent's reply: the boxed text, boxed again, or the bare reply."""
    content = boxed(reply)
    if content is not None:
        return f"{_BOX}{content}}}"
    return after_thinking(reply).strip()[:_MAX_ACTION_CHARS]
