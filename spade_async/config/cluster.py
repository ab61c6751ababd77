"""The GPUs of a run: how many there are and what they hold. Who gets which: `cluster.placement`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from spade_async.config.section import Section
from spade_async.config.size import Size


class ClusterConfig(Section):
    """The machine that a run is placed on."""

    gpus: Literal[0, 1, 2, 4, 8] = 0
    """GPUs of the node, shared out to the learner's ranks first, then to the generators; with 1
    they share it. 0: everything runs on the CPU."""
    turns: bool | None = None
    """Whether engines sleep while the learner trains, their weights on the host: for a device that
    both share. Not set: with gpus = 1. false: both stay on it."""
    gpu_memory: Annotated[Size, Field(ge=1 << 30, le=1 << 42)] = 80 * 10**9
    """Memory of one of them."""
    host_memory: Annotated[Size, Field(ge=1 << 28, le=1 << 46)] | None = None
    """Memory of the machine, for `spade-async plan`; not set: of the one it runs on."""

    @property
    def takes_turns(self) -> bool:
        """Whether generators leave the device that they share with the learner while it trains."""
        return self.gpus == 1 if self.turns is None else self.turns
