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
    gpu_memory: Annotated[Size, Field(ge=1 << 30, le=1 << 42)] = 80 * 10**9
    """Memory of one of them."""
    host_memory: Annotated[Size, Field(ge=1 << 28, le=1 << 46)] | None = None
    """Memory of the machine, for `spade-async plan`; not set: of the one it runs on."""
