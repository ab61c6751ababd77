r"""Replies as the reference reads them (`run.compat = "reference"`), its known mistakes included.

Source: SPADE reference 2.2, 2.4 and appendix A1. What ours does instead is in `parse.py`; the brace
repair of either needs a Python parser and runs in the jail (`environment/inspector.py`). Pure and
bounded: each search is linear.
"""

from __future__ import annotations

import re
from typing import Literal

from spade_async.designer.parse import after_thinking
from spade_async.environment.contract import MAX_SOURCE_BYTES

ActionFormat = Literal["boxed", "tool_call", "command"]

_OPEN, _CLOSE = "```python\n", "\n```"
_BOX = "\\boxed{"
_BOXES = (
    re.compile(r"\\boxed\{([^{}]*)\}"),
    re.compile(r"\\boxed\{\{([^{}]*)\}\}"),
    re.compile(r"\\boxed\{\{\{([^{}]*)\}\}\}"),
)
_MAX_ACTION_CHARS = 4000
_TAGS = (("answer", "ANSWER: {}"), ("command", "{}"))


def program(reply: str) -> str | None:
    """The first fenced block opened by "```python" and a new line, else the whole reply.

    A thinking block is not taken off first, so a draft in it wins. None of a blank text.
    """
    text = reply[: 4 * MAX_SOURCE_BYTES]
    start = text.find(_OPEN)
    if start >= 0:
        # The new line of the opening may be that of the closing: an empty block.
        end = text.find(_CLOSE, start + len(_OPEN) - 1)
        if end >= 0:
            text = text[start + len(_OPEN) : end]
    text = text.replace("\r\n", "\n").strip("\n")
    return text.encode("utf-8", "replace").decode("utf-8") + "\n" if text.strip() else None


def boxed(reply: str) -> str | None:
    r"""Boxed text by the reference's order of rules; None without a box.

    1. the first box without inner braces, wherever it stands: a nested one before it loses;
    2. the first doubly, then triply braced one;
    3. the balanced text of the last box, less up to two outer braces on either side, whether they
       belong together or not: ``\boxed{{a}+{b}}`` gives ``a}+{b``.

    ``\boxed{}`` gives "", which is an action.
    """
    for form in _BOXES:
        match = form.search(reply)
        if match is not None:
            return match.group(1).strip()
    start = reply.rfind(_BOX)
    if start < 0:
        return None
    start += len(_BOX)
    depth = 1
    for position in range(start, min(len(reply), start + _MAX_ACTION_CHARS)):
        depth += {"{": 1, "}": -1}.get(reply[position], 0)
        if depth == 0:
            return _strip(reply[start:position].strip())
    return None


def _strip(content: str) -> str:
    for _ in range(2):
        if len(content) < 2 or not (content.startswith("{") and content.endswith("}")):
            break
        content = content[1:-1].strip()
    return content


def action(reply: str, form: ActionFormat = "boxed") -> str:
    r"""The action of a reply: the box, boxed again; the stripped reply without one or otherwise."""
    text = after_thinking(reply)
    content = boxed(text) if form == "boxed" else None
    if content is not None:
        return f"{_BOX}{content}}}"
    return text.strip()[:_MAX_ACTION_CHARS]


def tagged(reply: str) -> str | None:
    """Content of an answer or command tag: "ANSWER: x" of the one, "x" of the other; or None."""
    for tag, shown in _TAGS:
        start = reply.find(f"<{tag}>")
        end = reply.find(f"</{tag}>", start)
        if start >= 0 and end >= 0:
            return shown.format(reply[start + len(tag) + 2 : end].strip())
    return None
