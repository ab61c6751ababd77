"""Latency of the jail on one CPU while torch trains on another, and what the trainer loses."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from benches.ladder import native
from benches.ladder.cpu import Pinned
from benches.ladder.plan import Plan
from benches.ladder.row import Row, Unavailable, figure

_TRAINER = """
import sys, threading, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
optimiser = torch.optim.AdamW(model.parameters())
batch = torch.randn(64, 256)
count = 0
def serve():
    for _ in sys.stdin:
        print(count, flush=True)
threading.Thread(target=serve, daemon=True).start()
while True:
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
    count += 1
"""


class Trainer:
    """A torch loop on one CPU; says how many updates it has made."""

    def __init__(self, cpu: int) -> None:
        if importlib.util.find_spec("torch") is None:
            raise Unavailable("torch is not installed")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TRAINER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, [cpu]),
        )
        while self.count() < 20:
            time.sleep(0.1)

    def count(self) -> int:
        """Updates so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def rate(self, work: Any) -> float:
        """Updates per second while `work` runs."""
        before, begun = self.count(), time.perf_counter()
        work()
        return (self.count() - before) / (time.perf_counter() - begun)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def measure(plan: Plan, seconds: float) -> dict[str, Any]:
    """Step latency alone and beside the trainer; updates per second alone and beside the jail.

    Raises:
        Unavailable: one CPU only, or no torch.
    """
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise Unavailable("needs two CPUs")
    with Pinned() as (own,), ExitStack() as stack:
        rungs = native.Rungs(stack, plan)
        steps = Row("step", "step, hot", rungs.hot())
        replies = Row("reply", "spare to first reply", rungs.first_reply(4, cache=False, warm=True))

        def work() -> dict[str, Any]:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                steps.turn()
                replies.turn()
            found = {
                "step_us": figure(steps.samples),
                "first_reply_spare_source_us": figure(replies.samples),
            }
            steps.samples, replies.samples = [], []
            if steps.missing or replies.missing:
                raise RuntimeError(steps.missing or replies.missing)
            return found

        alone = work()
        trainer = Trainer(next(cpu for cpu in usable if cpu != own))
        stack.callback(trainer.close)
        beside: dict[str, Any] = {}
        quiet = trainer.rate(lambda: time.sleep(seconds))
        busy = trainer.rate(lambda: beside.update(work()))
    return {
        "alone": alone,
        "beside_torch": beside,
        "torch_updates_per_s": {"alone": quiet, "beside_jail": busy},
    }
