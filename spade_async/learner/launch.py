"""Several processes of one learner: torchrun starts them, and none outlives it. No torch at import.

The supervisor starts and watches one process, which becomes torchrun; rank 0 below it is the
learner of the link, the others follow it (`followers.py`). torchrun ends all when one dies.
"""

from __future__ import annotations

import ctypes
import os
import signal

from spade_async.transport.part import Part

_PR_SET_PDEATHSIG = 1
_LAUNCHER = "SPADE_ASYNC_LAUNCHER"
"""Environment variable: pid of torchrun."""


def is_rank() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def rank() -> int:
    """This process's rank; 0 when it is the only one."""
    return int(os.environ.get("RANK", "0")) if is_rank() else 0


def part_pid() -> int:
    """The process that the supervisor started: it is what may be killed for a hang."""
    return os.getppid() if is_rank() else os.getpid()


def die_with_parent() -> None:
    """Be killed when torchrun is gone: its ranks are in sessions of their own."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if str(os.getppid()) != os.environ.get(_LAUNCHER, str(os.getppid())):
        # It was gone before it was watched.
        os._exit(1)


def launch(part: Part, ranks: int) -> int:
    """Be torchrun for the ranks of this part; returns the exit status of rank 0."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    arguments = [
        "--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "0",
        "-m", "spade_async.learner",
        "--run-dir", str(part.run_dir), "--name", part.name, "--endpoint", part.endpoint,
    ]  # fmt: skip
    os.environ[_LAUNCHER] = str(os.getpid())
    try:
        torchrun.main(arguments)
    except ChildFailedError as failed:
        # Rank 0 says what the supervisor must know; a follower's death has no meaning of its own.
        first = failed.failures.get(0)
        return 1 if first is None or first.exitcode <= 0 else int(first.exitcode)
    except SignalException:
        return 0
    return 0
