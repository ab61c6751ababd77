"""The alarms over the designs of two real nano runs, one with guards and one without.

`tests/golden/guards_histories.json` holds, by learner step, every valid design of a run as
"skeleton family leak-share", as the ledger had them (skeletons numbered in order of appearance).
"""

from __future__ import annotations

import json
from pathlib import Path

from spade_async.config.guards import GuardsConfig
from spade_async.coordinator.guards import Guards

HISTORIES = json.loads((Path(__file__).parents[2] / "golden" / "guards_histories.json").read_text())


def replay(name: str) -> tuple[list[tuple[int, str]], list[dict[str, float | None]]]:
    """[(step, kind told)] and the figures of each step."""
    history = HISTORIES[name]
    guards = Guards(GuardsConfig())
    told: list[tuple[int, str]] = []
    figures = []
    for step in range(1, history["steps"] + 1):
        for design in filter(None, history["designs"].get(str(step - 1), "").split("; ")):
            skeleton, family, leak = design.split(" ")
            guards.design(skeleton, {"family": family}, float(leak))
        figures.append(guards.figures())
        told += [(step, alarm.kind) for alarm in guards.step(step)]
    return told, figures


def test_the_shipped_run_raises_nothing_in_250_steps() -> None:
    told, figures = replay("nano")
    assert HISTORIES["nano"]["steps"] == 250
    assert told == []
    known = [f for f in figures if f]
    # Not by a hair: variety and leaks stay far from their limits.
    assert min(f["guards/effective_skeletons"] or 0.0 for f in known) > 12
    assert max(f["guards/largest_family_share"] or 1.0 for f in known) < 0.5
    assert max(f["guards/leak_share"] or 1.0 for f in known) < 0.55


def test_the_unguarded_run_raises_both_alarms_of_the_designer_once_and_early() -> None:
    told, figures = replay("nano_unguarded")
    assert sorted(kind for _, kind in told) == ["designer_collapse", "hint_leak"]
    assert max(step for step, _ in told) <= 40
    last = figures[-1]
    assert last["guards/effective_skeletons"] == 1.0
    assert last["guards/largest_family_share"] == 1.0
