"""From the agent's reply to the text that `step` gets (design step 5). Pure and bounded."""

from __future__ import annotations

from spade_async.domain import Domain

MAX_REPLY_CHARS = 256 << 10
MAX_ACTION_CHARS = 8 << 10
"""Longest action text handed to a program."""


def action_text(domain: Domain, reply: str) -> str:
    """The action in a reply, by the domain's rule, bounded and without lone surrogates."""
    action = domain.parse_action(reply[:MAX_REPLY_CHARS])[:MAX_ACTION_CHARS]
    return action.encode("utf-8", "replace").decode("utf-8")
