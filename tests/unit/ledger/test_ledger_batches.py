from __future__ import annotations

import pytest

from spade_async.errors import LedgerError
from spade_async.ledger import Ledger
from spade_async.types import PolicyVersion
from tests.support.ledger_rows import batch_row, group, report, sample, trace


@pytest.fixture
def ledger(tmp_path):
    """Groups g1..g6 of two samples each ("g1-0", "g1-1"), version 0.0 known."""
    with Ledger.open(tmp_path / "ledger.sqlite", create=True, config_digest="c") as opened:
        with opened.transaction():
            opened.add_version(0, PolicyVersion(0, 0), "d", "shm", "step-0", 0.0)
            for number in range(1, 7):
                name = f"g{number}"
                opened.add_group(group(name, state="ready"))
                for index in range(2):
                    opened.add_sample(sample(f"{name}-{index}", name), trace())
        yield opened


def names(number: int) -> list[str]:
    return [f"g{number}-0", f"g{number}-1"]


def plan(ledger: Ledger, ordinal: int, branch: int, step: int, of: int, **more: object) -> None:
    with ledger.transaction():
        ledger.plan_batch(
            ordinal, branch, step, [batch_row(name, f"g{of}") for name in names(of)], **more
        )


def consume(ledger: Ledger, ordinal: int, branch: int, step: int, of: int, **more: object) -> bool:
    with ledger.transaction(full=True):
        return ledger.consume_batch(ordinal, report(branch, step, names(of), **more), 5.0)


def advance(ledger: Ledger, count: int) -> None:
    for number in range(1, count + 1):
        plan(ledger, number, 0, number, number)
        assert consume(ledger, number, 0, number, number)


def test_a_step_marks_everything_at_once(ledger):
    plan(ledger, 1, 0, 1, 1)
    planned = ledger.planned_batch()
    assert (planned.ordinal, planned.branch, planned.step, planned.state) == (1, 0, 1, "planned")
    assert [row.sample_id for row in planned.samples] == names(1)
    assert [g.group_id for g in ledger.open_groups()] == ["g2", "g3", "g4", "g5", "g6"]
    assert consume(ledger, 1, 0, 1, 1)
    assert ledger.planned_batch() is None
    assert ledger.group("g1").state == "trained"
    assert [s.trained_ordinal for s in ledger.samples_of("g1")] == [1, 1]
    assert ledger.versions()[-1].version == PolicyVersion(0, 1)
    assert ledger.versions()[-1].checkpoint == "step-1"
    assert ledger.last_ordinal() == 1
    assert ledger.steps()[0].metrics == {"loss": 0.5}
    assert (ledger.trained_twice(), ledger.lost(), ledger.num_trained()) == (0, 0, 2)


