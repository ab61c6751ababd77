"""Skills, prompt versions and skipped prompts in a run, also over a kill and a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spade_async.designer.skills import Rotation, Skill
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from tests.support import probe_domain
from tests.support.probe_world import FaultyGenerator, ProbeRun

SKILLS = ["a", "b", "c", "d", "e"]
WINDOWS = {"skills": SKILLS, "skills_per_window": 2, "skill_window": 3}


def test_skills_rotate_over_designer_groups_and_a_resume_goes_on(tmp_path: Path) -> None:
    assert not hasattr(probe_domain, "skills"), "this domain takes any skill"
    run = ProbeRun(tmp_path / "run", designer=WINDOWS, **{"async": {"straggler_s": 60.0}})
    run.go(dies_when=lambda c: c.core.step == 2, limit_s=60.0)
    run.go(limit_s=60.0)
    with LedgerReader.open(run.folder.ledger) as ledger:
        rows = ledger.query(
            "SELECT group_id, skill FROM groups WHERE kind = 'design' ORDER BY group_id"
        )
        assert ledger.get_state("counters")["design_groups"] == len(rows)
    rotation = Rotation(tuple(map(Skill, SKILLS)), 2, 3)
    assert len(rows) > 15
    assert [row[1] for row in rows] == [rotation.skill(i).name for i in range(len(rows))]


def test_each_group_says_which_prompts_made_it(tmp_path: Path, monkeypatch: Any) -> None:
    versions = {"designer": "probe/4", "agent": "probe/2", "hint": "probe/1"}
    monkeypatch.setattr(probe_domain, "PROMPT_VERSIONS", versions, raising=False)
    run = ProbeRun(tmp_path / "run", **{"async": {"straggler_s": 60.0}, "train": {"steps": 2}})
    run.go(limit_s=60.0)
    with LedgerReader.open(run.folder.ledger) as ledger:
        rows = ledger.query("SELECT group_id, role FROM groups")
        for group_id, role in rows:
            assert ledger.prompts_of(group_id) == {role: versions[role]}
        counts = ledger.prompt_counts()
    assert sum(sum(n.values()) for n in counts.values()) == len(rows)


def test_a_prompt_that_fits_nowhere_is_counted_by_name_and_the_run_goes_on(tmp_path: Path) -> None:
    skipped = 0

    def alter(answer: m.Message) -> list[m.Message]:
        """Every third group has a prompt that does not fit; every other one was cut."""
        nonlocal skipped
        if not isinstance(answer, m.DesignResult):
            return [answer]
        fields = {f: getattr(answer, f) for f in answer.__slots__}
        if int(answer.group_id.removeprefix("d-")) % 3:
            return [m.DesignResult(**fields | {"prompt": {"tokens": 9, "document_words_cut": 4}})]
        skipped += 1
        reason = "ours: PromptTooLong: the designer's prompt of 9999 tokens ..."
        return [m.DesignResult(**fields | {"missing_reason": reason, "rejection": None})]

    run = ProbeRun(tmp_path / "run", **{"async": {"straggler_s": 60.0}})
    run.go(FaultyGenerator(alter), limit_s=60.0)
    assert len(run.batches) == 6
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert 0 < ledger.get_state("counters")["prompts_skipped"] <= skipped
        steps = [row.metrics for row in ledger.steps()]
        rows = ledger.query(
            "SELECT extra_json FROM samples WHERE role = 'designer' AND missing_reason IS NULL"
        )
    shown = sum(metrics["designer/prompts_skipped"] for metrics in steps)
    assert 0 < shown <= skipped
    assert sum(metrics["designer/prompts_cut"] for metrics in steps) > 0
    cut = [json.loads(row[0])["prompt"] for row in rows if row[0] != "{}"]
    assert {"tokens": 9, "document_words_cut": 4} in cut
    run.check()
