"""Pay after k learner steps: no barrier, no lost design, the same pay after a kill -9."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spade_async.coordinator.payer import RUN_ENDED
from spade_async.designer.rewards.facts import Facts
from spade_async.designer.rewards.registry import make
from spade_async.ledger import LedgerReader
from spade_async.types import Arm
from tests.unit.coordinator.test_loop import Run, check_invariants, small

DELAY = 3
LAST = 12
"""Steps of the run."""


def delayed(variant: str = "blend", **overrides):
    """A small run whose designs are paid after three learner steps."""
    reward = {"variant": variant, "delay": DELAY, "weight_micro_lp": 0.2}
    designer = {"group_size": 4, "groups_per_step": 1, "plays_per_skeleton": 64}
    data = {
        "designer": {**designer, "reward": reward},
        "agent": {"seeds_per_environment": 2, "groups_per_step": 14},
        "async": {"agent_bound": 2, "designer_bound": 6},
        "checkpoint": {"every": 1},
        **overrides,
    }
    return small(**data)


class NoBaselines:
    def level(self, skill: str) -> float | None:
        return 0.5


def plays_of(ledger: LedgerReader, sample_id: str, group_id: str) -> dict[int, list[float]]:
    """Returns by offset, read off the ledger by another way than the coordinator's."""
    first = ledger.group(f"{sample_id}.play").birth_ordinal
    plays: dict[int, list[float]] = {}
    rows = ledger.query(
        "SELECT g.birth_ordinal, s.arm, s.episode_return FROM samples s JOIN groups g"
        " USING (group_id) WHERE g.parent_group = ? AND g.group_id LIKE ? ORDER BY s.number",
        (group_id, f"{sample_id}.%"),
    )
    for played_at, arm, episode_return in rows:
        if episode_return is None:
            continue
        if arm == Arm.NO_HINT:
            plays.setdefault(played_at - first, []).append(episode_return)
    return {offset: sorted(returns) for offset, returns in plays.items()}


def pays(ledger: LedgerReader):
    """Every design that was played."""
    groups = ledger.query("SELECT DISTINCT group_id FROM pays ORDER BY group_id")
    return [row for (group_id,) in groups for row in ledger.pays_of(group_id)]


def check_pay(run: Run) -> dict[str, float]:
    """Each paid design has the value that its plays in the ledger give. Returns them."""
    variant = make(run.config.designer.reward)
    values = {}
    with LedgerReader.open(run.folder.ledger) as ledger:
        for row in pays(ledger):
            assert not row.held, f"{row.sample_id} still waits"
            came = plays_of(ledger, row.sample_id, row.group_id)
            sample = ledger.sample(row.sample_id)
            is_late = (sample.trained_ordinal or LAST) == LAST
            for offset, returns in row.plays.items():
                assert sorted(returns) == came[offset], "whole offsets, and of this design"
            # Before the last step a design is paid for all that was in play; it may be trained in
            # a later one, so the last alone says nothing about what came after its pay.
            assert is_late or row.plays.keys() == came.keys()
            facts = Facts(skill="s", plays=row.plays, regret=row.standing["regret"])
            expected = variant.raw(facts, NoBaselines())
            if expected.value is None or row.raw is None:
                assert (expected.value, row.raw, sample.reward) == (None, None, None)
                assert sample.unused_reason
                continue
            assert row.raw == pytest.approx(expected.value, abs=1e-12)
            values[row.sample_id] = row.raw
    return values


