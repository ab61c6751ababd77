from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_async.evals import figures
from spade_async.ledger import Ledger
from spade_async.types import Environment, PolicyVersion
from tests.support.ledger_rows import batch_row, group, report, sample, trace


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite", create=True, config_digest="c") as opened:
        with opened.transaction():
            opened.add_version(0, PolicyVersion(0, 0), "d", "shm", "step-0", 0.0)
        yield opened


def environment(name: str, **labels: str) -> Environment:
    return Environment(name, "", labels=tuple(sorted(labels.items())))


def designs(ledger: Ledger, valid: list[bool]) -> None:
    with ledger.transaction():
        ledger.add_group(group("d", role="designer", kind="design", members=len(valid)))
        for index, is_valid in enumerate(valid):
            stage = None if is_valid else "load"
            row = sample(f"d-{index}", "d", role="designer", rejection_stage=stage)
            ledger.add_sample(row, None)


def step(ledger: Ledger, number: int, metrics: dict[str, float], family: str | None = None) -> None:
    """One consumed step at wall time 100 * number that played one environment of a family."""
    name = f"p{number}"
    with ledger.transaction():
        if family is not None:
            ledger.add_environment(environment(f"e{number}", family=family), None, None, number)
        environment_id = None if family is None else f"e{number}"
        ledger.add_group(group(name, members=1, state="ready", environment_id=environment_id))
        ledger.add_sample(sample(f"{name}-0", name, created_unix_s=100.0 * number), trace())
        ledger.plan_batch(number, 0, number, [batch_row(f"{name}-0", name)])
    with ledger.transaction(full=True):
        ledger.consume_batch(number, report(0, number, [f"{name}-0"]), 100.0 * number, metrics)


def test_validity_is_that_of_the_worst_window(ledger: Ledger) -> None:
    # 300 designs, ten bad ones in a row at the end: the last window has 190 of 200.
    designs(ledger, [True] * 290 + [False] * 10)
    worst, mean, count = figures.design_validity(ledger)
    assert worst == pytest.approx(0.95)
    assert mean == pytest.approx(290 / 300)
    assert count == 300


def test_validity_of_few_designs_is_over_all_of_them(ledger: Ledger) -> None:
    assert figures.design_validity(ledger) == (None, None, 0)
    designs(ledger, [True, True, False, True])
    assert figures.design_validity(ledger) == (0.75, 0.75, 4)


def test_seed_pool_and_missing_designs_count_in_no_validity(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.add_group(group("d", role="designer", kind="design"))
        ledger.add_sample(sample("d-0", "d", role="designer"), None)
        ledger.add_sample(sample("d-1", "d", role="designer", missing_reason="engine"), None)
        ledger.add_group(group("p", kind="pool"))
        ledger.add_sample(sample("p-0", "p"), None)
    assert figures.design_validity(ledger) == (1.0, 1.0, 1)


def test_end_table_compares_first_and_last_scored_version(ledger: Ledger) -> None:
    with ledger.transaction():
        for ordinal, mean in ((0, 0.5), (5, 0.6), (9, 0.75)):
            for level in ("10", "2"):
                ledger.add_eval(ordinal, PolicyVersion(0, ordinal), level, 96, mean, 0.05)
    table = figures.held_out(ledger)
    assert (table.base_version, table.trained_version) == ("0.0", "0.9")
    assert [(r.level, r.n, r.base, r.trained) for r in table.rows] == [
        ("2", 96, 0.5, 0.75),
        ("10", 96, 0.5, 0.75),
        ("all", 192, 0.5, 0.75),
    ]
    # Two levels of 96 with 0.05 each: hypot(96 x 0.05, 96 x 0.05) / 192.
    assert table.rows[-1].base_se == pytest.approx(0.05 / math.sqrt(2))
    assert {(r.difference, r.difference_se) for r in table.rows} == {(None, None)}


def test_versions_are_compared_instance_by_instance_where_both_have_them(ledger: Ledger) -> None:
    first, last = PolicyVersion(0, 0), PolicyVersion(0, 9)
    before = {"a": 0.0, "b": 0.0, "c": 1.0, "d": 1.0, "only before": 1.0}
    after = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0, "only after": 0.0}
    with ledger.transaction():
        for version, scores in ((first, before), (last, after)):
            for level in ("1", "2"):
                ledger.add_eval(version.step, version, level, 5, sum(scores.values()) / 5, 0.2)
                ledger.add_scores(version, [(level + k, level, v) for k, v in scores.items()])
    one, two, both = figures.held_out(ledger).rows
    # Of four pairs two rose and one fell; three differ, and one is added.
    assert (one.difference, one.difference_se) == (0.25, 0.5)
    assert (two.difference, two.difference_se) == (0.25, 0.5)
    assert (both.difference, both.difference_se) == (0.25, pytest.approx(math.sqrt(7) / 8))