def test_a_repeated_report_changes_nothing(ledger):
    advance(ledger, 1)
    assert not consume(ledger, 1, 0, 1, 1)
    assert len(ledger.versions()) == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda led: consume(led, 1, 0, 2, 1), "is not of batch"),
        (lambda led: consume(led, 1, 1, 1, 1), "is not of batch"),
        (lambda led: consume(led, 2, 0, 2, 1), "not planned"),
        (lambda led: consume(led, 1, 0, 1, 2), "names other samples"),
        (lambda led: plan(led, 2, 0, 2, 2), "batch 1 is planned"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(ledger, wrong, words):
    plan(ledger, 1, 0, 1, 1)
    with pytest.raises(LedgerError, match=words):
        wrong(ledger)
    assert ledger.num_trained() == 0
    assert ledger.planned_batch() is not None


def test_consumption_needs_a_full_transaction(ledger):
    plan(ledger, 1, 0, 1, 1)
    with pytest.raises(LedgerError, match="full=True"), ledger.transaction():
        ledger.consume_batch(1, report(0, 1, names(1)), 5.0)
    with pytest.raises(LedgerError, match="full=True"), ledger.transaction():
        ledger.undo_after(0)


def test_no_sample_is_planned_twice(ledger):
    advance(ledger, 1)
    with pytest.raises(LedgerError, match="was trained at ordinal 1"):
        plan(ledger, 2, 0, 2, 1)
    with pytest.raises(LedgerError, match="never recorded"):
        plan(ledger, 2, 0, 2, 9)
    with pytest.raises(LedgerError, match="twice in one batch"), ledger.transaction():
        ledger.plan_batch(2, 0, 2, [batch_row("g2-0", "g2")] * 2)
    with pytest.raises(LedgerError, match="is consumed"):
        plan(ledger, 1, 0, 1, 2)
    assert ledger.planned_batch() is None


def test_a_resume_plans_the_same_composition_under_a_new_branch(ledger):
    plan(ledger, 1, 0, 1, 1)
    planned = ledger.planned_batch()
    with ledger.transaction():
        ledger.add_version(0, PolicyVersion(1, 0), "d", "shm", "step-0", 1.0)
        ledger.plan_batch(1, 1, 1, planned.samples)
    assert ledger.planned_batch().samples == planned.samples
    assert consume(ledger, 1, 1, 1, 1)
    assert ledger.trained_twice() == 0


def test_a_fall_back_restores_and_replays_in_order(ledger):
    advance(ledger, 4)
    plan(ledger, 5, 0, 5, 5)
    with ledger.transaction(full=True):
        queue = ledger.undo_after(2)
    assert [(b.ordinal, b.step, b.state) for b in queue] == [
        (3, 3, "replay"), (4, 4, "replay"), (5, 5, "replay"),
    ]  # fmt: skip
    assert [row.sample_id for row in queue[0].samples] == names(3)
    assert [v.is_abandoned for v in ledger.versions()] == [False, False, False, True, True]
    assert ledger.num_trained() == 4
    assert ledger.group("g3").state == "ready"
    # Reserved for the replay, so not for ordinary batches.
    assert [g.group_id for g in ledger.open_groups()] == ["g6"]
    with pytest.raises(LedgerError, match="is in batch 3 already"):
        plan(ledger, 5 + 1, 0, 3, 3)
    assert [s.step for s in ledger.steps()] == [1, 2]
    assert len(ledger.steps(with_abandoned=True)) == 4
    # The steps ever done go on counting: replay of 3 makes ordinal 6 under the new branch.
    with ledger.transaction():
        ledger.add_version(4, PolicyVersion(1, 2), "d", "shm", "step-2", 1.0)
    plan(ledger, 6, 1, 3, 3, replays=3)
    assert ledger.batch(3).state == "abandoned"
    assert ledger.batch(3).samples == ledger.batch(6).samples
    assert consume(ledger, 6, 1, 3, 3)
    assert (ledger.trained_twice(), ledger.lost(), ledger.num_trained()) == (0, 0, 6)
    # A second fall-back before the replay ended: what was replayed comes first again.
    with ledger.transaction(full=True):
        queue = ledger.undo_after(2)
    assert [(b.ordinal, b.step) for b in queue] == [(6, 3), (4, 4), (5, 5)]
    for ordinal, old in [(7, 6), (8, 4), (9, 5)]:
        batch = ledger.batch(old)
        of = int(batch.samples[0].group_id[1:])
        plan(ledger, ordinal, 2, batch.step, of, replays=old)
        assert consume(ledger, ordinal, 2, batch.step, of)
    assert ledger.replay_queue() == []
    assert (ledger.trained_twice(), ledger.lost(), ledger.num_trained()) == (0, 0, 10)
    assert [s.step for s in ledger.steps()] == [1, 2, 3, 4, 5]


def test_a_replay_may_drop_what_became_too_old(ledger):
    advance(ledger, 2)
    with ledger.transaction(full=True):
        ledger.undo_after(0)
        ledger.mark_unused(["g1-0"], "lost_to_rollback")
        ledger.plan_batch(3, 1, 1, [batch_row("g1-1", "g1")], replays=1)
    with ledger.transaction(full=True):
        ledger.consume_batch(3, report(1, 1, ["g1-1"]), 5.0)
        ledger.mark_unused(names(2), "lost_to_rollback")
        ledger.abandon_replay(2)
    assert ledger.replay_queue() == []
    assert (ledger.lost(), ledger.trained_twice(), ledger.num_trained()) == (0, 0, 1)
    assert ledger.sample_counts().unused == {"lost_to_rollback": 3}


def test_checks_count_what_is_wrong(ledger):
    plan(ledger, 1, 0, 1, 1)
    with ledger.transaction():
        ledger.add_sample(sample("g1-late", "g1"), trace())
        ledger.add_sample(sample("g1-hinted", "g1", purpose="measure"), None)
        ledger.add_sample(sample("g1-missing", "g1", missing_reason="jail"), None)
    consume(ledger, 1, 0, 1, 1)
    # One finished train sample of a trained group was left out without a word.
    assert ledger.lost() == 1
    with ledger.transaction():
        ledger.mark_unused(["g1-late"], "cut_at_deadline")
    assert ledger.lost() == 0
    ledger._db.raw.execute("DELETE FROM samples WHERE sample_id = 'g1-0'")
    assert ledger.lost() == 1
    ledger._db.raw.execute(
        "INSERT INTO batches (ordinal, branch, step, state) VALUES (7, 0, 7, 'consumed')"
    )
    ledger._db.raw.execute("INSERT INTO batch_samples VALUES (7, 0, 'g1-1', 'g1', 0.0, 5)")
    assert ledger.trained_twice() == 1


def test_staleness_above_the_bound_of_the_role_is_counted(ledger):
    with ledger.transaction():
        rows = [batch_row("g1-0", "g1", staleness=4), batch_row("g1-1", "g1", staleness=5)]
        ledger.plan_batch(1, 0, 1, rows)
    consume(ledger, 1, 0, 1, 1)
    assert ledger.over_bound({"agent": 4, "designer": 8}) == 1
    assert ledger.over_bound({"agent": 5}) == 0


def test_an_update_that_was_set_aside_is_counted_and_consumed(ledger):
    plan(ledger, 1, 0, 1, 1)
    consume(ledger, 1, 0, 1, 1, applied=False, quarantine="step-1")
    assert ledger.nonfinite_updates() == 1
    assert ledger.num_trained() == 2


def test_only_traces_behind_the_ordinal_are_dropped(ledger):
    advance(ledger, 3)
    with ledger.transaction():
        assert ledger.drop_traces(3) == 4
    assert ledger.trace("g2-0") is None
    assert ledger.trace("g3-0") is not None
    assert ledger.trace("g4-0") is not None


def test_the_number_of_an_undone_plan_is_spent(ledger):
    advance(ledger, 2)
    plan(ledger, 3, 0, 3, 3)
    assert ledger.last_ordinal() == 2
    with ledger.transaction(full=True):
        ledger.undo_after(1)
    assert ledger.last_ordinal() == 3
    # A crash here, before anything of the new branch was noted, forgets no replay.
    assert [(b.ordinal, b.state) for b in ledger.unfinished_batches()] == [
        (2, "replay"),
        (3, "replay"),
    ]
    plan(ledger, 4, 1, 2, 2, replays=2)
    assert [(b.ordinal, b.state, b.replays) for b in ledger.unfinished_batches()] == [
        (4, "planned", 2),
        (3, "replay", None),
    ]
