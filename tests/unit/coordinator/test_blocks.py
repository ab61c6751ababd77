"""Pairs in blocks: what is issued, when no more is, what trains, and what a kill leaves."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from spade_async.config.schema import Config
from spade_async.coordinator.blocks import NO_VARIANCE, early_rule, start_of, task_id
from spade_async.coordinator.core import CUT
from spade_async.ledger import LedgerReader, SampleRow
from spade_async.transport import messages as m
from spade_async.types import Arm, RegretClass
from tests.support.fake_hub import FakeHub
from tests.support.probe_world import FaultyGenerator, ProbeRun
from tests.support.scripted_run import ScriptedGenerator
from tests.unit.coordinator.test_loop import Run, check_invariants, small

SEEDS = 8
STEPS = 8


def blocks_run(root: Path, *, error: float = 0.05, **overrides: Any) -> Run:
    regret = {"early_class": True, "early_block": 2, "early_error": error}
    agent = {"seeds_per_environment": SEEDS, "groups_per_step": 10}
    train = {"steps": STEPS}
    return Run(root / "run", small(regret=regret, agent=agent, train=train, **overrides))


class Levels(ScriptedGenerator):
    """Environments that are mastered, out of reach, or teach, by their source."""

    LAWS = ((1.0, 1.0), (0.0, 0.0), (0.9, 0.2), (0.6, 0.5))

    def _episode(self, task: m.PlayTask, index: int) -> m.EpisodeResult:
        result = super()._episode(task, index)
        if result.episode_return is None or task.purpose == "eval":
            return result
        with_hint, without = self.LAWS[sum(task.source.encode()) % len(self.LAWS)]
        chance = with_hint if task.arm == "with_hint" else without
        draw = (task.seeds[index] * 2654435761 + len(task.arm)) % 1000 / 1000
        return dataclasses.replace(result, episode_return=float(draw < chance))


def plays(hub: FakeHub) -> list[m.PlayTask]:
    return [t for _, t in hub.sent if isinstance(t, m.PlayTask) and t.group_id.startswith("d-")]


def check_groups(run: Run) -> dict[str, int]:
    """Every measured group played what the rule says, in equal counts; how many by class."""
    rule = early_rule(run.config)
    assert rule is not None
    counts: dict[str, int] = defaultdict(int)
    with LedgerReader.open(run.folder.ledger) as ledger:
        for row in ledger.regrets():
            samples = ledger.samples_of(row.group_id)
            arms = {arm: by_index(samples, arm) for arm in Arm}
            assert [s.index for s in arms[Arm.NO_HINT]] == list(range(row.num_played))
            assert [s.seed for s in arms[Arm.NO_HINT]] == [s.seed for s in arms[Arm.WITH_HINT]]
            pairs = list(
                zip(*([s.episode_return for s in arms[a]] for a in (Arm.WITH_HINT, Arm.NO_HINT)),
                    strict=True)
            )  # fmt: skip
            was_cut = any(s.missing_reason == CUT for s in samples)
            for played in range(2, row.num_played, 2):
                assert rule.look(pairs[:played]) is None, "it went on although it was certain"
            found = rule.look(pairs)
            assert (found is not None) == row.is_stopped
            assert row.num_played == SEEDS or row.is_stopped or was_cut
            if row.is_stopped and row.regret is not None:
                assert row.regret_class == found
                counts[row.regret_class] += 1
                check_training(ledger, row.group_id, arms[Arm.NO_HINT])
            counts["episodes"] += 2 * row.num_played
            counts["full"] += 2 * SEEDS
    return counts


def by_index(samples: list[SampleRow], arm: Arm) -> list[SampleRow]:
    return sorted((s for s in samples if s.arm == arm), key=lambda s: s.index)


def check_training(ledger: LedgerReader, group_id: str, samples: list[SampleRow]) -> None:
    """A stopped group trains all of its finished episodes if they differ, and none otherwise."""
    group = ledger.group(group_id)
    assert group is not None
    finished = [s for s in samples if s.episode_return is not None]
    if len({s.episode_return for s in finished}) == 1:
        assert group.state == "missing"
        if "lost_to_rollback" not in {s.unused_reason for s in samples}:
            assert {s.unused_reason for s in finished} == {NO_VARIANCE}
        assert {s.trained_ordinal for s in finished} == {None}
    elif group.state == "trained":
        assert all(s.trained_ordinal is not None for s in finished)


@pytest.mark.parametrize("staleness", [None, 0, 2])
def test_a_run_plays_what_the_rule_says_and_keeps_every_promise(
    tmp_path: Path, staleness: int | None
) -> None:
    overrides = {} if staleness is None else {"async": {"staleness": staleness}}
    run = blocks_run(tmp_path, **overrides)
    run.go(generator=Levels())
    assert [b.step for b in run.batches] == list(range(1, STEPS + 1))
    check_invariants(run)
    counts = check_groups(run)
    assert counts[RegretClass.FRONTIER] > 5
    assert counts["episodes"] < 0.75 * counts["full"]


def test_sure_ends_are_found_with_an_error_that_allows_it(tmp_path: Path) -> None:
    run = blocks_run(tmp_path, error=0.1)
    run.go(generator=Levels())
    check_invariants(run)
    counts = check_groups(run)
    assert min(counts[kind] for kind in RegretClass) > 1
    with LedgerReader.open(run.folder.ledger) as ledger:
        counters = ledger.get_state("counters")
        stopped = sum(row.is_stopped for row in ledger.regrets())
    assert counters["environments_stopped"] == stopped
    assert 2 * counters["pairs_not_played"] == counts["full"] - counts["episodes"]


def test_a_block_is_issued_only_when_the_one_before_is_in(tmp_path: Path) -> None:
    run = blocks_run(tmp_path)
    hub = run.go(generator=Levels())
    tasks = plays(hub)
    assert {len(task.seeds) for task in tasks} == {2}
    starts: dict[tuple[str, str], list[int]] = defaultdict(list)
    for task in tasks:
        starts[task.group_id, task.arm].append(start_of(task.task_id))
    assert {tuple(found) for found in starts.values()} <= {
        (0,), (0, 2), (0, 2, 4), (0, 2, 4, 6)
    }  # fmt: skip
    # Both arms of a block go out together; the end of the run may come between the two.
    for group in {group for group, _ in starts}:
        plain, hinted = starts[group, "no_hint"], starts[group, "with_hint"]
        assert plain[: len(hinted)] == hinted or hinted[: len(plain)] == plain
        assert abs(len(plain) - len(hinted)) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_kills_lose_nothing_and_every_group_is_measured_once_by_the_same_rule(
    tmp_path: Path, seed: int
) -> None:
    run = blocks_run(tmp_path, checkpoint={"every": 1 + 3 * (seed % 2)})
    for attempt in range(6):
        run.go(seed * 31 + attempt, dies_after=(170 + 90 * seed) // (1 + attempt % 3),
               generator=Levels())  # fmt: skip
    run.go(seed, generator=Levels())
    check_invariants(run)
    check_groups(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert [row.step for row in ledger.steps()] == list(range(1, STEPS + 1))
        groups = [row.group_id for row in ledger.regrets()]
    assert len(set(groups)) == len(groups)


def test_it_is_on_by_default_where_there_are_more_pairs_than_a_block() -> None:
    default = early_rule(Config())
    assert default is not None
    assert (default.planned, default.block, default.error) == (8, 2, 0.0)
    assert early_rule(Config.model_validate({"agent": {"seeds_per_environment": 2}})) is None


@pytest.mark.parametrize("compat", [0, 1], ids=["off", "reference"])
def test_where_it_is_off_every_pair_is_one_task(compat: int, tmp_path: Path) -> None:
    off = [{"regret": {"early_class": False}}, {"run": {"compat": "reference"}}][compat]
    run = Run(tmp_path / "run", small(agent={"seeds_per_environment": SEEDS}, **off))
    tasks = plays(run.go())
    lengths = {arm: {len(task.seeds) for task in tasks if task.arm == arm} for arm in Arm}
    # The reference plays 16 times with the hint, on seeds of its own.
    assert lengths == {Arm.NO_HINT: {SEEDS}, Arm.WITH_HINT: {16 if compat else SEEDS}}
    assert {start_of(task.task_id) for task in tasks} == {0}
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert {(row.num_played, row.is_stopped) for row in ledger.regrets()} == {(SEEDS, False)}


def test_ids_of_tasks_say_where_their_seeds_begin() -> None:
    assert task_id("d-1.0.play", Arm.NO_HINT, 0) == "d-1.0.play.no_hint"
    assert start_of(task_id("d-1.0.play", Arm.NO_HINT, 6)) == 6
    assert start_of("d-1.0.play.no_hint") == 0


def test_a_cut_in_a_later_block_ends_its_group_with_what_is_there(tmp_path: Path) -> None:
    regret = {"early_class": True, "early_block": 2, "early_error": 0.0}
    run = ProbeRun(
        tmp_path / "run",
        **{"async": {"staleness": 1}, "regret": regret, "agent": {"seeds_per_environment": SEEDS}},
    )
    hangs: list[str] = []

    def alter(answer: m.Message) -> list[m.Message]:
        if not isinstance(answer, m.EpisodeResult) or answer.purpose != "train":
            return [answer]
        if answer.group_id.startswith("d-") and start_of(answer.task_id) == 2 and not hangs:
            hangs.append(answer.task_id)
        return [] if answer.task_id in hangs and answer.index == 1 else [answer]

    run.go(Cutting(alter, missing=0.0), limit_s=60.0)
    run.check()
    group, start = hangs[0].partition(".no_hint")[0], start_of(hangs[0])
    with LedgerReader.open(run.folder.ledger) as ledger:
        rows = {s.sample_id: s for s in ledger.samples_of(group)}
        cut = rows[f"{group}.no_hint.{start + 1}"]
        assert (cut.missing_reason, cut.index) == (CUT, start + 1)
        assert cut.seed == rows[f"{group}.with_hint.{start + 1}"].seed
        measured = ledger.regret_of_group(group)
        assert measured is not None
        assert (measured.num_played, measured.num_pairs) == (4, 3)
        trained = [s for s in rows.values() if s.trained_ordinal is not None]
        assert {s.index for s in trained} <= {0, 1, 2}


class Cutting(FaultyGenerator):
    """Ends a cut task at once."""

    def __call__(self, message: m.Message) -> list[m.Message]:
        if isinstance(message, m.CancelTask):
            return [m.TaskCut(task_id=message.task_id, tokens=0)]
        return super().__call__(message)
