"""Weights and optimiser as they were, to be put back to the last bit."""

from __future__ import annotations

import torch

from spade_async.learner.state import LearnerState


class Snapshot:
    """A copy of what an update changes."""

    def __init__(self, state: LearnerState):
        self._weights = [p.detach().clone() for p in state.parameters.values()]
        self._moments = [
            {k: v.clone() for k, v in state.optimizer.state.get(p, {}).items()}
            for p in state.parameters.values()
        ]

    def restore(self, state: LearnerState) -> None:
        """Put everything back."""
        parameters = list(state.parameters.values())
        with torch.no_grad():
            for parameter, before in zip(parameters, self._weights, strict=True):
                parameter.copy_(before)
        for parameter, moments in zip(parameters, self._moments, strict=True):
            if moments:
                state.optimizer.state[parameter] = moments
            else:
                state.optimizer.state.pop(parameter, None)
