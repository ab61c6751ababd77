"""Which samples of a step share a forward pass: little padding, and not too many passes.

Right padding makes a micro-batch as large as rows x longest row. Sorted by length, a micro-batch is
a piece of the sorted list, and the cheapest cut of the list is found exactly:

    cost of a plan = padded tokens of all micro-batches + PASS_TOKENS per micro-batch

so a long list of near lengths fills the budget, and a short one of lengths far apart is cut where
its padding would cost more than another pass. The cut depends on the lengths alone: the passes of
an update, and a replay of it, have the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PASS_TOKENS = 64
"""What another forward and backward pass costs beside its tokens, in tokens. Small on purpose:
steps of the nano model are fastest at 64 to 128, and padding is paid whatever the model's size."""


def plan_micro_batches(lengths: Sequence[int], cap_tokens: int) -> list[list[int]]:
    """Indices of the samples of each micro-batch, by rising length.

    Args:
        lengths: tokens the model reads of each sample, see `batch.num_input_tokens`; 1 or more.
        cap_tokens: most rows x longest row. A lone sample longer than it has a micro-batch of its
            own: it cannot be cut, and a sample that is left out would bias the step.
    """
    if not lengths:
        return []
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    rising = np.array([lengths[i] for i in order], dtype=np.int64)
    count = len(rising)
    # cheapest[j]: cost of the first j samples; start[j]: where their last micro-batch begins.
    cheapest = np.zeros(count + 1, dtype=np.int64)
    start = np.zeros(count + 1, dtype=np.int64)
    for end in range(1, count + 1):
        longest = int(rising[end - 1])
        first = end - min(end, max(1, cap_tokens // longest))
        rows = np.arange(end - first, 0, -1)
        costs = cheapest[first:end] + rows * longest + PASS_TOKENS
        best = int(np.argmin(costs))
        start[end], cheapest[end] = first + best, costs[best]
    plan: list[list[int]] = []
    end = count
    while end > 0:
        plan.append(order[int(start[end]) : end])
        end = int(start[end])
    return plan[::-1]


def padded_tokens(lengths: Sequence[int], plan: Sequence[Sequence[int]]) -> int:
    """Tokens of all micro-batches of a plan, padding included."""
    return sum(len(part) * max(lengths[i] for i in part) for part in plan)