def test_designs_are_paid_after_their_steps_and_nothing_waits_for_them(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", delayed())
    run.go()
    assert [batch.step for batch in run.batches] == list(range(1, 13))
    check_invariants(run)
    assert check_pay(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        rows = ledger.query(
            "SELECT s.trained_ordinal - 1 - g.birth_ordinal, s.trained_ordinal FROM samples s"
            " JOIN pays p USING (sample_id) JOIN groups g ON g.group_id = s.group_id"
            " WHERE s.trained_ordinal IS NOT NULL"
        )
        kinds = {row[0] for row in ledger.query("SELECT DISTINCT kind FROM groups")}
        offsets = ledger.query(
            "SELECT DISTINCT r.birth_ordinal - f.birth_ordinal FROM groups r JOIN groups f"
            " ON f.environment_id = r.environment_id AND f.parent_group = r.parent_group"
            " WHERE r.kind = 'replay' AND f.kind = 'play'"
            " AND substr(r.group_id, 1, length(f.group_id) - 5) || '.play' = f.group_id"
        )
        early = ledger.get_state("counters").get("designs_paid_early", 0)
    assert "replay" in kinds
    assert {row[0] for row in offsets} == {1, 2}
    # The last step takes what waits, whatever its age.
    ages = [age for age, ordinal in rows if ordinal < LAST]
    assert ages
    assert early == 0
    assert min(ages) == DELAY
    assert max(ages) <= 6
    # Agents were trained at every step, also while all designs waited.
    assert all("agent" in batch.roles for batch in run.batches)


def test_progress_is_paid_for_where_there_were_two_offsets(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", delayed("micro_lp"))
    run.go()
    with LedgerReader.open(run.folder.ledger) as ledger:
        found = pays(ledger)
        for row in found:
            plays = row.plays
            reason = ledger.sample(row.sample_id).unused_reason or ""
            assert (row.raw is None) == (len(plays) < 2)
            assert row.raw is not None or "progress needs 2" in reason
    assert any(row.raw is not None for row in found)
    check_pay(run)


def test_what_waits_at_the_end_is_paid_trained_or_left_with_a_reason(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", delayed())
    run.go()
    with LedgerReader.open(run.folder.ledger) as ledger:
        left = ledger.query(
            "SELECT s.sample_id, s.reward, s.unused_reason FROM samples s JOIN pays p"
            " USING (sample_id) WHERE s.trained_ordinal IS NULL AND s.reward IS NOT NULL"
        )
        last = ledger.query(
            "SELECT COUNT(*) FROM samples JOIN pays USING (sample_id) WHERE trained_ordinal = 12"
        )
    assert last[0][0] > 0, "the last step trains designs that would have waited longer"
    assert left
    assert {row[2] for row in left} <= {
        RUN_ENDED,
        "no baseline: fewer than two paid designs of its group",
    }


def test_a_longer_run_takes_up_what_was_left_at_the_end(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", delayed())
    run.go(1)
    with LedgerReader.open(run.folder.ledger) as ledger:
        left = ledger.query("SELECT sample_id FROM samples WHERE unused_reason = ?", (RUN_ENDED,))
    assert left
    data = json.loads(run.config.model_dump_json(by_alias=True))
    run.config = type(run.config).model_validate({**data, "train": {"steps": 20}})
    run.go(2)
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        trained = [s for (s,) in left if ledger.sample(s).trained_ordinal is not None]
    assert len(run.batches) == 20
    assert trained, "they were within their bound when the run went on"


@pytest.mark.parametrize("seed", range(4))
def test_what_waits_survives_a_kill_at_any_delivery(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path / "run", delayed())
    for attempt in range(5):
        run.go(seed * 31 + attempt, dies_after=(170 + 97 * seed) // (1 + attempt % 3))
    run.go(seed)
    check_invariants(run)
    assert check_pay(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert [row.step for row in ledger.steps()] == list(range(1, 13))
        assert not ledger.get_state("counters").get("lost_to_rollback", 0)


@pytest.mark.parametrize("validity", [0.0, 1.0])
@pytest.mark.parametrize("bound", [0, 4])
def test_a_delayed_run_never_waits_for_itself(tmp_path: Path, validity: float, bound: int) -> None:
    # No seed programs and no pool share: when all designs wait, nothing else can come.
    config = delayed(
        agent={"seeds_per_environment": 2, "groups_per_step": 4, "pool_share": 0.0},
        **{"async": {"agent_bound": bound, "designer_bound": DELAY + 1}},
    )
    run = Run(tmp_path / "run", config, validity=validity, missing=0.0)
    run.go()
    assert len(run.batches) == 12
    check_invariants(run)
