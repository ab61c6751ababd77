"""The processes of one learner: what they agree on, and what they send each other.

Each holds a part of every weight (`sharding.py`) and works on a part of every step; all of them
run the same code on the same batch, and rank 0 alone writes files and talks to the coordinator.
With one rank nothing here waits for anybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from spade_async.errors import WeightsError

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""Time-out of a collective. A dead rank is seen at once, a hung one by the supervisor; a step may
wait for long (a full disk)."""


class OtherRankFailed(WeightsError):
    """What was to be done by all ranks was not done by another one."""


class Ranks:
    """One process's place among the ranks."""

    def __init__(self, rank: int, world: int) -> None:
        """Take the place; `join` makes one from the environment."""
        self.rank = rank
        self.world = world

    @property
    def is_leader(self) -> bool:
        """Whether this is the rank that writes files."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other rank."""
        return self.world == 1

    def share(self, plan: Sequence[list[int]]) -> list[tuple[list[int], bool]]:
        """This rank's micro-batches of a step's plan, and whether each counts.

        All ranks have as many, since they gather weights together: who has one less repeats its
        last one (or the step's) without weight.
        """
        mine = [(part, True) for part in plan[self.rank :: self.world]]
        rounds = -(-len(plan) // self.world)
        if len(mine) < rounds:
            mine.append((plan[-1], False))
        return mine

    def sum(self, value: float) -> float:
        """The sum over the ranks."""
        if self.is_alone:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)

    def any(self, flag: bool) -> bool:
        """Whether it is true on any rank."""
        return flag if self.is_alone else self.sum(float(flag)) > 0

    def least(self, value: int) -> int:
        """The smallest value of all ranks."""
        if self.is_alone:
            return value
        found = torch.tensor(value, dtype=torch.int64)
        dist.all_reduce(found, op=dist.ReduceOp.MIN)
        return int(found)

    def together(self, work: Callable[[], T]) -> T:
        """Do `work` on every rank; when it fails on one it fails on all.

        So that all try again, or none: a full disk may be met by one rank alone.

        Raises:
            OtherRankFailed: another rank failed; its error's text is in it.
        """
        if self.is_alone:
            return work()
        fault: Exception | None = None
        try:
            result = work()
        except Exception as cause:
            fault = cause
        said = self.gather(b"" if fault is None else f"{type(fault).__name__}: {fault}".encode())
        if fault is not None:
            raise fault
        for rank, text in enumerate(said):
            if text:
                raise OtherRankFailed(f"rank {rank} of the learner: {text.decode()}")
        return result

    def gather(self, mine: bytes) -> list[bytes]:
        """What every rank gives, by rank."""
        if self.is_alone:
            return [mine]
        length = torch.tensor([len(mine)], dtype=torch.int64)
        lengths = [torch.zeros_like(length) for _ in range(self.world)]
        dist.all_gather(lengths, length)
        longest = max(int(n) for n in lengths)
        if longest == 0:
            return [b""] * self.world
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(mine)] = torch.frombuffer(bytearray(mine or b"\0"), dtype=torch.uint8)[
            : len(mine)
        ]
        all_padded = [torch.zeros_like(padded) for _ in range(self.world)]
        dist.all_gather(all_padded, padded)
        return [
            bytes(t[: int(n)].numpy().tobytes()) for t, n in zip(all_padded, lengths, strict=True)
        ]

    def broadcast(self, message: bytes = b"") -> bytes:
        """What rank 0 gives; on the other ranks the argument is not used."""
        if self.is_alone:
            return message
        length = torch.tensor([len(message)], dtype=torch.int64)
        dist.broadcast(length, 0)
        if int(length) == 0:
            return b""
        data = (
            torch.frombuffer(bytearray(message), dtype=torch.uint8)
            if self.is_leader
            else torch.zeros(int(length), dtype=torch.uint8)
        )
        dist.broadcast(data, 0)
        return bytes(data.numpy().tobytes())


ALONE = Ranks(0, 1)
"""The only process of a learner."""


def ranks() -> Ranks:
    """This process's place: of the process group when there is one."""
    if dist.is_initialized():
        return Ranks(dist.get_rank(), dist.get_world_size())
    return ALONE


def join(device: str = "cpu") -> Ranks:
    """Become one of the ranks that torchrun started, or the only one without it.

    Weights go over NCCL on a GPU; flags, batches and files always over gloo.
    """
    if dist.is_initialized():
        return ranks()
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if dist.is_torchelastic_launched():
        dist.init_process_group(backend, timeout=PATIENCE)
    else:
        # Exported by torch, but not for type checkers.
        store = cast(Any, dist).HashStore()
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=PATIENCE)
    return ranks()


def leave() -> None:
    """Leave the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()
