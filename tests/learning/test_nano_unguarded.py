"""Self-play without guards collapses, and the run says so while its own figures look fine.

Real training of the fully warm-started nano model: made on the first run of this machine (about 150
CPU-seconds), cached afterwards and shared with everything that trains configs/nano.toml.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from statistics import median

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.whole_run import ROOT, WholeRun, spade, whole_run

ALARMS = {"designer_collapse", "hint_leak", "forgetting"}
TOLD_WITHIN_S = 1500.0
"""Generous: about a minute on two quiet cores, once the model is there."""


def told(run: WholeRun) -> list[str]:
    """Kinds of the alarms in alerts.jsonl, in order."""
    if not run.folder.alerts.exists():
        return []
    kinds = [json.loads(line)["kind"] for line in run.folder.alerts.read_text().splitlines()]
    return [kind for kind in kinds if kind in ALARMS]


@pytest.mark.timeout(1800)
def test_a_run_without_guards_says_what_its_figures_do_not(tmp_path: Path) -> None:
    with whole_run(tmp_path / "run", "nano") as run:
        run.config = ROOT / "configs" / "nano_unguarded.toml"
        run.values = {"train.steps": 150}
        run.start()
        run.wait(lambda: set(told(run)) == ALARMS, TOLD_WITHIN_S, "all three alarms")
        # The figures that a user looks at first, over the steps so far.
        steps = [json.loads(row[0]) for row in run.query("SELECT metrics_json FROM steps")]
        regret = [s["regret/mean"] for s in steps if "regret/mean" in s]
        reward = [s["designer/reward_mean"] for s in steps if "designer/reward_mean" in s]
        validity = [s["designer/validity"] for s in steps if "designer/validity" in s]
        assert mean(regret[-10:]) > mean(regret[:5]) + 0.1
        assert mean(reward[-10:]) > mean(reward[:5]) + 0.1
        # A step of very few designs may have none that is valid.
        assert median(validity[-10:]) > 0.8
        assert not any(s["designer/quota_refused"] for s in steps)
        # And those that tell.
        last = steps[-1]
        first = next(s for s in steps if "guards/effective_skeletons" in s)
        assert last["guards/effective_skeletons"] < 0.5 * first["guards/effective_skeletons"]
        assert last["guards/leak_share"] > 0.6
        run.send(signal.SIGTERM)
        run.end(120.0)
        # Everywhere, once each; a later one says that an alarm is over.
        assert set(told(run)) == ALARMS
        alarms = run.report()["alarms"]
        assert {alarm["kind"] for alarm in alarms} == ALARMS
        assert all(alarm["raised_step"] > 0 for alarm in alarms)
        assert len(told(run)) == len(alarms)
        now = json.loads(spade("status", run.root, "--json").out)
        assert set(now["alarms"]) == {a["kind"] for a in alarms if a["cleared_step"] is None}
        assert {alert["kind"] for alert in now["alerts"]} >= ALARMS
        events = EventAccumulator(str(run.folder.tensorboard))
        events.Reload()
        shown = "".join(
            text.decode()
            for event in events.Tensors("run/alerts")
            for text in event.tensor_proto.string_val
        )
        assert all(f"**{kind}**" in shown for kind in ALARMS)


def mean(values: list[float]) -> float:
    assert values
    return sum(values) / len(values)
