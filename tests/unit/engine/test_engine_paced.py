"""The engine of a scripted run: what it says, how long it takes, and under which version."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from pathlib import Path

import numpy as np
import pytest

from spade_async.config.scripted import ScriptedConfig
from spade_async.domain import ChatTurn
from spade_async.engine import scripted_domain as domain
from spade_async.engine.protocol import Generation, Sampling
from spade_async.engine.scripted_codec import ScriptedCodec
from spade_async.engine.scripted_paced import PacedEngine, Script
from spade_async.engine.scripted_programs import FAULTS, MAX_TURNS, NUM_NAMES, Program
from spade_async.engine.scripted_weights import logprobs, weights_of, write_weights
from spade_async.errors import GenerationError, WeightsError
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.asynchronous import run_async

CODEC = ScriptedCodec()
DESIGN = CODEC.encode_prompt(domain.designer_messages(skill="x", document="", exemplars=[]))
PLAIN = CODEC.encode_prompt(domain.agent_messages("see", None))
HINTED = CODEC.encode_prompt(domain.agent_messages("see", "a hint"))


def sampling(seed: int, *, most: int = 10_000, min_version: int = 0) -> Sampling:
    return Sampling(1.0, most, CODEC.stop_token_ids, seed, min_version)


def lengths(config: ScriptedConfig, prompt: list[int], count: int = 4000) -> list[int]:
    script = Script(config)
    return [script.say(prompt, sampling(i), 0, 0.0).num_tokens for i in range(count)]


def replies(config: ScriptedConfig, prompt: list[int], count: int = 4000) -> list[str]:
    script = Script(config)
    said = [script.say(prompt, sampling(i), 0, 0.0) for i in range(count)]
    return [CODEC.decode([s.first]) for s in said]


def test_lengths_are_log_normal_with_the_stated_mean_and_deviation() -> None:
    found = lengths(ScriptedConfig(episode_tokens=1000.0, sigma=0.5), PLAIN)
    # Standard error of the mean: 1000 * sqrt(exp(0.25) - 1) / sqrt(4000) = 8.4.
    assert statistics.fmean(found) == pytest.approx(1000, abs=34)
    # Of the logarithm's deviation: 0.5 / sqrt(8000) = 0.0056.
    assert statistics.stdev(map(math.log, found)) == pytest.approx(0.5, abs=0.023)


def test_no_deviation_gives_the_mean_and_the_limit_cuts() -> None:
    config = ScriptedConfig(design_tokens=60.0, sigma=0.0)
    assert set(lengths(config, DESIGN, 5)) == {60}
    assert Script(config).say(DESIGN, sampling(1, most=10), 0, 0.0).num_tokens == 10


def test_same_seed_says_the_same() -> None:
    config = ScriptedConfig()
    assert replies(config, DESIGN, 50) == replies(config, DESIGN, 50)


def test_shares_of_what_is_said_are_the_configured_ones() -> None:
    config = ScriptedConfig(validity=0.8, solve_no_hint=0.3, solve_with_hint=0.9, stuck_share=0.25)
    programs = [Program.of_source(text) for text in replies(config, DESIGN)]
    faults = [None if p is None else p.fault for p in programs]
    # Four standard errors of a share over 4000 draws are at most 0.032.
    valid = [f for f in faults if f in ("", "stuck")]
    assert len(valid) / 4000 == pytest.approx(0.8, abs=0.032)
    assert valid.count("stuck") / len(valid) == pytest.approx(0.25, abs=0.032)
    assert {None, "load", "reset"} <= set(faults)
    assert replies(config, PLAIN).count("right") / 4000 == pytest.approx(0.3, abs=0.032)
    assert replies(config, HINTED).count("right") / 4000 == pytest.approx(0.9, abs=0.032)


def test_lengths_change_at_a_step_or_a_time_and_designs_do_not() -> None:
    by_step = Script(ScriptedConfig(sigma=0.0, change_factor=4.0, change_at_step=5))
    assert [by_step.say(PLAIN, sampling(1), s, 0.0).num_tokens for s in (4, 5)] == [20, 80]
    assert by_step.say(DESIGN, sampling(1), 5, 0.0).num_tokens == 40
    by_time = Script(ScriptedConfig(sigma=0.0, change_factor=4.0, change_at_s=2.0))
    assert [by_time.say(PLAIN, sampling(1), 0, s).num_tokens for s in (1.9, 2.0)] == [20, 80]


@pytest.mark.parametrize("fault", FAULTS)
def test_program_is_its_code_and_its_source(fault: str) -> None:
    program = Program(NUM_NAMES - 1, MAX_TURNS, fault)
    assert Program.of_code(program.code) == program
    assert Program.of_source(program.source) == program
    compile(program.source, "program", "exec")
    assert Program.of_source("class HealthEnv:\n    pass\n") is None


def test_codec_counts_words_and_reads_replies() -> None:
    assert len(CODEC.encode_prompt([ChatTurn("user", "plain a b c")])) == 4
    assert CODEC.decode([]) == ""
    assert domain.parse_program(CODEC.decode([12])) is None


@run_async
async def test_slots_bound_how_many_requests_take_their_time_together() -> None:
    engine = PacedEngine(ScriptedConfig(sigma=0.0, episode_tokens=50.0, token_s=0.002), slots=2)
    began = time.monotonic()
    await asyncio.gather(*(engine.generate(PLAIN, sampling(i)) for i in range(4)))
    # Two rounds of 100 ms; one round would be less, and nothing is faster than that.
    assert time.monotonic() - began >= 0.2
    stats = engine.stats()
    # 4 requests of 100 ms in 2 slots keep half of each of two slots busy: 0.2 s at least.
    assert stats["busy_s"] >= 0.2
    assert stats["busy_s"] + stats["idle_s"] >= 0.2
    assert (stats["requests"], stats["tokens"], stats["active"]) == (4, 200, 0)


@run_async
async def test_swap_under_a_request_mixes_versions_with_the_numbers_of_each(tmp_path: Path) -> None:
    store, version = FileWeightStore(tmp_path), PolicyVersion(0, 1)
    published = store.publish_file(version, lambda path: write_weights(path, version))
    engine = PacedEngine(ScriptedConfig(sigma=0.0, episode_tokens=200.0, token_s=0.005), slots=1)
    request = asyncio.create_task(engine.generate(PLAIN, sampling(3)))
    await asyncio.sleep(0.3)
    report = await engine.load_weights(version, published.location, published.digest)
    assert report.digest == published.digest
    generation: Generation = await request
    assert list(np.unique(generation.versions)) == [0, version.packed]
    assert (np.diff(generation.versions) >= 0).all()
    for packed in (0, version.packed):
        mine = generation.versions == packed
        weights = weights_of(PolicyVersion.unpack(packed))["scripted"]
        expected = logprobs(weights, generation.token_ids[mine])
        np.testing.assert_array_equal(generation.logprobs[mine], expected)
    with pytest.raises(WeightsError, match="older"):
        await engine.load_weights(PolicyVersion(0, 0), published.location, published.digest)
    with pytest.raises(WeightsError, match="digest"):
        await engine.load_weights(version, published.location, "0" * 64)


@run_async
async def test_request_waits_for_its_version(tmp_path: Path) -> None:
    store, version = FileWeightStore(tmp_path), PolicyVersion(0, 1)
    published = store.publish_file(version, lambda path: write_weights(path, version))
    engine = PacedEngine(ScriptedConfig(token_s=0.0), slots=1)
    request = asyncio.create_task(engine.generate(PLAIN, sampling(1, min_version=version.packed)))
    await asyncio.sleep(0.05)
    assert not request.done()
    await engine.load_weights(version, published.location, published.digest)
    assert set((await request).versions) == {version.packed}


@run_async
async def test_hanging_request_keeps_its_slot_and_a_dead_engine_says_so() -> None:
    engine = PacedEngine(ScriptedConfig(token_s=0.0, hang_share=1.0), slots=1)
    request = asyncio.create_task(engine.generate(PLAIN, sampling(1)))
    await asyncio.sleep(0.05)
    assert engine.stats()["active"] == 1
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert engine.stats()["active"] == 0
    dead = PacedEngine(ScriptedConfig(token_s=0.0, engine_dies_after=1), slots=1)
    await dead.generate(PLAIN, sampling(1))
    with pytest.raises(GenerationError, match="engine_dies_after=1"):
        await dead.generate(PLAIN, sampling(2))
