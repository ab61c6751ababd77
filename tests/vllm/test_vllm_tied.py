"""A model with tied embeddings in fp32: vLLM says what transformers computes, also after pushes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade_async.engine.protocol import Generation, GenerationCancelled
from spade_async.errors import GenerationError, WeightsError
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.vllm_world import (
    CONTEXT,
    TOLERANCE,
    World,
    check_generation,
    make_model,
    over_two_swaps,
    prompt,
    sampling,
    until,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("tied")
    folder = make_model(root / "model")
    # A sampler that a careless engine would take over from the folder.
    biased = {"do_sample": True, "top_p": 0.5, "top_k": 3, "temperature": 0.1, "eos_token_id": 1}
    (folder / "generation_config.json").write_text(json.dumps(biased))
    return World(folder, FileWeightStore(root / "weights", keep=3))


def test_parity_before_and_after_a_push(runner: asyncio.Runner, world: World, engine: Any) -> None:
    async def generate(step: int) -> None:
        asked = [prompt(i, 5 + 9 * i) for i in range(6)]
        said = await asyncio.gather(
            *(engine.generate(ids, sampling(i)) for i, ids in enumerate(asked))
        )
        for ids, generation in zip(asked, said, strict=True):
            assert set(generation.versions.tolist()) == {step}
            assert generation.finish_reason == "length"
            assert len(generation.token_ids) == 24
            check_generation(world, ids, generation)

    runner.run(generate(0))
    report = runner.run(world.push(engine, 1))
    assert report.version == PolicyVersion(0, 1)
    runner.run(generate(1))
    assert engine.stats()["swaps"] == 1


def test_temperatures_are_in_the_reported_logprobs(
    runner: asyncio.Runner, world: World, engine: Any
) -> None:
    async def work() -> list[Generation]:
        wanted = [0.0, 0.7, 1.3]
        return await asyncio.gather(
            *(engine.generate(prompt(3), sampling(3, temperature=t)) for t in wanted)
        )

    greedy, *others = runner.run(work())
    check_generation(world, prompt(3), greedy)
    for temperature, said in zip([0.7, 1.3], others, strict=True):
        check_generation(world, prompt(3), said, temperature)


def test_scores_equal_transformers(runner: asyncio.Runner, world: World, engine: Any) -> None:
    step = engine.version.step
    ids = prompt(4, 200)
    for temperature in (1.0, 0.5):
        found = runner.run(engine.score(ids, temperature))
        expected = world.logprobs(step, ids, len(ids) - 1, temperature)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert runner.run(engine.score([7], 1.0)).shape == (0,)


def test_a_seed_gives_the_same_tokens_again(runner: asyncio.Runner, engine: Any) -> None:
    async def work() -> list[Generation]:
        return await asyncio.gather(*(engine.generate(prompt(5), sampling(9)) for _ in range(3)))

    first, *others = runner.run(work())
    assert all(other.token_ids.tolist() == first.token_ids.tolist() for other in others)


def test_a_stop_token_ends_the_request_and_is_kept(runner: asyncio.Runner, engine: Any) -> None:
    free = runner.run(engine.generate(prompt(6), sampling(6)))
    stop = int(free.token_ids[10])
    first = free.token_ids.tolist().index(stop)
    said = runner.run(engine.generate(prompt(6), sampling(6, stop_token_ids=(stop,))))
    assert said.token_ids.tolist() == free.token_ids.tolist()[: first + 1]
    assert said.finish_reason == "stop"


def test_spans_are_where_the_logprobs_change(
    runner: asyncio.Runner, world: World, engine: Any
) -> None:
    answers = runner.run(over_two_swaps(world, engine))
    seen = set()
    for ids, said in answers:
        # Packed versions of branch 0 are the steps.
        seen.add(tuple(np.unique(said.versions)))
        assert (np.diff(said.versions) >= 0).all()
        check_generation(world, ids, said)
    assert any(len(versions) > 1 for versions in seen), seen
    assert engine.stats()["recomputed_tokens"] > 0


def test_the_prefix_cache_is_empty_after_a_swap(
    runner: asyncio.Runner, world: World, engine: Any
) -> None:
    """A prompt of more than one block, warm before the push: its first token is of new keys."""
    ids = prompt(30, 300)
    for _ in range(2):
        check_generation(world, ids, runner.run(engine.generate(ids, sampling(1, tokens=3))))
    runner.run(world.push(engine, engine.version.step + 1))
    check_generation(world, ids, runner.run(engine.generate(ids, sampling(1, tokens=3))))


def test_min_version_holds_a_request_back(
    runner: asyncio.Runner, world: World, engine: Any
) -> None:
    wanted = engine.version.step + 1

    async def work() -> Generation:
        task = asyncio.create_task(engine.generate(prompt(7), sampling(7, min_version=wanted)))
        await asyncio.sleep(0.2)
        assert not task.done()
        assert engine.stats()["waiting"] == 1
        await world.push(engine, wanted)
        return await task

    said = runner.run(work())
    assert set(said.versions.tolist()) == {wanted}


def test_a_cancelled_request_frees_its_slot(runner: asyncio.Runner, engine: Any) -> None:
    async def work() -> None:
        long = [
            asyncio.create_task(engine.generate(prompt(i), sampling(i, tokens=380)))
            for i in range(4)
        ]
        await until(lambda: engine.stats()["active"] == 4)
        waits = asyncio.create_task(engine.generate(prompt(9), sampling(9, tokens=4)))
        await until(lambda: engine.stats()["waiting"] == 1)
        begun = engine.stats()["tokens"]
        await until(lambda: engine.stats()["tokens"] > begun + 8)
        long[0].cancel()
        with pytest.raises(GenerationCancelled) as cancelled:
            await long[0]
        assert cancelled.value.num_tokens > 0
        said = await waits
        assert said.queue_s > 0
        assert not any(task.done() for task in long[1:])
        for task in long[1:]:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)
        assert engine.stats()["active"] == engine.stats()["waiting"] == 0

    runner.run(work())


def test_bad_requests_are_refused_before_vllm_sees_them(
    runner: asyncio.Runner, engine: Any
) -> None:
    fits = sampling(0, tokens=CONTEXT - 12)
    assert len(runner.run(engine.generate(prompt(0), fits)).token_ids) == CONTEXT - 12
    cases: list[tuple[list[int], Any, str]] = [
        (prompt(0, 13), fits, "do not fit model.max_context_tokens=400"),
        ([5, 100_000], sampling(0), "outside the model's vocabulary"),
        ([], sampling(0), "no tokens"),
        (prompt(0), sampling(0, temperature=0.001), "at least 0.01"),
        (prompt(0), sampling(0, version=0), "one weight set"),
        (prompt(0), sampling(0, tokens=0), "max_new_tokens=0"),
    ]
    for ids, asked, words in cases:
        with pytest.raises(GenerationError, match=words):
            runner.run(engine.generate(ids, asked))


def test_wrong_weights_are_refused_and_the_old_ones_stay(
    runner: asyncio.Runner, world: World, engine: Any, tmp_path: Path
) -> None:
    step = engine.version.step
    good = world.publish(step)
    store = FileWeightStore(tmp_path, keep=9)
    state = {n: t.clone() for n, t in world.models[step].state_dict().items()}
    norm = "model.norm.weight"
    broken = {
        "not finite": state | {norm: state[norm] * float("nan")},
        "has shape": state | {norm: state[norm][:5]},
        "lack": {n: t for n, t in state.items() if n != norm},
        "does not have": state | {"model.extra": state[norm] + 1},
    }
    version = PolicyVersion(0, step + 50)
    for words, tensors in broken.items():
        published = store.publish(version, tensors)
        with pytest.raises(WeightsError, match=words):
            runner.run(engine.load_weights(version, published.location, published.digest))
    with pytest.raises(WeightsError, match="announced was"):
        runner.run(engine.load_weights(version, good.location, "0" * 64))
    with pytest.raises(WeightsError, match="cannot be read"):
        runner.run(engine.load_weights(version, str(tmp_path / "none"), "0" * 64))
    with pytest.raises(WeightsError, match="older"):
        runner.run(engine.load_weights(PolicyVersion(0, 0), good.location, good.digest))
    assert engine.version.step == step
    check_generation(world, prompt(8), runner.run(engine.generate(prompt(8), sampling(8))))


def test_a_failed_update_is_tried_again_whole(
    runner: asyncio.Runner, world: World, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try fails inside vLLM, half of the layers loaded; requests are in flight."""
    from spade_async.engine.vllm.staged import StagedWeights

    step = engine.version.step + 1
    whole = StagedWeights.file_info
    tries: list[int] = []

    def info(staged: StagedWeights) -> dict[str, Any]:
        tries.append(len(tries))
        found = whole(staged)
        if len(tries) == 1:
            names = dict(found["names"])
            names["model.layers.1.self_attn.o_proj.weight"] = "model.norm.weight"
            found["names"] = names
        return found

    monkeypatch.setattr(StagedWeights, "file_info", info)

    async def work() -> list[Generation]:
        running = [
            asyncio.create_task(engine.generate(prompt(i), sampling(i, tokens=150)))
            for i in range(3)
        ]
        begun = engine.stats()["tokens"]
        await until(lambda: engine.stats()["tokens"] > begun + 20)
        await world.push(engine, step)
        return await asyncio.gather(*running)

    for i, said in enumerate(runner.run(work())):
        check_generation(world, prompt(i), said)
    assert len(tries) == 2
    assert engine.stats()["failed_updates"] == 1
    assert engine.stats()["engine_deaths"] == 0
    assert engine.version.step == step