def test_a_level_without_a_score_leaves_the_row_of_all_unknown(ledger: Ledger) -> None:
    with ledger.transaction():
        for ordinal in (0, 9):
            ledger.add_eval(ordinal, PolicyVersion(0, ordinal), "1", 96, 0.5, 0.05)
            ledger.add_eval(ordinal, PolicyVersion(0, ordinal), "2", 0, None, None)
    row = figures.held_out(ledger).rows[-1]
    assert (row.level, row.n, row.base, row.trained) == ("all", 96, None, None)


def test_only_the_base_scored_leaves_trained_unknown(ledger: Ledger) -> None:
    assert figures.held_out(ledger).rows == ()
    with ledger.transaction():
        ledger.add_eval(0, PolicyVersion(0, 0), "1", 96, 0.5, 0.05)
    table = figures.held_out(ledger)
    assert table.trained_version is None
    assert table.rows[0].trained is None


def test_largest_share_looks_at_the_last_third_only(ledger: Ledger) -> None:
    for number, family in enumerate(["mod"] * 6 + ["add", "sub", "add"], start=1):
        step(ledger, number, {}, family)
    assert figures.largest_share_last_third(ledger, "family", 9) == pytest.approx(2 / 3)
    assert figures.largest_share_last_third(ledger, "other", 9) is None


def test_mean_level_by_third_counts_designs(ledger: Ledger) -> None:
    with ledger.transaction():
        for index, (created, level) in enumerate(
            [(0, "1"), (1, "2"), (5, "9"), (8, "3"), (9, "x")]
        ):
            ledger.add_environment(
                environment(f"e{index}", level=level), "d", f"d-{index}", created
            )
    first, last = figures.mean_label_by_third(ledger, "level", 9)
    # standard error of {1, 2}: sqrt(0.5 / 2)
    assert (first.mean, first.n) == (1.5, 2)
    assert first.standard_error == pytest.approx(0.5)
    assert (last.mean, last.standard_error, last.n) == (3.0, None, 1)


def test_skeletons_are_counted_in_full_batches_of_valid_designs(ledger: Ledger) -> None:
    assert figures.skeletons_per_batch(ledger, 1) == (None, None)
    with ledger.transaction():
        ledger.add_group(group("d", role="designer", kind="design", members=4, state="ready"))
        for index, skeleton in enumerate(["a", "b", "a", None]):
            name = f"d-{index}"
            ledger.add_sample(sample(name, "d", role="designer"), trace())
            if skeleton is not None:
                made = Environment(f"e{index}", "", skeleton=skeleton)
                ledger.add_environment(made, "d", name, 0)
        ledger.plan_batch(1, 0, 1, [batch_row(f"d-{index}", "d") for index in range(4)])
    assert figures.skeletons_per_batch(ledger, 1) == (None, None)
    with ledger.transaction(full=True):
        ledger.consume_batch(1, report(0, 1, [f"d-{index}" for index in range(4)]), 1.0)
    assert figures.skeletons_per_batch(ledger, 1) == (2, 2.0)
    assert figures.skeletons_per_batch(ledger, 2) == (None, None)


def test_episode_rate_reads_the_samples_once_per_start_and_not_once_per_step(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 41):
        step(ledger, number, {})
    asked: list[str] = []
    query = type(ledger).query

    def counted(self: Ledger, sql: str, *rest: object) -> object:
        asked.append(sql)
        return query(self, sql, *rest)

    monkeypatch.setattr(type(ledger), "query", counted)
    rows = ledger.steps()
    assert figures.episode_rate(ledger, rows, []) == pytest.approx(36.0)
    assert len(asked) == 1
    asked.clear()
    assert figures.episode_rate(ledger, rows, [1050.0, 2050.0]) == pytest.approx(36.0)
    assert len(asked) == 3


def test_episode_rate_leaves_out_the_gap_of_a_resume(ledger: Ledger) -> None:
    assert figures.episode_rate(ledger, ledger.steps(), []) is None
    for number in (1, 2, 3, 4):
        step(ledger, number, {})
    # One episode in each 100 s: 36 per hour, with or without the interval that holds a start.
    assert figures.episode_rate(ledger, ledger.steps(), []) == pytest.approx(36.0)
    assert figures.episode_rate(ledger, ledger.steps(), [250.0]) == pytest.approx(36.0)
    assert figures.episode_rate(ledger, ledger.steps(), [150.0, 250.0, 350.0]) is None


def test_means_skip_steps_without_the_number(ledger: Ledger) -> None:
    step(ledger, 1, {"a": 1.0, "w": 1.0})
    step(ledger, 2, {"w": 5.0})
    step(ledger, 3, {"a": 4.0, "w": 3.0})
    rows = ledger.steps()
    assert figures.weighted_mean(rows, "a") == 2.5
    assert figures.weighted_mean(rows, "a", "w") == pytest.approx(13 / 4)
    assert figures.weighted_mean(rows, "none") is None
    assert figures.newest(rows, "a") == 4.0
