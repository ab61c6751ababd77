"""Hostile frames at every process of a living run: it goes on, they are counted, nothing grows.

`HOSTILE_FRAMES` is how many at each end (4,000 by default).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spade_async.supervisor.processes import pss_bytes
from tests.support.whole_run import ROOT, START_LIMIT_S, WholeRun, whole_run

FRAMES = int(os.environ.get("HOSTILE_FRAMES", "4000"))
LIMIT_S = 90.0 + FRAMES / 200.0
MOST_GROWN_BYTES = 64 << 20
pytestmark = pytest.mark.timeout(int(2 * LIMIT_S + 120))


def test_hostile_frames_at_every_process_of_a_run_are_counted_and_it_goes_on(
    tmp_path: Path,
) -> None:
    out = tmp_path / "thrown"
    argv = [sys.executable, "-m", "tests.support.hostile_proxy", str(FRAMES), "7"]
    with (
        out.open("w") as sink,
        # Before the run, so that it is none of what the run must have ended.
        subprocess.Popen(
            argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=sink, text=True, bufsize=1
        ) as proxy,
        whole_run(tmp_path / "run", None, train__steps=1_000_000, scripted__learner_s=0.2) as run,
    ):
        run.start()
        run.wait_steps(2)
        assert proxy.stdin is not None
        proxy.stdin.write(f"{run.socket_folder() / 'link.sock'}\n")
        try:
            run.wait(lambda: "ready" in out.read_text(), START_LIMIT_S, "it is between")
            # Who comes back connects to what stands at the address now.
            for name in ("gen-0", "learner"):
                run.kill(run.pid(name))
            ends = {"coordinator", "gen-0", "learner"}
            run.wait(lambda: len(thrown(out)) >= 1, LIMIT_S, "the first end has it all")
            before = {name: pss_bytes(run.pid(name)) for name in ends}
            run.wait(lambda: thrown(out) >= ends, LIMIT_S, "all was thrown")
            step = run.num_steps()
            run.wait(lambda: run.num_steps() >= step + 3, START_LIMIT_S, "the run goes on")
            grown = {name: pss_bytes(run.pid(name)) - was for name, was in before.items()}
            assert max(grown.values()) < MOST_GROWN_BYTES, grown
            # Nobody died of it: two deaths are the two that we caused.
            status = run.status()
            kinds = [alert.kind for alert in status.alerts]
            assert kinds.count("part_died") == 2, status.alerts
            # The parts refuse every frame; of a stranger's at the coordinator, whole and
            # unreliable ones may also be counted as control.
            run.wait(
                lambda: run.status().metrics["link/refused"] > 2 * FRAMES,
                START_LIMIT_S,
                f"all ends counted: {run.status().metrics.get('link/refused')}",
            )
            # At the coordinator each is counted under its own reason.
            expected = reasons(out)
            assert sum(expected.values()) == FRAMES
            assert len(expected) >= 8, expected
            run.wait(
                lambda: sum(at_coordinator(run).values()) >= FRAMES,
                START_LIMIT_S,
                "the coordinator counted all of them",
            )
            found = at_coordinator(run)
            # What a killed part still had under way may be refused as of another life.
            assert found.pop("other_incarnation") >= expected.pop("other_incarnation", 0)
            found.pop("unknown_peer", None)
            assert found == expected
            run.send(signal.SIGINT)
            assert run.end(START_LIMIT_S).code == 0
        finally:
            proxy.kill()
    report = run.report()
    assert (report["samples_lost"], report["samples_trained_twice"]) == (0, 0)


def reasons(out: Path) -> dict[str, int]:
    """Frames thrown at the coordinator by the reason they must be refused for."""
    lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
    told = [json.loads(line) for line in lines]
    return dict(next(one["reasons"] for one in told if one["end"] == "coordinator"))


def at_coordinator(run: WholeRun) -> dict[str, int]:
    """What the coordinator refused so far, by reason."""
    start = "link/refused/coordinator/"
    metrics = run.status().metrics
    return {n.removeprefix(start): int(v) for n, v in metrics.items() if n.startswith(start)}


def thrown(out: Path) -> set[str]:
    """Ends at which all frames were thrown."""
    lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
    names = {json.loads(line)["end"] for line in lines}
    return {name if name == "coordinator" else name.rpartition("-")[0] for name in names}
