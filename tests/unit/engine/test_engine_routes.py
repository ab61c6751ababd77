"""Chosen experts: kept from the first reading, and by the built-in engine exactly the model's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from spade_async.config.schema import EngineConfig
from spade_async.engine.builtin import BuiltinEngine
from spade_async.engine.protocol import Generation, Sampling
from spade_async.engine.routes import Routes, router_modules
from spade_async.types import NO_EXPERT
from tests.support.hf_models import make_model

CONTEXT = 64
LAYERS, CHOSEN = 2, 2


def rows(count: int, value: int) -> NDArray[np.int64]:
    return np.full((count, LAYERS, CHOSEN), value)


def test_what_is_known_of_a_token_stays() -> None:
    routes = Routes()
    assert routes.array(3) is None
    routes.add(None)
    routes.add(rows(2, 5))
    routes.add(rows(4, 6))
    routes.add(rows(3, 7))
    found = routes.array(5)
    assert found is not None
    assert found.dtype == np.int16
    assert found[:, 0, 0].tolist() == [5, 5, 6, 6, NO_EXPERT]
    first = routes.array(1)
    assert first is not None
    assert len(first) == 1


@pytest.mark.parametrize("shape", [(3, LAYERS + 1, CHOSEN), (3, LAYERS, CHOSEN + 1), (3, LAYERS)])
def test_other_routers_than_before_are_refused(shape: tuple[int, ...]) -> None:
    routes = Routes()
    routes.add(rows(2, 1))
    with pytest.raises(ValueError, match="expected"):
        routes.add(np.zeros(shape, np.int64))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("moe"), "qwen3_moe")


def own_choice(folder: Path, ids: list[int]) -> NDArray[np.int64]:
    """[tokens, routers, k] of transformers on the whole sequence at once, each pair sorted."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    kept: list[torch.Tensor] = []
    for module in router_modules(model):
        module.register_forward_hook(lambda *args: kept.append(args[2][2]))
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]))
    found: NDArray[np.int64] = np.sort(torch.stack(kept, dim=1).numpy(), axis=-1)
    return found


async def many(folder: Path, prompts: list[list[int]], **options: bool) -> list[Generation]:
    config = EngineConfig(slots=3, prefill_tokens=16)
    engine = await BuiltinEngine.create(folder, config, CONTEXT, **options)
    try:
        return await asyncio.gather(
            *(
                engine.generate(prompt, Sampling(1.0, 4 + 3 * number, (), seed=number))
                for number, prompt in enumerate(prompts)
            )
        )
    finally:
        await engine.close()


def test_the_engine_says_which_experts_each_token_went_through(folder: Path) -> None:
    # More requests than slots, of unequal lengths: rows move, prompts are padded, one is read in
    # pieces.
    prompts = [list(range(3, 3 + length)) for length in (5, 30, 2, 11, 7)]
    for prompt, made in zip(prompts, asyncio.run(many(folder, prompts)), strict=True):
        read = prompt + made.token_ids.tolist()[:-1]
        assert made.experts is not None
        assert made.experts.shape == (len(read), LAYERS, CHOSEN)
        assert np.sort(made.experts, axis=-1).tolist() == own_choice(folder, read).tolist()


def test_an_engine_that_is_not_asked_says_nothing(folder: Path) -> None:
    assert asyncio.run(many(folder, [[4, 5]], returns_experts=False))[0].experts is None


def test_a_model_without_a_mixture_has_no_experts(tmp_path: Path) -> None:
    make_model(tmp_path, "qwen3")
    assert asyncio.run(many(tmp_path, [[4, 5]]))[0].experts is None
