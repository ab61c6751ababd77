"""GPUs to processes, by rule: the learner's ranks first, then the generators in their order.

Pure: the same configuration gives the same placement on any machine. With 0 GPUs nobody gets one;
with 1 the learner and the one generator share it; with more, nobody shares.
"""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.config.schema import Config
from spade_async.errors import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices of each process, by number on the node.

    Example: 4 GPUs, learner.ranks=2, two generators: learner (0, 1), generators ((2,), (3,)).
    """

    gpus: int
    learner: tuple[int, ...]
    """One device per rank; empty on a CPU."""
    generators: tuple[tuple[int, ...], ...]
    """Of each generator, as many as `engine.vllm.tensor_parallel`; empty ones on a CPU."""

    @property
    def is_shared(self) -> bool:
        """Whether learner and generator are on the same device."""
        return bool(set(self.learner) & {d for devices in self.generators for d in devices})

    @property
    def idle(self) -> tuple[int, ...]:
        """Devices that nobody got."""
        taken = {*self.learner, *(d for devices in self.generators for d in devices)}
        return tuple(d for d in range(self.gpus) if d not in taken)

    def environment(self, part: str) -> dict[str, str]:
        """Environment of the part of that name ("learner", "gen-0", "coordinator"); {} on a CPU.

        The coordinator sees no device: it needs none, and a context of it would cost memory.
        """
        if not self.gpus:
            return {}
        devices: tuple[int, ...] = ()
        if part == "learner":
            devices = self.learner
        elif part.startswith("gen-"):
            devices = self.generators[int(part.removeprefix("gen-"))]
        return {VISIBLE: ",".join(map(str, devices))}


def place(config: Config) -> Placement:
    """The placement of a configuration.

    Raises:
        ConfigError: GPUs asked of parts that use none, or fewer than the parts ask for; both keys
            are named.
    """
    gpus, ranks = config.cluster.gpus, config.learner.ranks
    count, width = config.generator.count, config.engine.vllm.tensor_parallel
    if config.cluster.turns and gpus > 1:
        raise ConfigError(
            f"cluster.turns=true is for a device that learner and generators share, but cluster."
            f"gpus={gpus} gives each its own: leave cluster.turns out"
        )
    if not gpus:
        if config.learner.device == "cuda":
            raise ConfigError(
                'learner.device="cuda" with cluster.gpus=0: say how many GPUs there are '
                '(cluster.gpus=1, 2, 4 or 8), or set learner.device="cpu"'
            )
        return Placement(0, (), ((),) * count)
    if config.engine.kind != "vllm":
        raise ConfigError(
            f'cluster.gpus={gpus}, but engine.kind="{config.engine.kind}" generates on the CPU: '
            'set engine.kind="vllm", or cluster.gpus=0'
        )
    if config.learner.device != "cuda":
        raise ConfigError(
            f'cluster.gpus={gpus}, but learner.device="{config.learner.device}": set '
            'learner.device="cuda", or cluster.gpus=0'
        )
    if gpus == 1:
        return _shared(ranks, count, width)
    asked = ranks + count * width
    if asked > gpus:
        raise ConfigError(
            f"cluster.gpus={gpus}, but learner.ranks={ranks} and generator.count={count} with "
            f"engine.vllm.tensor_parallel={width} ask for {asked}: lower one of them"
        )
    starts = [ranks + index * width for index in range(count)]
    generators = tuple(tuple(range(start, start + width)) for start in starts)
    return Placement(gpus, tuple(range(ranks)), generators)


def _shared(ranks: int, count: int, width: int) -> Placement:
    """One GPU for both; more than one of anything has no place on it."""
    for key, value in (
        ("learner.ranks", ranks),
        ("generator.count", count),
        ("engine.vllm.tensor_parallel", width),
    ):
        if value != 1:
            raise ConfigError(
                f"cluster.gpus=1, but {key}={value}: set {key}=1, or cluster.gpus=2, 4 or 8"
            )
    return Placement(1, (0,), ((0,),))
