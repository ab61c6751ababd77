"""Hints that mislead: told, turned off by the rule that is set, tried again; also over kills."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from tests.support.scripted_run import ScriptedGenerator
from tests.unit.coordinator.test_loop import Run, check_invariants, small

SKILL = "Mathematical Reasoning"


class Misleading(ScriptedGenerator):
    """The hint makes it worse: success 0.2 with it, 0.8 without."""

    def _episode(self, task: m.PlayTask, index: int) -> m.EpisodeResult:
        result = super()._episode(task, index)
        if result.episode_return is None:
            return result
        draw = task.seeds[index] * 2654435761 % 1000 / 1000
        value = float(draw < (0.2 if task.arm == "with_hint" else 0.8))
        return dataclasses.replace(result, episode_return=value)


def run_of(root: Path, rule: str, recheck: int = 100, **overrides: Any) -> Run:
    regret = {"negative": rule, "negative_alarm_every": 50, "negative_recheck": recheck}
    config = small(
        train={"steps": 10}, regret=regret, designer={"skills": [SKILL]},
        agent={"seeds_per_environment": 4}, **overrides,
    )  # fmt: skip
    return Run(root / "run", config)


def alerts(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.folder.alerts.read_text().splitlines()]


def hinted_groups(ledger: LedgerReader) -> set[str]:
    """Designer groups of which a hinted episode was played."""
    return {
        s.group_id.split(".")[0]
        for s in ledger.iterate_samples(role="agent", purpose="measure")
        if s.arm == "with_hint"
    }


@pytest.mark.parametrize("rule", ["no_hint", "learning_potential"])
def test_the_alarm_turns_hints_off_for_groups_admitted_later(tmp_path: Path, rule: str) -> None:
    run = run_of(tmp_path, rule)
    run.go(generator=Misleading())
    check_invariants(run)
    told = [a for a in alerts(run) if a["kind"] == "negative_regret"]
    assert len(told) == 1
    assert told[0]["text"].startswith(f"skill {SKILL!r}: hints make it worse, regret -0.")
    with LedgerReader.open(run.folder.ledger) as ledger:
        (change,) = ledger.hint_changes()
        assert (change.skill, change.rule) == (SKILL, rule)
        assert change.regret is not None
        assert change.regret + 4 * (change.standard_error or 0.0) < 0.0
        off = {
            row[0] for row in ledger.query("SELECT group_id FROM hint_rules WHERE rule = ?", [rule])
        }
        assert off
        assert not off & hinted_groups(ledger)
        # Its designs are paid by the other rule: a number, in its units, from unhinted returns.
        paid = ledger.query(
            "SELECT raw, components_json FROM pays JOIN hint_rules USING (group_id)"
            " WHERE raw IS NOT NULL"
        )
        assert paid
        parts = [json.loads(row[1]) for row in paid]
        name = {"no_hint": "plateau", "learning_potential": "potential"}[rule]
        assert all(name in found and "regret" not in found for found in parts)
        missing = [row for row in ledger.regrets() if row.group_id.split(".")[0] in off]
        assert missing
        assert all(row.regret is None and row.num_planned == 4 for row in missing)
        steps = [row.metrics for row in ledger.steps()]
    assert steps[-1][f"hints/{SKILL.replace(' ', '_')}/on"] == 0.0
    assert any(f"hints/{SKILL.replace(' ', '_')}/evidence" in found for found in steps)


def test_ignored_it_is_told_and_nothing_changes(tmp_path: Path) -> None:
    run = run_of(tmp_path, "ignore")
    run.go(generator=Misleading())
    assert {a["kind"] for a in alerts(run)} >= {"negative_regret"}
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert {change.rule for change in ledger.hint_changes()} == {"ignore"}
        assert ledger.query("SELECT COUNT(*) FROM hint_rules")[0][0] == 0


def test_hints_are_tried_again_and_turned_off_again(tmp_path: Path) -> None:
    run = run_of(tmp_path, "no_hint", recheck=2)
    run.go(generator=Misleading())
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        rules = [change.rule for change in ledger.hint_changes()]
    assert rules[:2] == ["no_hint", "hints"]
    assert {a["kind"] for a in alerts(run)} >= {"negative_regret", "hints_again"}


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_forgets_neither_the_evidence_nor_the_rule_of_a_group(
    tmp_path: Path, seed: int
) -> None:
    run = run_of(tmp_path, "learning_potential")
    for attempt in range(5):
        run.go(seed * 31 + attempt, dies_after=(170 + 90 * seed) // (1 + attempt % 3),
               generator=Misleading())  # fmt: skip
    run.go(seed, generator=Misleading())
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        off = {row[0] for row in ledger.query("SELECT group_id FROM hint_rules")}
        assert len(ledger.hint_changes()) == 1
        assert off
        assert not off & hinted_groups(ledger)
