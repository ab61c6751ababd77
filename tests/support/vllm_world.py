"""A tiny model as vLLM and as transformers have it, and a learner that publishes weights of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from spade_async.config.schema import EngineConfig
from spade_async.engine.protocol import Generation, Sampling
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore, Published
from tests.support.tiny_chat_model import different_weights, make_chat_model

CONTEXT = 400
TOLERANCE = 1e-3
"""Nats; what the issue allows in fp32. Rounding gives about 1e-5."""


def make_model(folder: Path, *, kind: str = "llama", tied: bool = True) -> Path:
    """A chat model whose heads have size 32: vLLM's attention on a CPU knows no smaller ones."""
    return make_chat_model(folder, kind, tied=tied, hidden=128, heads=4, kv_heads=2, context=512)


def config(**keys: Any) -> EngineConfig:
    """[engine] of these tests, e.g. ``config(slots=2, vllm={"dtype": "bfloat16"})``."""
    return EngineConfig(**{"kind": "vllm", "slots": 4, "prefill_tokens": 512, **keys})


def sampling(seed: int, tokens: int = 24, **keys: Any) -> Sampling:
    return Sampling(
        **{
            "temperature": 1.0,
            "max_new_tokens": tokens,
            "stop_token_ids": (),
            "seed": seed,
            **keys,
        }
    )


def prompt(seed: int, length: int = 12) -> list[int]:
    return np.random.default_rng(seed).integers(5, 90, length).tolist()


@dataclass
class World:
    """Weight sets of one model: version 0 is the folder's, others are made and published."""

    folder: Path
    store: FileWeightStore

    def __post_init__(self) -> None:
        self.models = {0: self._load()}

    def _load(self) -> Any:
        return AutoModelForCausalLM.from_pretrained(
            str(self.folder), dtype=torch.float32, local_files_only=True
        ).eval()

    def publish(self, step: int) -> Published:
        """Clearly different weights as version 0.step, as a learner publishes them."""
        model = self.models.get(step)
        if model is None:
            model = self.models[step] = self._load()
            with torch.no_grad():
                for name, tensor in different_weights(model, 100 + step).items():
                    model.state_dict()[name].copy_(tensor)
        return self.store.publish(PolicyVersion(0, step), dict(model.state_dict()))

    async def push(self, engine: Any, step: int) -> Any:
        published = self.publish(step)
        return await engine.load_weights(
            PolicyVersion(0, step), published.location, published.digest
        )

    def logprobs(
        self, step: int, ids: list[int], said: int, temperature: float = 1.0
    ) -> NDArray[np.float32]:
        """Of the last `said` tokens, by a full pass of transformers under version 0.step."""
        tokens = torch.tensor([ids])
        with torch.no_grad():
            logits = self.models[step](input_ids=tokens).logits[0, :-1] / temperature
        every = torch.log_softmax(logits.float(), -1)
        chosen = every.gather(1, tokens[0, 1:, None]).squeeze(1)
        found: NDArray[np.float32] = chosen[len(chosen) - said :].numpy()
        return found


def check_generation(
    world: World, asked: list[int], said: Generation, temperature: float = 1.0
) -> None:
    """Every token's log-probability is that of a full pass under its own version."""
    ids = [*asked, *said.token_ids.tolist()]
    for version in np.unique(said.versions):
        step = PolicyVersion.unpack(int(version)).step
        expected = world.logprobs(step, ids, len(said.token_ids), temperature)
        mine = said.versions == version
        np.testing.assert_allclose(said.logprobs[mine], expected[mine], atol=TOLERANCE)


async def over_two_swaps(world: World, engine: Any) -> list[tuple[list[int], Generation]]:
    """Seven prompts on four slots with what was said, two pushes under them."""
    start = engine.version.step
    asked = [prompt(20 + i, 10 + 20 * i) for i in range(7)]
    tasks = [
        asyncio.create_task(engine.generate(ids, sampling(i, tokens=180)))
        for i, ids in enumerate(asked)
    ]
    for step in (start + 1, start + 2):
        before = engine.stats()["tokens"]
        await until(lambda before=before: engine.stats()["tokens"] > before + 60)
        await world.push(engine, step)
    return list(zip(asked, await asyncio.gather(*tasks), strict=True))


async def until(condition: Any, timeout_s: float = 120.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - figures of an engine, which tell nobody
            await asyncio.sleep(0.005)
