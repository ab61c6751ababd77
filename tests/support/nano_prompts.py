"""Prompts and traces of the nano model as ids, for the stored ones in tests/golden.

``python -m tests.support.nano_prompts`` prints them. The stored ones were made before the prompts
of the games domain, thinking and token sequences came: the nano model must not notice them.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from spade_async.agent.episode import Play, Player, PlayLimits, play_episode
from spade_async.engine.scripted import ScriptedEngine
from spade_async.engine.tokens import ChatTokens
from spade_async.nano import domain
from spade_async.nano.tokenizer import build_tokenizer
from spade_async.types import Arm, PolicyVersion
from tests.support.fake_jail import FakeJail, Script, value

LIMITS = PlayLimits(max_turns=3, max_new_tokens=14, max_context_tokens=256, temperature=1.0)
DOCUMENTS = ("Heap queues, sorted from the smallest.", "add two numbers", "", "<pad> of a <|end|>")


def trace(arm: Arm, hint: str) -> dict[str, Any]:
    """Ids and mask of an episode of two turns with scripted replies."""

    async def run() -> dict[str, Any]:
        tokens = ChatTokens(build_tokenizer())
        end = tokens.stop_token_ids[0]
        replies = [
            [*tokens.encode_prompt(domain.agent_turn(text))[1:-1], end] for text in ("3", "7")
        ]
        steps = [value("sum 3 4", 0.0), value("over", 1.0, end=True)]
        jail = FakeJail(Script(reset=value("max 3 14 9"), hint=value(hint), step=steps))
        engine = ScriptedEngine(replies, version=PolicyVersion(0, 3))
        player: Any = Player(engine, tokens, jail, domain)
        play = Play("e", "class AEnv:\n", "environment", None, arm, 7, 99)
        made = (await play_episode(player, play, LIMITS)).episode.trace
        assert made is not None
        return {
            "ids": made.token_ids.tolist(),
            "mask": made.loss_mask.tolist(),
            "prompts": engine.prompts,
        }

    return asyncio.run(run())


def found() -> dict[str, Any]:
    """Everything that is stored."""
    tokens = ChatTokens(build_tokenizer())
    skill = "Mathematical Reasoning"
    return {
        "stop": list(tokens.stop_token_ids),
        "designer": [
            tokens.encode_prompt(domain.designer_messages(skill=skill, document=d, exemplars=[]))
            for d in DOCUMENTS
        ],
        "hint": tokens.encode_prompt(domain.hint_messages("class AEnv:\n    pass\n")),
        "plain": trace(Arm.NO_HINT, "first digit 1"),
        "hinted": trace(Arm.WITH_HINT, "1?"),
        "odd": tokens.encode_prompt(domain.agent_messages("a <pad> \u00e9 \U0001f642", None)),
    }


if __name__ == "__main__":
    print(json.dumps(found()))
