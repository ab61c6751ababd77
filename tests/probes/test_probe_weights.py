"""Probes of weights that did not arrive, or arrived partly. Rows 17-24 of docs/probes.md."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade_async.config.schema import EngineConfig
from spade_async.engine.builtin import BuiltinEngine
from spade_async.engine.protocol import Generation, Sampling
from spade_async.transport import messages as m
from spade_async.types import PolicyVersion
from spade_async.weights.store import FileWeightStore
from tests.support.asynchronous import run_async
from tests.support.probe_world import FaultyGenerator, ProbeRun
from tests.support.tiny_chat_model import different_weights, make_chat_model

CONTEXT = 128
PROMPT = [5 + i % 80 for i in range(40)]


def network(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def full_pass(model: Any, weights: dict[str, Any], ids: list[int], temperature: float) -> Any:
    """[L - 1] log-probabilities of every token but the first, by one plain forward pass."""
    import torch

    model.load_state_dict(weights)
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, :-1] / temperature
        chosen = torch.tensor(ids[1:]).unsqueeze(1)
        return torch.log_softmax(logits, -1).gather(1, chosen).squeeze(1).numpy()


def worst_error(model: Any, weights: dict[int, Any], made: Generation, temperature: float) -> float:
    """Of all tokens, each against a full pass under the version it is tagged with."""
    whole = [*PROMPT, *made.token_ids.tolist()]
    errors = []
    for version in np.unique(made.versions):
        wanted = full_pass(model, weights[int(version)], whole, temperature)[len(PROMPT) - 1 :]
        errors.append(np.abs(wanted - made.logprobs)[made.versions == version].max())
    return float(max(errors))


# Rows 17 and 20: every option that keeps something over a swap --------------------------------


@pytest.mark.parametrize("on_swap", ["recompute", "keep"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@run_async
async def test_a_request_after_a_swap_says_what_a_cold_server_says(
    tmp_path: Path, tied: bool, on_swap: str
) -> None:
    """Same prompt before and after: nothing cached under the old weights may speak."""
    folder = make_chat_model(tmp_path / "model", tied=tied)
    store = FileWeightStore(tmp_path / "weights")
    weights = different_weights(network(folder), seed=7)
    version = PolicyVersion(0, 17)
    published = store.publish(version, weights)
    asked = Sampling(1.0, 20, stop_token_ids=(), seed=3)
    config = EngineConfig(slots=2, prefill_tokens=16, on_swap=on_swap)  # type: ignore[arg-type]
    warm = await BuiltinEngine.create(folder, config, CONTEXT)
    cold = await BuiltinEngine.create(folder, config, CONTEXT)
    try:
        for _ in range(3):
            before = await warm.generate(PROMPT, asked)
        for engine in (warm, cold):
            await engine.load_weights(version, published.location, published.digest)
        after, fresh = await warm.generate(PROMPT, asked), await cold.generate(PROMPT, asked)
        scores = [await engine.score(PROMPT, 1.0) for engine in (warm, cold)]
    finally:
        await warm.close()
        await cold.close()
    assert after.token_ids.tolist() == fresh.token_ids.tolist() != before.token_ids.tolist()
    np.testing.assert_array_equal(after.logprobs, fresh.logprobs)
    np.testing.assert_array_equal(*scores)
    assert set(after.versions.tolist()) == {version.packed}


# Rows 21 and 39: publishing all the time -----------------------------------------------------


@run_async
async def test_tokens_sampled_while_weights_are_published_all_the_time_are_those_of_their_tags(
    tmp_path: Path,
) -> None:
    folder = make_chat_model(tmp_path / "model")
    model = network(folder)
    weights = {0: {name: tensor.clone() for name, tensor in model.state_dict().items()}}
    store = FileWeightStore(tmp_path / "weights", keep=3)
    engine = await BuiltinEngine.create(folder, EngineConfig(slots=3), CONTEXT)
    asked = [Sampling(0.7, 80, stop_token_ids=(), seed=seed) for seed in range(6)]
    requests = [asyncio.create_task(engine.generate(PROMPT, one)) for one in asked]
    try:
        step = 0
        while not all(request.done() for request in requests):
            step += 1
            version = PolicyVersion(0, step)
            weights[version.packed] = different_weights(model, seed=100 + step)
            published = store.publish(version, weights[version.packed])
            await engine.load_weights(version, published.location, published.digest)
        made = await asyncio.gather(*requests)
    finally:
        await engine.close()
    # One request was interrupted at least five times.
    assert max(len(np.unique(one.versions)) for one in made) > 5
    for one in made:
        assert len(one.token_ids) == len(one.logprobs) == len(one.versions) == 80
        assert np.isfinite(one.logprobs).all()
        assert (np.diff(one.versions) >= 0).all()
        assert worst_error(model, weights, one, 0.7) < 1e-5


# Row 23: an evaluation of the stated version ---------------------------------------------------


def evaluation_on(versions: Any) -> Any:
    """Answers of evaluations carry other tags than they were asked for."""

    def alter(answer: m.Message) -> list[m.Message]:
        if isinstance(answer, m.EpisodeResult) and answer.purpose == "eval":
            tags = versions(answer)
            return [dataclasses.replace(answer, versions=tags)]
        return [answer]

    return alter


def test_every_scored_episode_is_of_the_version_its_row_states(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", eval={"every": 2, "instances_per_level": 4})
    seen: list[tuple[str, set[int]]] = []

    def note(answer: m.Message) -> list[m.Message]:
        if isinstance(answer, m.EpisodeResult) and answer.purpose == "eval":
            sampled = answer.versions[answer.loss_mask == 1]
            seen.append((answer.task_id, set(sampled.tolist())))
        return [answer]

    run.go(FaultyGenerator(note, missing=0.0))
    assert {(tag, frozenset(v)) for tag, v in seen} == {
        (tag, frozenset({PolicyVersion(*map(int, tag.split("-")[1].split("."))).packed}))
        for tag, _ in seen
    }
    packed = {row[0] for row in run.query("SELECT packed FROM evals")}
    assert packed == {version for _, versions in seen for version in versions}


def test_an_evaluation_whose_tags_are_wrong_is_missing_and_told_and_ends_the_run(
    tmp_path: Path,
) -> None:
    run = ProbeRun(tmp_path / "run")

    def one_behind(answer: m.EpisodeResult) -> Any:
        return np.where(answer.loss_mask == 1, answer.versions - 1, answer.versions)

    coordinator = run.go(FaultyGenerator(evaluation_on(one_behind), missing=0.0))
    assert len(run.batches) == 6
    assert run.query("SELECT COUNT(*) FROM evals") == [(0,)]
    told = [a.text for a in coordinator.core.alerts.recent if a.kind == "evaluation_missing"]
    # The second says the same with other numbers: it is held back.
    assert told == ["evaluation of version 0.0: 8 of 8 episodes are missing"]


# Wrong tags of what is trained -----------------------------------------------------------------

WRONG: dict[str, Any] = {
    "never published": lambda a: {
        "versions": np.where(a.loss_mask == 1, a.versions + 1000, a.versions)
    },
    "has no version": lambda a: {"versions": np.full_like(a.versions, -1)},
    "nobody sampled": lambda a: {"versions": np.zeros_like(a.versions)},
    "have lengths": lambda a: {"versions": a.versions[:-1]},
}


@pytest.mark.parametrize("problem", WRONG)
@pytest.mark.parametrize("record", [m.EpisodeResult, m.DesignResult])
def test_tokens_with_wrong_tags_are_missing_with_the_reason_and_never_trained(
    tmp_path: Path, problem: str, record: type[m.Message]
) -> None:
    run = ProbeRun(tmp_path / "run", train={"steps": 4})
    spoilt: list[str] = []

    def alter(answer: m.Message) -> list[m.Message]:
        is_train = isinstance(answer, record) and getattr(answer, "arm", "no_hint") == "no_hint"
        if not is_train or getattr(answer, "purpose", "train") != "train" or len(spoilt) >= 3:
            return [answer]
        index = f".{answer.index}" if isinstance(answer, m.EpisodeResult) else ""
        spoilt.append(f"{answer.task_id}{index}")  # type: ignore[attr-defined]
        return [dataclasses.replace(answer, **WRONG[problem](answer))]

    coordinator = run.go(FaultyGenerator(alter, missing=0.0))
    assert len(run.batches) == 4
    assert len(spoilt) == 3
    columns = "sample_id, missing_reason, num_trained_tokens, trained_ordinal"
    rows = {row[0]: row[1:] for row in run.query(f"SELECT {columns} FROM samples")}
    for sample_id in spoilt:
        reason, num_tokens, trained = rows[sample_id]
        assert problem in reason
        assert reason.startswith("ours: wrong tags: ")
        assert (num_tokens, trained) == (0, None)
    assert {a.kind for a in coordinator.core.alerts.recent} >= {"wrong_tags"}
    run.check()


def test_a_generator_that_samples_on_older_weights_than_asked_is_not_trained(
    tmp_path: Path,
) -> None:
    run = ProbeRun(tmp_path / "run", **{"async": {"staleness": 0}})
    late = 0

    def alter(answer: m.Message) -> list[m.Message]:
        nonlocal late
        if isinstance(answer, m.EpisodeResult) and answer.purpose == "train" and late < 4:
            newer = answer.versions[answer.loss_mask == 1] > 0
            if newer.all():
                late += 1
                stale = np.where(answer.loss_mask == 1, answer.versions - 1, answer.versions)
                return [dataclasses.replace(answer, versions=stale)]
        return [answer]

    run.go(FaultyGenerator(alter, missing=0.0))
    assert len(run.batches) == 6
    assert late == 4
    reasons = run.query("SELECT missing_reason FROM samples WHERE missing_reason IS NOT NULL")
    assert len(reasons) == 4
    assert all("asked for" in reason for (reason,) in reasons)
    run.check()
