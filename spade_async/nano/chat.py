"""The chat format of the nano model: one function and the Jinja template that must equal it.

Roles: "designer" (topic), "hinter" (a program), "agent" (first observation), "hint", "user" (a
later observation), "assistant" (what the policy said). The prompt ends with the reply token.
"""

from __future__ import annotations

from collections.abc import Sequence

from spade_async.domain import ChatTurn
from spade_async.nano import vocabulary as v

_OPENING = {
    "designer": v.DESIGNER,
    "hinter": v.HINTER,
    "agent": v.AGENT,
    "hint": v.HINT,
    "user": v.TURN,
}

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    + "".join(
        f"{{%- {'if' if i == 0 else 'elif'} message['role'] == '{role}' -%}}"
        f"{{{{- '{token}' + message['content'] -}}}}"
        for i, (role, token) in enumerate(_OPENING.items())
    )
    + "{%- elif message['role'] == 'assistant' -%}"
    + f"{{{{- '{v.REPLY}' + message['content'] + '{v.END}' -}}}}"
    + "{%- endif -%}{%- endfor -%}"
    + f"{{%- if add_generation_prompt -%}}{{{{- '{v.REPLY}' -}}}}{{%- endif -%}}"
)
"""What `apply_chat_template` renders; `render` is the same rule for the warm start."""


def render(turns: Sequence[ChatTurn]) -> str:
    """Prompt text of those turns, ready for the policy to reply.

    Raises:
        ValueError: a role that the template does not know.
    """
    parts = []
    for turn in turns:
        if turn.role == "assistant":
            parts.append(v.REPLY + turn.content + v.END)
        elif turn.role in _OPENING:
            parts.append(_OPENING[turn.role] + turn.content)
        else:
            raise ValueError(f"role={turn.role!r}: the nano chat format has {', '.join(_OPENING)}")
    return "".join(parts) + v.REPLY
