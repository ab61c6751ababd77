"""One run of our learner: ``python -m benches.grpo.our_side MODEL SIZE BUDGET THREADS STEPS``.

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

PREFIXES = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention": ("aten::_scaled_dot", "aten::scaled_dot"),
    "softmax": ("aten::_log_softmax", "aten::_softmax"),
    "optimiser": ("aten::_foreach", "aten::_fused", "Optimizer"),
    "look-ups": ("aten::index", "aten::_index_put", "aten::embedding", "aten::gather",
                 "aten::scatter", "aten::nonzero"),
    "copies": ("aten::copy_", "aten::cat", "aten::zero", "aten::fill_", "aten::_to_copy",
               "aten::clone", "aten::empty", "aten::contiguous", "aten::split"),
}  # fmt: skip
"""Kinds of work by the first letters of their operations."""
ELEMENTWISE = frozenset(
    [
        "abs",
        "add",
        "addcdiv",
        "addcmul",
        "all",
        "any",
        "bitwise_and",
        "clamp",
        "clamp_min",
        "clamp_max",
        "cos",
        "div",
        "eq",
        "exp",
        "ge",
        "gt",
        "isfinite",
        "le",
        "lerp",
        "linalg_vector_norm",
        "log",
        "lt",
        "max",
        "maximum",
        "mean",
        "min",
        "minimum",
        "mul",
        "ne",
        "neg",
        "pow",
        "reciprocal",
        "rsqrt",
        "rsub",
        "silu",
        "silu_backward",
        "sin",
        "sqrt",
        "sub",
        "sum",
        "where",
    ]
)
"""One number in, one out, and sums: norms, activations, rotations, losses, AdamW. By whole name."""


def kind_of(operation: str) -> str:
    """Kind of an operation of the profile."""
    named = next((k for k, starts in PREFIXES.items() if operation.startswith(starts)), None)
    if named is not None:
        return named
    if not operation.startswith("aten::"):
        return "autograd"
    name = operation.removeprefix("aten::").removesuffix("_")
    return "elementwise" if name in ELEMENTWISE else "views"


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
    folder, size_name, micro_batch_tokens, threads, measured = sys.argv[1:]
    num_steps = int(measured)
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
    for step in range(1, num_steps + 2):
        began = time.perf_counter()
        result = updater.update(step_samples, step)
        seconds = time.perf_counter() - began
        if not result.applied:
            raise RuntimeError(f"step {step} was not applied: {result.reason}")
        steps.append(_row(seconds, result.metrics))
    peak = workload.peak_bytes()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        began = time.perf_counter()
        updater.update(step_samples, num_steps + 2)
        wall_s = time.perf_counter() - began
    print(json.dumps({
        "steps": steps,
        "loaded_bytes": loaded,
        "peak_bytes": peak,
        "matmul_flops_per_s": workload.matmul_flops_per_s(),
        "shares": _shares(profiled, wall_s),
        "versions": workload.versions(),
    }))  # fmt: skip
    return 0


def _row(seconds: float, metrics: dict[str, float]) -> dict[str, float]:
    tags = ("loss", "grad_norm", "padding_share", "micro_batches")
    return {"seconds": seconds} | {tag: metrics[f"learner/{tag}"] for tag in tags}


def _shares(profiled: Any, wall_s: float) -> dict[str, float]:
    """Parts of the wall time of a profiled step; "outside" is what no operation accounts for."""
    totals = dict.fromkeys([*PREFIXES, "elementwise", "views", "autograd"], 0.0)
    for event in profiled.key_averages():
        totals[kind_of(event.key)] += event.self_cpu_time_total / 1e6
    whole = max(wall_s, sum(totals.values()))
    shares = {kind: seconds / whole for kind, seconds in totals.items()}
    return shares | {"outside": 1.0 - sum(shares.values())}


if __name__ == "__main__":
    sys.exit(main())
