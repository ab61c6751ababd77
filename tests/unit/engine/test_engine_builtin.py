from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spade_async.config.schema import EngineConfig
from spade_async.engine.builtin import BuiltinEngine
from spade_async.engine.builtin.decoder import Decoder
from spade_async.engine.protocol import Generation, GenerationCancelled, Sampling
from spade_async.errors import GenerationError, WeightsError
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.asynchronous import run_async
from tests.support.tiny_chat_model import different_weights, make_chat_model

CONTEXT = 96
MODELS: dict[str, dict[str, Any]] = {
    "llama tied": {"kind": "llama"},
    "llama untied general": {"kind": "llama", "tied": False, "general": True},
    "llama no gqa": {"kind": "llama", "kv_heads": 4, "tied": False},
    "qwen2": {"kind": "qwen2"},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    options = dict(MODELS[request.param])
    general = options.pop("general", False)
    return make_chat_model(tmp_path_factory.mktemp("model"), **options), general


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chat_model(tmp_path_factory.mktemp("llama"))


@asynccontextmanager
async def running(
    folder: Path, *, general: bool = False, context: int = CONTEXT, **config: Any
) -> AsyncIterator[BuiltinEngine]:
    engine = await BuiltinEngine.create(folder, EngineConfig(**config), context, general=general)
    try:
        yield engine
    finally:
        await engine.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the engine thread has no event to wait for
        await asyncio.sleep(0.0005)


def sampling(seed: int, new: int = 24, temperature: float = 1.0, **more: Any) -> Sampling:
    return Sampling(
        temperature=temperature, max_new_tokens=new, stop_token_ids=(1,), seed=seed, **more
    )


def prompt(i: int) -> list[int]:
    """A prompt of 2 to 30 tokens that differs with i."""
    return [5 + (7 * i + 3 * j) % 90 for j in range(2 + (5 * i) % 29)]


class Reference:
    """Full forward passes of the Hugging Face model under stated weights."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.weights = {0: {k: v.clone() for k, v in self.network.state_dict().items()}}

    def logprobs(self, version: int, ids: list[int], temperature: float) -> np.ndarray:
        self.network.load_state_dict(self.weights[version])
        with torch.inference_mode():
            logits = self.network(torch.tensor([ids])).logits[0, :-1] / (temperature or 1.0)
            chosen = torch.tensor(ids[1:]).unsqueeze(1)
            return torch.log_softmax(logits, -1).gather(1, chosen).squeeze(1).numpy()

    def largest_error(self, ids: list[int], made: Generation, temperature: float = 1.0) -> float:
        """Over all sampled tokens, each against the weights of its own version."""
        whole = [*ids, *made.token_ids.tolist()]
        worst = 0.0
        for version in np.unique(made.versions):
            wanted = self.logprobs(int(version), whole, temperature)[len(ids) - 1 :]
            differs = np.abs(wanted - made.logprobs)[made.versions == version]
            worst = max(worst, float(differs.max()))
        return worst


@run_async
async def test_logprobs_are_those_of_a_full_pass_for_any_batch_composition(model: Any) -> None:
    folder, general = model
    reference = Reference(folder)
    temperatures = [1.0, 0.7, 0.0, 1.5]
    async with running(folder, general=general, slots=5, prefill_tokens=64) as engine:
        made = await asyncio.gather(
            *(
                engine.generate(prompt(i), sampling(i, 3 + i, temperatures[i % 4]))
                for i in range(14)
            )
        )
    for i, one in enumerate(made):
        assert reference.largest_error(prompt(i), one, temperatures[i % 4]) < 1e-5
        assert len(one.token_ids) == len(one.logprobs) == len(one.versions) <= 3 + i
        assert one.finish_reason == ("stop" if one.token_ids[-1] == 1 else "length")
        assert 1 not in one.token_ids[:-1]


@run_async
async def test_a_cancelled_request_says_how_many_tokens_it_had_sampled(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = Decoder.step

    def slowly(decoder: Decoder) -> Any:
        time.sleep(0.02)
        return decode(decoder)

    monkeypatch.setattr(Decoder, "step", slowly)
    async with running(llama, context=256) as engine:
        long = Sampling(1.0, 250, (), seed=1)
        request = asyncio.create_task(engine.generate([5, 6], long))
        await until(lambda: engine.stats()["tokens"] >= 3)
        request.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await request
        assert isinstance(cancelled.value, GenerationCancelled)
        assert cancelled.value.num_tokens >= 3
        await until(lambda: engine.stats()["active"] == 0)


@run_async
async def test_a_request_depends_on_its_seed_alone(model: Any) -> None:
    folder, general = model
    async with running(folder, general=general, slots=1) as engine:
        alone = [await engine.generate(prompt(i), sampling(i)) for i in range(10)]
    async with running(folder, general=general, slots=7, prefill_tokens=40) as engine:
        crowd = await asyncio.gather(
            *(engine.generate(prompt(i), sampling(i)) for i in reversed(range(10)))
        )
    for one, other in zip(alone, reversed(crowd), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=0, atol=1e-5)
    assert len({tuple(one.token_ids.tolist()) for one in alone}) == 10


@run_async
async def test_greedy_takes_the_best_token_and_gives_its_logprob_at_one(model: Any) -> None:
    folder, general = model
    reference = Reference(folder)
    async with running(folder, general=general) as engine:
        made = await engine.generate(prompt(3), sampling(0, 8, temperature=0.0))
    whole = prompt(3)
    for token in made.token_ids.tolist():
        with torch.inference_mode():
            assert int(reference.network(torch.tensor([whole])).logits[0, -1].argmax()) == token
        whole.append(token)


async def swapped_in_flight(
    folder: Path, general: bool, store_folder: Path, on_swap: str
) -> tuple[float, int, dict[str, float]]:
    """Swap clearly different weights under running requests.

    Gives the largest error, the most versions within one request, and the engine's counters.
    """
    reference = Reference(folder)
    store = FileWeightStore(store_folder, keep=9)
    async with running(
        folder, general=general, slots=6, prefill_tokens=70, on_swap=on_swap
    ) as engine:
        requests = [
            asyncio.create_task(
                engine.generate(prompt(i), Sampling(1.0, 60, stop_token_ids=(), seed=i))
            )
            for i in range(8)
        ]
        for step in range(1, 4):
            version = PolicyVersion(0, step)
            weights = different_weights(reference.network, seed=100 + step)
            reference.weights[version.packed] = weights
            published = store.publish(version, weights)
            seen = engine.stats()["tokens"]
            await until(lambda: engine.stats()["tokens"] >= seen + 40)  # noqa: B023
            report = await engine.load_weights(version, published.location, published.digest)
            assert report.version == version
            assert report.digest == published.digest
            assert 0 <= report.pause_s <= report.load_s
        made = await asyncio.gather(*requests)
        stats = engine.stats()
    worst = max(reference.largest_error(prompt(i), one) for i, one in enumerate(made))
    return worst, max(len(np.unique(one.versions)) for one in made), stats


@run_async
async def test_after_swaps_in_flight_each_logprob_is_that_of_its_stated_version(
    model: Any, tmp_path: Path
) -> None:
    worst, num_versions, stats = await swapped_in_flight(*model, tmp_path, "recompute")
    assert num_versions >= 3
    assert worst < 1e-5
    assert stats["swaps"] == 3
    assert stats["recomputed_tokens"] > 0


@run_async
async def test_keeping_the_kv_over_a_swap_breaks_that_equality(model: Any, tmp_path: Path) -> None:
    worst, num_versions, stats = await swapped_in_flight(*model, tmp_path, "keep")
    assert num_versions >= 3
    assert worst > 1e-2
    assert stats["recomputed_tokens"] == 0


@run_async
async def test_scores_are_those_of_a_full_pass(model: Any) -> None:
    folder, general = model
    reference = Reference(folder)
    async with running(folder, general=general) as engine:
        for temperature in (1.0, 0.5):
            scored = await engine.score(prompt(5), temperature)
            wanted = reference.logprobs(0, prompt(5), temperature)
            np.testing.assert_allclose(scored, wanted, rtol=0, atol=1e-5)
        assert (await engine.score([5], 1.0)).shape == (0,)


@run_async
async def test_a_prompt_longer_than_a_pass_is_read_in_pieces(llama: Path) -> None:
    reference = Reference(llama)
    long = [5 + i % 90 for i in range(70)]
    async with running(llama, prefill_tokens=16) as engine:
        made = await engine.generate(long, sampling(1, 20))
    assert reference.largest_error(long, made) < 1e-5


@run_async
async def test_a_prompt_that_does_not_fit_is_refused_before_the_queue(llama: Path) -> None:
    async with running(llama) as engine:
        with pytest.raises(GenerationError, match=r"90 tokens and max_new_tokens=7.*=96"):
            await engine.generate([5] * 90, sampling(0, 7))
        await engine.generate([5] * 90, sampling(0, 6))
        for bad in ([], [5, 5000], [-1]):
            with pytest.raises(GenerationError, match="token"):
                await engine.generate(bad, sampling(0, 1))
        assert engine.stats()["requests"] == 1


@run_async
async def test_a_request_waits_for_its_version_and_holds_up_nobody(
    llama: Path, tmp_path: Path
) -> None:
    reference = Reference(llama)
    store = FileWeightStore(tmp_path)
    wanted = PolicyVersion(1, 2)
    async with running(llama, slots=1) as engine:
        held = asyncio.create_task(
            engine.generate(prompt(0), sampling(0, 4, min_version=wanted.packed))
        )
        await asyncio.sleep(0)
        await engine.generate(prompt(1), sampling(1, 4))
        for version in (PolicyVersion(0, 9), wanted):
            assert not held.done()
            published = store.publish(version, reference.network.state_dict())
            await engine.load_weights(version, published.location, published.digest)
        assert set((await held).versions.tolist()) == {wanted.packed}


@run_async
async def test_a_failed_load_leaves_the_old_weights(llama: Path, tmp_path: Path) -> None:
    reference = Reference(llama)
    store = FileWeightStore(tmp_path, keep=20)
    good = different_weights(reference.network, seed=9)
    name = "model.layers.0.self_attn.q_proj.weight"
    bad: list[tuple[str, Callable[[dict[str, torch.Tensor]], Any]]] = [
        ("lack", lambda w: w.pop(name)),
        ("does not have", lambda w: w.update(extra=torch.zeros(1))),
        ("shape", lambda w: w.update({name: torch.zeros(3, 3)})),
        ("not finite", lambda w: w.update({name: w[name] * float("nan")})),
        ("tied", lambda w: w.update({"lm_head.weight": w["lm_head.weight"] + 1})),
    ]
    async with running(llama) as engine:
        before = await engine.score(prompt(4), 1.0)
        for step, (why, spoil) in enumerate(bad, start=1):
            weights = dict(good)
            spoil(weights)
            published = store.publish(PolicyVersion(0, step), weights)
            with pytest.raises(WeightsError, match=why):
                await engine.load_weights(
                    PolicyVersion(0, step), published.location, published.digest
                )
        with pytest.raises(WeightsError, match="digest"):
            await engine.load_weights(PolicyVersion(0, 7), published.location, "0" * 64)
        with pytest.raises(WeightsError, match="cannot be read"):
            await engine.load_weights(PolicyVersion(0, 7), str(tmp_path / "none"), "0" * 64)
        assert engine.version == PolicyVersion(0, 0)
        np.testing.assert_array_equal(await engine.score(prompt(4), 1.0), before)
        good.pop("lm_head.weight")  # One name of a tied pair is enough.
        published = store.publish(PolicyVersion(0, 8), good)
        await engine.load_weights(PolicyVersion(0, 8), published.location, published.digest)
        assert engine.version == PolicyVersion(0, 8)
        assert not np.allclose(await engine.score(prompt(4), 1.0), before)
        with pytest.raises(WeightsError, match=r"older than the loaded 0\.8"):
            await engine.load_weights(PolicyVersion(0, 7), published.location, published.digest)


@run_async
async def test_output_that_is_not_finite_fails_its_requests_only(
    llama: Path, tmp_path: Path
) -> None:
    reference = Reference(llama)
    store = FileWeightStore(tmp_path)
    norm = "model.norm.weight"
    huge = {**reference.weights[0], norm: torch.full_like(reference.weights[0][norm], 3e38)}
    async with running(llama, slots=2) as engine:
        published = store.publish(PolicyVersion(0, 1), huge)
        await engine.load_weights(PolicyVersion(0, 1), published.location, published.digest)
        with pytest.raises(GenerationError, match="not finite"):
            await engine.generate(prompt(2), sampling(2))
        published = store.publish(PolicyVersion(0, 2), reference.weights[0])
        await engine.load_weights(PolicyVersion(0, 2), published.location, published.digest)
        made = await engine.generate(prompt(2), sampling(2))
        assert np.isfinite(made.logprobs).all()


@run_async
async def test_a_cancelled_request_frees_its_slot(llama: Path) -> None:
    async with running(llama, slots=1, context=256) as engine:
        endless = Sampling(1.0, 200, stop_token_ids=(), seed=0)
        tasks = [asyncio.create_task(engine.generate(prompt(0), endless)) for _ in range(3)]
        await until(lambda: bool(engine.stats()["active"]))
        for task in tasks:
            task.cancel()
        made = await engine.generate(prompt(1), sampling(1, 3))
        assert len(made.token_ids) <= 3
        assert engine.stats()["tokens"] < 200
        assert engine.stats()["waiting"] == 0


@run_async
async def test_closing_fails_what_is_in_flight(llama: Path) -> None:
    async with running(llama, context=256) as engine:
        endless = Sampling(1.0, 200, stop_token_ids=(), seed=0)
        task = asyncio.create_task(engine.generate(prompt(0), endless))
        held = asyncio.create_task(engine.generate(prompt(0), sampling(0, min_version=99)))
        await until(lambda: bool(engine.stats()["active"]))
        await engine.close()
        for one in (task, held):
            with pytest.raises(GenerationError, match="closed"):
                await one
        with pytest.raises(GenerationError, match="closed"):
            await engine.generate(prompt(0), endless)
        assert engine.failed is None


@run_async
async def test_a_dead_engine_thread_fails_all_calls_with_the_cause(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(llama) as engine:

        def broken(*_: Any) -> Any:
            raise MemoryError("no more memory")

        monkeypatch.setattr(engine._model, "forward", broken)
        held = asyncio.create_task(engine.generate(prompt(0), sampling(0, min_version=99)))
        await asyncio.sleep(0)
        with pytest.raises(GenerationError, match="MemoryError: no more memory") as caught:
            await engine.generate(prompt(0), sampling(0))
        assert isinstance(caught.value.__cause__, MemoryError)
        with pytest.raises(GenerationError, match="no more memory"):
            await held
        with pytest.raises(GenerationError, match="no more memory"):
            await engine.generate(prompt(0), sampling(0))
        assert isinstance(engine.failed, MemoryError)


@run_async
async def test_the_counters_say_what_was_done(llama: Path) -> None:
    async with running(llama) as engine:
        made = await asyncio.gather(*(engine.generate(prompt(i), sampling(i)) for i in range(3)))
        stats = engine.stats()
    assert stats["tokens"] == sum(len(one.token_ids) for one in made)
    assert stats["requests"] == 3
    assert stats["active"] == stats["waiting"] == stats["version"] == stats["swaps"] == 0
    assert stats["busy_s"] > 0
    assert stats["idle_s"] > 0
