"""Messages of a stated size, and the first words of a conversation."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

import numpy as np

from spade_async.transport.block import lay_out
from spade_async.transport.link import Hub
from spade_async.transport.messages import (
    MESSAGES,
    EpisodeResult,
    Hello,
    Message,
    Welcome,
    no_experts,
)

BYTES_PER_TOKEN = 4 + 1 + 4 + 8


async def welcomed(hub: Hub) -> str:
    """Take the next message, which must be a Hello, and answer it; the peer's name."""
    hello = await hub.receive()
    assert isinstance(hello.message, Hello)
    await hub.send(hello.peer, Welcome())
    return hello.peer


def episode(size: int, *, laid_out: bool, index: int = 0) -> EpisodeResult:
    """An episode whose arrays take about `size` bytes, read-only in one block or writable."""
    tokens = size // BYTES_PER_TOKEN
    arrays: dict[str, Any] = {
        "token_ids": np.arange(tokens, dtype=np.int32),
        "loss_mask": np.ones(tokens, np.uint8),
        "generator_logprobs": np.zeros(tokens, np.float32),
        "versions": np.zeros(tokens, np.int64),
        "experts": no_experts(),
    }
    turn = {"action": "sort ascending", "observation": "wrong: try again", "reward": 0.0}
    return EpisodeResult(
        task_id="play-000123-4",
        group_id="group-000123",
        environment_id="0123456789abcdef",
        arm="no_hint",
        index=index,
        seed=2**61,
        purpose="train",
        outcome="finished",
        detail="",
        episode_return=1.0,
        missing_reason=None,
        num_turns=4,
        transcript=[turn] * 4,
        observation="numbers: 4 8 15 16 23 42",
        hint_text=None,
        jail={"calls": 5, "wall_s": 0.004, "outcomes": {"finished": 5}},
        **(lay_out(arrays) if laid_out else arrays),
    )


def samples() -> list[Message]:
    """One of each message, with the values of an ordinary run."""
    found: list[Message] = []
    for record in MESSAGES:
        hints = typing.get_type_hints(record)
        values = {f.name: _value(f.name, hints[f.name]) for f in dataclasses.fields(record)}
        found.append(record(**values))
    return found


def _value(name: str, hint: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(name, args[0])
    if origin is list:
        return [_value(name, args[0])] * 3
    if origin is dict:
        return {"a": 1 if args[1] is Any else _value(name, args[1])}
    if origin is not None:
        return np.arange(5).astype(typing.get_args(args[1])[0] if len(args) > 1 else args[0])
    if hint is Any:
        return "x"
    plain: dict[Any, Any] = {str: name, int: 3, float: 0.5, bool: True, type(None): None}
    return plain[hint]
