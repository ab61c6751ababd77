"""Probes of hangs: whatever is lost, late or wrong, a run ends well or with a name within 10 s.

Rows 1-15 of docs/probes.md.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from spade_async.agent.episode import Play, Player, PlayLimits, play_episode
from spade_async.coordinator.core import CUT
from spade_async.coordinator.fruitless import TOLD_AFTER, Fruitless
from spade_async.designer import games
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import ProcessFailure
from spade_async.sandbox import Pool, SandboxPolicy
from spade_async.transport import messages as m
from spade_async.types import Arm, Outcome, Role
from tests.support import probe_domain
from tests.support.fake_tokens import STOP, FakeTokens, ids
from tests.support.probe_world import FaultyGenerator, ProbeRun
from tests.support.scripted_run import ScriptedLearner

NO_POOL = {"domain": {"hook": "spade_async.designer.games"}}


def steps(run: ProbeRun) -> list[int]:
    return [batch.step for batch in run.batches]


# Row 1: a dead collector ---------------------------------------------------------------------


def test_a_fault_in_the_producing_task_ends_the_coordinator_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = itertools.count()

    def seed_environments(seed: int) -> Any:
        if next(given) == 5:
            raise RuntimeError("the seed pool is broken")
        return iter([f"class S{seed % 9}Env: pass"])

    monkeypatch.setattr(probe_domain, "seed_environments", seed_environments)
    run = ProbeRun(tmp_path / "run")
    with pytest.raises(RuntimeError, match="the seed pool is broken"):
        run.go()
    assert run.seconds < 10.0


def test_a_fault_while_a_result_is_taken_in_is_not_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: str) -> dict[str, str]:
        raise RuntimeError("labels are broken")

    monkeypatch.setattr(probe_domain, "labels", broken)
    with pytest.raises(RuntimeError, match="labels are broken"):
        ProbeRun(tmp_path / "run").go()


# Row 2: the data end -------------------------------------------------------------------------


def test_a_corpus_of_ten_documents_is_gone_through_again(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", train={"steps": 12})
    run.go()
    assert steps(run) == list(range(1, 13))
    used = [row[0] for row in run.query("SELECT document_id FROM groups WHERE role = 'designer'")]
    assert len(set(used)) == 10
    assert len(used) > 20
    run.check()


def test_a_domain_without_a_seed_pool_trains_on_designs_alone(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", **NO_POOL)
    run.go(FaultyGenerator(missing=0.0))
    assert len(run.batches) == 6
    run.check()


# Rows 3, 5, 7: results that never come -------------------------------------------------------


def test_three_swallowed_results_are_cut_by_name_and_the_run_ends(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run")
    swallowed: list[str] = []

    def swallows(answer: m.Message) -> list[m.Message]:
        is_result = isinstance(answer, m.EpisodeResult) and answer.purpose == "train"
        if is_result and len(swallowed) < 3 and answer.index == 1:  # type: ignore[union-attr]
            swallowed.append(f"{answer.task_id}.1")  # type: ignore[union-attr]
            return []
        return [answer]

    run.go(FaultyGenerator(swallows, missing=0.0))
    assert len(run.batches) == 6
    assert len(swallowed) == 3
    counters = run.check()
    assert counters["tasks_cut"] >= 3
    rows = dict(run.query("SELECT sample_id, missing_reason FROM samples"))
    assert {rows[sample_id] for sample_id in swallowed} == {CUT}
    trained = {s for batch in run.batches for s in batch.sample_ids}
    assert not trained & set(swallowed)


@pytest.mark.parametrize("what", ["design", "no_hint", "with_hint", "eval"])
def test_a_task_that_is_accepted_and_dropped_holds_up_nobody(tmp_path: Path, what: str) -> None:
    """One whole task of each kind never answers (a waiter for one id would wait for ever)."""
    run = ProbeRun(
        tmp_path / "run",
        eval={"every": 2, "instances_per_level": 4},
        **{"async": {"staleness": 1}},
    )
    dropped: set[str] = set()

    def drops(answer: m.Message) -> list[m.Message]:
        kind = "design" if isinstance(answer, m.DesignResult) else ""
        if isinstance(answer, m.EpisodeResult):
            kind = "eval" if answer.purpose == "eval" else answer.arm
        if kind == what and (not dropped or answer.task_id in dropped):  # type: ignore[attr-defined]
            dropped.add(answer.task_id)  # type: ignore[attr-defined]
            return []
        return [answer]

    run.go(FaultyGenerator(drops, missing=0.0))
    assert len(run.batches) == 6
    assert len(dropped) == 1
    assert run.check()["tasks_cut"] >= 1


# Row 4: a prompt that is too long for ever ---------------------------------------------------

TOO_LONG = "ours: SpadeError: the designer's prompt is too long: raise model.max_context_tokens"


def designs_are_missing(answer: m.Message) -> list[m.Message]:
    if isinstance(answer, m.DesignResult):
        return [dataclasses.replace(answer, missing_reason=TOO_LONG, source="", rejection=None)]
    return [answer]


def test_a_run_that_makes_nothing_but_missing_designs_ends_with_the_reason(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", **NO_POOL)
    with pytest.raises(ProcessFailure, match=r"designer groups in a row.*raise model.max_context"):
        run.go(FaultyGenerator(designs_are_missing))
    assert run.seconds < 10.0
    assert run.batches == []


def test_with_a_seed_pool_the_run_goes_on_and_tells_once_why_nothing_is_designed(
    tmp_path: Path,
) -> None:
    run = ProbeRun(tmp_path / "run")
    coordinator = run.go(FaultyGenerator(designs_are_missing, missing=0.0))
    assert len(run.batches) == 6
    told = [a for a in coordinator.core.alerts.recent if a.kind == "groups_missing"]
    assert len(told) == 1
    assert "raise model.max_context" in told[0].text
    run.check()


def test_episodes_that_are_all_missing_end_the_run_with_the_reason(tmp_path: Path) -> None:
    def fails(answer: m.Message) -> list[m.Message]:
        if isinstance(answer, m.EpisodeResult) and answer.purpose != "eval":
            reason = "ours: GenerationError: a prompt of 385 tokens"
            return [dataclasses.replace(answer, episode_return=None, missing_reason=reason)]
        return [answer]

    run = ProbeRun(tmp_path / "run")
    with pytest.raises(ProcessFailure, match=r"groups in a row.*prompt of 385 tokens"):
        run.go(FaultyGenerator(fails))
    assert run.seconds < 10.0


def test_what_dies_with_a_part_is_no_streak_and_a_step_ends_one() -> None:
    counts = Fruitless({Role.DESIGNER: 10, Role.AGENT: 20})
    # Everything that can be out of both roles at once, twice with a step between.
    for _ in range(2):
        told = [counts.came_to_nothing(Role.DESIGNER, "dead") for _ in range(10)]
        told += [counts.came_to_nothing(Role.AGENT, "dead") for _ in range(20)]
        counts.step_made()
    assert told.count(None) == len(told)  # told in the first round alone
    counts.came_to_something(Role.DESIGNER)
    told = [counts.came_to_nothing(Role.DESIGNER, "dead") for _ in range(20)]
    assert [i for i, text in enumerate(told, 1) if text] == [TOLD_AFTER]
    # Most of what makes every group fail is a key that no resume may change.
    wanted = (
        r"21 designer groups in a row.*; mend that, then --resume, or a new run where a setting"
    )
    with pytest.raises(ProcessFailure, match=wanted):
        counts.came_to_nothing(Role.DESIGNER, "dead")


# Rows 6 and 15: a program that never returns -------------------------------------------------

STUCK = """
class StuckEnv:
    def reset(self, seed=None):
        self.seed = seed
        return f"instance {seed}", {}
    def step(self, action):
        while self.seed % 4 == 0:
            pass
        return "done", 1.0, True, False, {}
