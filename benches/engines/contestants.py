"""The built-in engine, vLLM and `transformers.generate` under one call: a batch in, tokens out.

All sample at temperature 1 from the whole vocabulary, in float32, on one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from spade_async.engine.vllm.installed import look

SLOTS = 64
CONTEXT = 384

Request = tuple[list[int], int]
"""Token ids of the prompt, and how many new ones are asked for."""


class Contestant(Protocol):
    """Something that generates."""

    name: str

    @property
    def pids(self) -> Sequence[int]:
        """Processes beside this one that do its work."""

    async def generate(self, requests: Sequence[Request]) -> None:
        """All of them, asked for at once; returns when the last one has its tokens."""


class _Engine:
    """One of ours: requests join and leave at each decode step."""

    def __init__(self, name: str, engine: Any) -> None:
        self.name = name
        self._engine = engine

    @property
    def pids(self) -> Sequence[int]:
        found: Sequence[int] = getattr(self._engine, "pids", ())
        return found

    async def generate(self, requests: Sequence[Request]) -> None:
        from spade_async.engine.protocol import Sampling

        made = await asyncio.gather(
            *(
                self._engine.generate(prompt, Sampling(1.0, new, (), seed=i))
                for i, (prompt, new) in enumerate(requests)
            )
        )
        assert [len(one.token_ids) for one in made] == [new for _, new in requests]


class _Transformers:
    """Batches of `SLOTS` in their order, each until its longest answer is there."""

    name = "transformers"
    pids: Sequence[int] = ()

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        loader: Any = AutoModelForCausalLM
        self._model = loader.from_pretrained(str(folder), dtype=torch.float32).eval()

    async def generate(self, requests: Sequence[Request]) -> None:
        import torch

        for first in range(0, len(requests), SLOTS):
            part = requests[first : first + SLOTS]
            longest = max(new for _, new in part)
            ids = torch.tensor([prompt for prompt, _ in part])
            made = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=longest,
                min_new_tokens=longest,
                pad_token_id=0,
            )
            assert made.shape == (len(part), ids.shape[1] + longest)


def left_out() -> dict[str, str]:
    """Contestant -> why it does not take part here; {} when all do."""
    problem = look().problem
    return {} if problem is None else {"vllm": problem}


@asynccontextmanager
async def contestants(folder: Path) -> AsyncIterator[list[Contestant]]:
    """All that can run here, on that model; their processes are gone after the block."""
    from spade_async.config.schema import EngineConfig
    from spade_async.engine.builtin import BuiltinEngine

    async with AsyncExitStack() as stack:
        plain = EngineConfig(slots=SLOTS, threads=1)
        builtin = await BuiltinEngine.create(folder, plain, CONTEXT)
        stack.push_async_callback(builtin.close)
        found: list[Contestant] = [_Engine("built-in", builtin), _Transformers(folder)]
        if not left_out():
            from spade_async.engine.vllm.engine import VllmEngine

            keys: dict[str, Any] = {"kind": "vllm", "slots": SLOTS, "threads": 1}
            config = EngineConfig(**keys, vllm={"dtype": "float32"})
            vllm = await VllmEngine.create(folder, config, CONTEXT)
            stack.push_async_callback(vllm.close)
            found.append(_Engine("vLLM", vllm))
        yield found
