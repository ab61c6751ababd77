"""Weights that are not what the learner published: caught at the swap, no token of them used."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from spade_async.config.schema import Config, EngineConfig
from spade_async.engine.attested import CACHE_TOKENS, TOLERANCES, AttestedEngine, NotAttested
from spade_async.engine.builtin import BuiltinEngine
from spade_async.engine.protocol import Generation, LoadReport, Sampling
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import GenerationError, WeightsError
from spade_async.learner.attest import attestation
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.types import PolicyVersion
from spade_async.weights.attestation import (
    PROBE_TOKENS,
    Attestation,
    probe_sequences,
)
from spade_async.weights.digest import tensor_digests
from spade_async.weights.store import FileWeightStore, Published
from tests.support.tiny_model import make_tiny_llama
from tests.support.train_samples import random_samples

torch.set_num_threads(1)

SEED = 17
STEPS = 3


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"))


class World:
    """What a learner published over some steps: weights and its own numbers."""

    def __init__(self, model_folder: Path, root: Path) -> None:
        self.model_folder = model_folder
        self.store = FileWeightStore(root, keep=10)
        config = Config.model_validate({"learner": {"lr": 1e-4, "warmup_steps": 0}})
        state = LearnerState.create(model_folder, config.learner, PolicyVersion(0, 0))
        updater = Updater(state, config)
        self.published: list[tuple[Published, Attestation]] = []
        for step in range(STEPS + 1):
            if step:
                assert updater.update(random_samples(8, seed=step), step).applied
            files = self.store.publish(PolicyVersion(0, step), state.published_tensors())
            self.published.append((files, attestation(state, state.published_tensors(), SEED)))

    async def engine(self, *, general: bool = False) -> tuple[BuiltinEngine, AttestedEngine]:
        inner = await BuiltinEngine.create(
            self.model_folder, EngineConfig(slots=4), 64, general=general
        )
        return inner, AttestedEngine(inner)

    async def load(self, engine: AttestedEngine, step: int, weights_of: int | None = None) -> float:
        """Load version `step`; the file may be that of another step."""
        _, expected = self.published[step]
        files, _ = self.published[step if weights_of is None else weights_of]
        done = await engine.load_attested(
            PolicyVersion(0, step), files.location, files.digest, expected
        )
        return done.probe_gap


@pytest.fixture(scope="module")
def world(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(model_folder, tmp_path_factory.mktemp("weights"))


def run(body: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 60))  # type: ignore[arg-type]


def sampling(**changes: object) -> Sampling:
    values: dict[str, object] = {
        "temperature": 1.0, "max_new_tokens": 8, "stop_token_ids": (), "seed": 3,
    }  # fmt: skip
    return Sampling(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("general", [False, True])
def test_honest_weights_attest_at_every_step_well_within_the_tolerance(
    world: World, general: bool
) -> None:
    async def body() -> None:
        _, engine = await world.engine(general=general)
        for step in range(STEPS + 1):
            gap = await world.load(engine, step)
            assert gap < TOLERANCES["float32"] / 10
        generation = await engine.generate([5, 6, 7], sampling())
        assert set(generation.versions.tolist()) == {PolicyVersion(0, STEPS).packed}
        await engine.close()

    run(body)


@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "lm_head.weight"])
def test_one_element_of_one_tensor_corrupted_after_the_load_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def body() -> None:
        inner, engine = await world.engine()
        real = inner.load_weights

        async def load_and_corrupt(v: PolicyVersion, location: str, digest: str) -> LoadReport:
            report = await real(v, location, digest)
            inner._model.parameters.tensor(name).data.view(-1)[3] += 1e-6
            return report

        monkeypatch.setattr(inner, "load_weights", load_and_corrupt)
        with pytest.raises(NotAttested, match=r"tensors differ .* first (lm_head|model)") as caught:
            await world.load(engine, 1)
        tied = name == "lm_head.weight"
        # A tied tensor is wrong under both of its names.
        assert caught.value.reason.startswith("2 of" if tied else "1 of")
        monkeypatch.setattr(inner, "load_weights", real)
        await world.load(engine, 1)
        assert (await engine.generate([5], sampling())).versions[0] == PolicyVersion(0, 1).packed
        await engine.close()

    run(body)


def test_a_load_that_does_nothing_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        inner, engine = await world.engine()
        await world.load(engine, 1)

        async def skip(version: PolicyVersion, location: str, digest: str) -> LoadReport:
            inner._decoder.version = version.packed
            return LoadReport(version, digest, 0.0, 0.0)

        monkeypatch.setattr(inner, "load_weights", skip)
        with pytest.raises(NotAttested, match="tensors differ"):
            await world.load(engine, 2)
        await engine.close()

    run(body)


def test_older_weights_under_a_new_name_are_caught_one_step_later(world: World) -> None:
    async def body() -> None:
        _, engine = await world.engine()
        await world.load(engine, 1)
        with pytest.raises(NotAttested, match=r"weights 0\.2 do not attest: .* tensors differ"):
            await world.load(engine, 2, weights_of=1)
        await engine.close()

    run(body)


@pytest.mark.parametrize("fault", ["stale", "noise"])
def test_a_poisoned_cache_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async def body() -> None:
        inner, engine = await world.engine()
        await world.load(engine, 1)
        cache = inner._decoder.cache
        real = cache.write

        def write(layer: int, places: torch.Tensor, keys: torch.Tensor, values: torch.Tensor):
            # Entries of another prompt stay, or what is stored is not what was computed.
            if fault == "noise":
                real(layer, places, keys, values + 0.5)

        await engine.generate([9, 8, 7, 6, 5, 4, 3], sampling())
        monkeypatch.setattr(cache, "write", write)
        with pytest.raises(NotAttested, match="the cache"):
            await world.load(engine, 2)
        monkeypatch.setattr(cache, "write", real)
        await world.load(engine, 2)
        await engine.close()

    run(body)


def test_an_engine_without_digests_is_judged_by_the_probe(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        inner, engine = await world.engine()

        async def none() -> dict[str, str]:
            return {}

        monkeypatch.setattr(inner, "tensor_digests", none)
        await world.load(engine, 1)
        inner._model.parameters.tensor("model.norm.weight").data.mul_(1.5)
        real = inner.load_weights

        async def skip(version: PolicyVersion, location: str, digest: str) -> LoadReport:
            inner._decoder.version = version.packed
            return LoadReport(version, digest, 0.0, 0.0)

        monkeypatch.setattr(inner, "load_weights", skip)
        with pytest.raises(NotAttested, match="the probe's log-probabilities differ by"):
            await world.load(engine, 2)
        monkeypatch.setattr(inner, "load_weights", real)
        await world.load(engine, 2)
        await engine.close()

    run(body)


def test_no_token_of_a_rejected_load_is_given_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        inner, engine = await world.engine()
        await world.load(engine, 1)
        real_load, real_digests = inner.load_weights, inner.tensor_digests
        good_then_bad = asyncio.create_task(engine.generate([5, 6], sampling(max_new_tokens=50)))
        await _until(lambda: inner.stats()["tokens"] > 2)
        may_check = asyncio.Event()

        async def load_and_corrupt(v: PolicyVersion, location: str, digest: str) -> LoadReport:
            report = await real_load(v, location, digest)
            inner._model.parameters.tensor("model.norm.weight").data[0] += 0.5
            return report

        async def held_back() -> dict[str, str]:
            await may_check.wait()
            return await real_digests()

        monkeypatch.setattr(inner, "load_weights", load_and_corrupt)
        monkeypatch.setattr(inner, "tensor_digests", held_back)
        loading = asyncio.create_task(world.load(engine, 2))
        await _until(lambda: inner.version == PolicyVersion(0, 2))
        begun_on_bad = asyncio.create_task(engine.generate([7], sampling()))
        await _until(lambda: inner.stats()["active"] == 0)
        # Both are done in the engine and wait for the verdict.
        assert not good_then_bad.done()
        assert not begun_on_bad.done()
        may_check.set()
        with pytest.raises(NotAttested):
            await loading
        for task in (good_then_bad, begun_on_bad):
            with pytest.raises(GenerationError, match=r"weights 0\.2 that did not attest: 1 of"):
                await task
        held = asyncio.create_task(engine.generate([8], sampling()))
        await asyncio.sleep(0.05)
        assert not held.done()
        monkeypatch.setattr(inner, "load_weights", real_load)
        await world.load(engine, 2)
        generation = await held
        # What was held back has only tokens of the good weights.
        scored = await inner.score([8, *generation.token_ids.tolist()], 1.0)
        np.testing.assert_allclose(scored, generation.logprobs, atol=1e-4)
        await engine.close()

    run(body)


def test_a_load_that_fails_leaves_the_weights_before_in_use(world: World) -> None:
    async def body() -> None:
        _, engine = await world.engine()
        await world.load(engine, 1)
        with pytest.raises(WeightsError, match="cannot be read"):
            await engine.load_attested(PolicyVersion(0, 2), "/nowhere", "d", Attestation())
        generation = await engine.generate([5], sampling())
        assert set(generation.versions.tolist()) == {PolicyVersion(0, 1).packed}
        await engine.close()

    run(body)


def test_an_engine_without_logprobs_is_told_at_its_first_load_unless_nothing_needs_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        inner, needing = await world.engine()
        real = inner.generate

        async def silent(prompt_ids: list[int], sampling: Sampling) -> Generation:
            said = await real(prompt_ids, sampling)
            return dataclasses.replace(said, logprobs=np.full_like(said.logprobs, np.nan))

        monkeypatch.setattr(inner, "generate", silent)
        with pytest.raises(
            NotAttested, match=r'no log-probabilities.*learner\.correction\.rule="none"'
        ):
            await world.load(needing, 0)
        await world.load(AttestedEngine(inner, needs_logprobs=False), 0)
        await inner.close()

    run(body)


def test_a_scripted_engine_attests_when_nothing_is_asked() -> None:
    async def body() -> None:
        inner = ScriptedEngine([[65, 66]])
        engine = AttestedEngine(inner)
        done = await engine.load_attested(PolicyVersion(0, 1), "w", "d", Attestation())
        assert (done.probe_gap, done.report.version) == (0.0, PolicyVersion(0, 1))
        assert inner.prompts == []
        found: Generation = await engine.generate([1], sampling())
        assert found.token_ids.tolist() == [65, 66]

    run(body)


def test_the_probe_is_fixed_by_seed_and_vocabulary_and_fits_the_shortest_context() -> None:
    first = probe_sequences(1, 64)
    assert (first == probe_sequences(1, 64)).all()
    assert (first != probe_sequences(2, 64)).any()
    assert first.min() >= 0
    assert first.max() < 64
    assert PROBE_TOKENS + CACHE_TOKENS <= 16


def test_a_digest_tells_type_shape_and_every_bit() -> None:
    base = torch.arange(6, dtype=torch.float32)
    other = base.clone()
    other[2] = torch.nextafter(other[2], torch.tensor(9.0))
    found = tensor_digests(
        {"a": base, "same": base.clone(), "bit": other, "shape": base.view(2, 3),
         "type": base.int(), "view": torch.arange(12.0)[::2] / 2, "empty": base[:0]}
    )  # fmt: skip
    assert found["a"] == found["same"] == found["view"]
    assert len({found[n] for n in ("a", "bit", "shape", "type", "empty")}) == 5


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - it happens in the thread of the engine
        await asyncio.sleep(0.002)