"""
SLEEPS = STUCK.replace("            pass", "            import time; time.sleep(10 ** 6)")


@pytest.mark.parametrize("source", [STUCK, SLEEPS], ids=["while-true", "sleeps"])
def test_a_reward_that_never_returns_costs_its_own_episode_and_one_time_limit(source: str) -> None:
    policy = SandboxPolicy(num_workers=4, spares=2, wall_s_per_call=0.5, cpu_s_per_call=0.5)

    async def play_all() -> list[Any]:
        async with Pool(policy) as pool:
            engine = ScriptedEngine(lambda prompt, sampling: [*ids("x"), STOP])
            player = Player(engine, FakeTokens(), pool, games)
            limits = PlayLimits(1, 10, 10_000, 1.0)
            return await asyncio.gather(
                *(
                    play_episode(
                        player, Play("e", source, "none", "", Arm.NO_HINT, seed, seed), limits
                    )
                    for seed in range(12)
                )
            )

    played = asyncio.run(play_all())
    for seed, one in enumerate(played):
        if seed % 4 == 0:
            assert one.episode.episode_return is None
            assert one.episode.outcome is Outcome.TIMED_OUT
            assert one.episode.missing_reason == "environment: timed_out in step 1"
        else:
            assert one.episode.episode_return == 1.0


# Row 11: evaluation near the end -------------------------------------------------------------


@pytest.mark.parametrize("every", [6, 5, 3, 1], ids=["last", "last-but-one", "both-ends", "each"])
@pytest.mark.parametrize("staleness", [0, 4])
def test_evaluation_near_the_last_step_ends_the_run(
    tmp_path: Path, every: int, staleness: int
) -> None:
    run = ProbeRun(
        tmp_path / "run",
        eval={"every": every, "instances_per_level": 4},
        **{"async": {"staleness": staleness}},
    )
    coordinator = run.go(FaultyGenerator(missing=0.0))
    assert steps(run) == [1, 2, 3, 4, 5, 6]
    scored = {row[0] & 0xFFFFFFFF for row in run.query("SELECT DISTINCT packed FROM evals")}
    assert {0, 6} <= scored
    # One that was due while another ran is left out, and that is told.
    told = [a for a in coordinator.core.alerts.recent if a.kind == "evaluation_skipped"]
    skipped = {step for step in range(7) for a in told if f"of step {step} " in a.text}
    assert scored | skipped == {step for step in range(7) if step % every == 0 or step == 6}
    if staleness == 0:
        assert not skipped
    run.check()


# Rows 12 and 13: no latency at all, no staleness at all --------------------------------------


def test_three_steps_without_any_latency(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", train={"steps": 3})
    run.go(FaultyGenerator(missing=0.0), credit=4096)
    assert steps(run) == [1, 2, 3]


def test_no_steps_at_all_is_a_run_that_ends(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", train={"steps": 0})
    run.go()
    assert run.batches == []


@pytest.mark.parametrize("validity", [0.0, 1.0])
def test_bound_zero_means_synchronous_and_not_a_deadlock(tmp_path: Path, validity: float) -> None:
    run = ProbeRun(tmp_path / "run", **{"async": {"staleness": 0}})
    run.go(FaultyGenerator(validity=validity))
    assert steps(run) == [1, 2, 3, 4, 5, 6]
    assert {batch.staleness_max for batch in run.batches} == {0}


# A learner that is slow ----------------------------------------------------------------------


class SlowLearner(ScriptedLearner):
    """Takes its time, in which everything else is done."""

    def __call__(self, message: m.Message) -> list[m.Message]:
        if isinstance(message, m.TrainingBatch):
            time.sleep(0.05)
        return super().__call__(message)


def test_a_slow_learner_leaves_no_more_outstanding_than_the_bound_allows(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", train={"steps": 12}, **{"async": {"staleness": 1}})
    most = 0

    def look(coordinator: Any) -> bool:
        nonlocal most
        counts = coordinator.core.schedule.counts()
        most = max(most, counts["agent_ready"] + counts["agent_running"])
        return False

    run.go(FaultyGenerator(missing=0.0), learner=SlowLearner(), dies_when=look)
    assert steps(run) == list(range(1, 13))
    assert 0 < most <= 2 * 10
    run.check()
