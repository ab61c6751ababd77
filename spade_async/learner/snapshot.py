"""Weights and optimiser as they were, to be put back to the last bit."""

from __future__ import annotations

import torch

from spade_async.learner.sharding import own
from spade_async.learner.state import LearnerState


class Snapshot:
    """A copy of what an update changes: this rank's slices, in the memory of the host."""

    def __init__(self, state: LearnerState):
        self._weights = [own(p.detach()).to("cpu", copy=True) for p in state.parameters.values()]
        self._moments = [
            {k: own(v).to("cpu", copy=True) for k, v in state.optimizer.state.get(p, {}).items()}
            for p in state.parameters.values()
        ]

    @torch.no_grad()
    def restore(self, state: LearnerState) -> None:
        """Put everything back."""
        parameters = list(state.parameters.values())
        for parameter, before in zip(parameters, self._weights, strict=True):
            own(parameter).copy_(before)
        for parameter, moments in zip(parameters, self._moments, strict=True):
            if not moments:
                state.optimizer.state.pop(parameter, None)
            for key, before in moments.items():
                own(state.optimizer.state[parameter][key]).copy_(before)
