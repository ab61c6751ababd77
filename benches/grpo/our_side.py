"""One run of our learner: ``python -m benches.grpo.our_side MODEL SIZE BUDGET THREADS``.

BUDGET is `learner.micro_batch_tokens`. Prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benches.grpo import workload
from spade_async.config.schema import Config
from spade_async.grpo.advantage import group_advantages
from spade_async.grpo.samples import TrainSample
from spade_async.learner.state import LearnerState
from spade_async.learner.update import Updater
from spade_async.types import NO_VERSION, PolicyVersion, Role, TokenTrace

KINDS = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::addmm_"),
    "attention": ("aten::_scaled_dot", "aten::scaled_dot"),
    "softmax": ("aten::_log_softmax", "aten::_softmax"),
    "optimiser": ("aten::_foreach", "aten::_fused", "Optimizer"),
    "copies": ("aten::copy_", "aten::cat", "aten::index", "aten::_index_put", "aten::zero_",
               "aten::fill_"),
}  # fmt: skip
"""Kinds of work by the first letters of their operations; what fits none is "other"."""


def samples(size: workload.Size) -> list[TrainSample]:
    """The step; rule "none" reads no log-probabilities of the generator."""
    found = []
    for number, group in enumerate(workload.groups(size)):
        advantages = group_advantages([r.reward for r in group], normalise_std=False)
        for index, (reply, advantage) in enumerate(zip(group, advantages, strict=True)):
            prompt = len(reply.prompt)
            ids = np.array(reply.prompt + reply.reply, np.int32)
            mask = (np.arange(len(ids)) >= prompt).astype(np.uint8)
            trace = TokenTrace(
                ids, mask, np.zeros(len(ids), np.float32), np.where(mask, 0, NO_VERSION)
            )
            name = f"{number}.{index}"
            found.append(TrainSample(name, Role.AGENT, advantage, 0, trace, number))
    return found


def main() -> int:
    """Warm up, measure, profile one further step."""
    folder, size_name, micro_batch_tokens, threads = sys.argv[1:]
    size = workload.QUICK if size_name == "quick" else workload.FULL
    torch.set_num_threads(int(threads))
    config = Config.model_validate(
        {
            "learner": {
                "lr": workload.LR, "warmup_steps": 0, "betas": workload.BETAS,
                "grad_clip": workload.GRAD_CLIP, "micro_batch_tokens": int(micro_batch_tokens),
                "kl_to_start": 0.0, "clip_low": workload.CLIP, "clip_high": workload.CLIP,
                "correction": {"rule": "none"},
            },
            "agent": {"temperature": 1.0},
        }
    )  # fmt: skip
    state = LearnerState.create(Path(folder), config.learner, PolicyVersion(0, 0))
    updater, step_samples = Updater(state, config), samples(size)
    loaded = workload.peak_bytes()
    steps = []
    for step in range(1, size.steps + 2):
        began = time.perf_counter()
        result = updater.update(step_samples, step)
        seconds = time.perf_counter() - began
        if not result.applied:
            raise RuntimeError(f"step {step} was not applied: {result.reason}")
        steps.append(_row(seconds, result.metrics))
    peak = workload.peak_bytes()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        updater.update(step_samples, size.steps + 2)
    print(json.dumps({
        "steps": steps,
        "loaded_bytes": loaded,
        "peak_bytes": peak,
        "matmul_flops_per_s": workload.matmul_flops_per_s(),
        "shares": _shares(profiled),
        "versions": workload.versions(),
    }))  # fmt: skip
    return 0


def _row(seconds: float, metrics: dict[str, float]) -> dict[str, float]:
    tags = ("loss", "grad_norm", "padding_share", "micro_batches")
    return {"seconds": seconds} | {tag: metrics[f"learner/{tag}"] for tag in tags}


def _shares(profiled: Any) -> dict[str, float]:
    totals = dict.fromkeys([*KINDS, "other"], 0.0)
    for event in profiled.key_averages():
        kind = next((k for k, starts in KINDS.items() if event.key.startswith(starts)), "other")
        totals[kind] += event.self_cpu_time_total
    whole = sum(totals.values())
    return {kind: value / whole for kind, value in totals.items()}


if __name__ == "__main__":
    sys.exit(main())
