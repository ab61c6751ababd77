"""What holds for every test, whoever starts them."""

from __future__ import annotations

import signal
from typing import Any

import pytest

# A shell starts what runs in its background with Ctrl-C ignored, and nohup ignores a hang-up; both
# are inherited, also by what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

LONGEST = (
    "learning/test_nano_unguarded.py",
    "attacks/test_unprivileged.py",
    "integration/test_run_deaths.py",
    "integration/test_run_hangs.py",
    "integration/test_chaos.py",
    "integration/test_run_clock_jumps.py",
    "integration/test_run_bad_input.py",
    "integration/test_replay_step.py",
    "integration/test_run_interrupts.py",
    "integration/test_generator_process.py",
    "integration/test_learner_process.py",
    "jail/test_hostile_frames.py",
    "attacks/test_forkable.py",
    "attacks/test_exhaust_cpu.py",
    "attacks/test_siblings.py",
    "jail/test_life_many.py",
    "jail/test_api_fork.py",
)
"""Files that take longest, about in this order: with several workers they begin first, so that none
is left alone with one at the end. Those that want the nano model come after others, as one worker
makes it for all."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return  # alone, and in the order it is asked for
    ranks = {name: rank for rank, name in enumerate(LONGEST)}

    def rank(item: pytest.Item) -> int:
        path = item.path
        return ranks.get(f"{path.parent.name}/{path.name}", len(ranks))

    items.sort(key=rank)  # stable: the others stay as they were


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests on one worker: they share a pool of workers, a run or a model."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # or files of one long test would come last
    return LoadFileScheduling(config, log)
