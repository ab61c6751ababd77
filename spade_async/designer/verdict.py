"""What a reviewer's reply says: yes, no or nothing (design step 3).

The prompts are in `prompt_review.py`. Source: SPADE reference 2.6 and 4.9.
"""

from __future__ import annotations

from typing import Literal

from spade_async.designer.parse import boxed
from spade_async.designer.parse_reference import boxed as boxed_as_the_reference

Verdict = Literal["yes", "no", "none"]
_YES, _NO = ("yes", "y", "true"), ("no", "n", "false")


def read_verdict(reply: str, *, compat: str = "off") -> Verdict:
    """The verdict in a reply.

    The last box decides: yes, y, true or no, n, false, in any case. Anything else, an empty reply
    and one without a box are no verdict. With compat "reference" the first box decides, and what
    is not a yes is a no.
    """
    if compat == "reference":
        word = boxed_as_the_reference(reply)
        if not word:
            return "none"
        return "yes" if word.strip().lower() in _YES else "no"
    word = (boxed(reply) or "").strip().strip(".!").lower()
    return "yes" if word in _YES else "no" if word in _NO else "none"
