"""The limits of a control group, and those of machines without: one worker's end is its own."""

import os
import threading
from pathlib import Path

import pytest

from tests.attacks.arena import Arenas, eventually
from tests.attacks.case import CRASHED, EXCEPTION, FINISHED, OVER_MEMORY, TIMED_OUT, Case

GROUPS = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*")]


def cells() -> set[str]:
    """Groups that processes of this test have made."""
    found = set()
    for root in GROUPS:
        if root.is_dir():
            found |= {str(path) for path in root.glob(f"**/spade-{os.getpid()}-*")}
    return found


HOGS = {
    "touching-shared-pages": """
        import gc
        gc.unfreeze(); gc.collect()
        kept = [bytearray(1 << 20) for _ in range(1000)]""",
    "mapping-and-touching": """
        while True:
            place = call(9, 0, 4 << 20, 3, 0x22, -1, 0)
            if place < 0: raise MemoryError
            ctypes.memset(place, 1, 4 << 20)""",
    "page-tables": """
        while True:
            place = call(9, 0, 2 << 20, 3, 0x22, -1, 0)
            if place < 0: break
            ctypes.memset(place, 1, 1)
        while True: pass""",
    "small-objects": "a = []\nwhile True: a.append((len(a), str(len(a))))",
}


@pytest.mark.parametrize("name", HOGS)
def test_one_workers_memory_ends_nobody_else(arenas: Arenas, name: str) -> None:
    """Four at once at their limits, and the sibling steps on all the while."""
    arena = arenas.get("ctypes")
    arena.check()
    source = Case("", HOGS[name], on="ctypes").source()
    outcomes = []

    def run() -> None:
        with arena.session(source) as session:
            session.reset()
            outcomes.append(session.step("go").outcome)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        arena.check()
    for thread in threads:
        thread.join()
    assert set(outcomes) <= {OVER_MEMORY, TIMED_OUT, CRASHED, EXCEPTION}, outcomes
    arena.fresh()
    arena.check_at_rest()


def test_the_next_worker_of_a_cell_owes_nothing(arenas: Arenas) -> None:
    """Groups are pooled: what one used must not be counted against the next."""
    arena = arenas.get("plain")
    fill = Case("", "a = []\nwhile True: a.append(bytearray(1 << 20))").source()
    use = Case("", "self.kept = bytearray(40 << 20)").source()
    for _ in range(12):
        with arena.session(fill) as session:
            assert session.reset().ok
            assert session.step("go").outcome is OVER_MEMORY
        with arena.session(use) as session:
            assert session.reset().ok
            assert session.step("go").outcome is FINISHED
    arena.check_at_rest()


def test_groups_do_not_pile_up(arenas: Arenas) -> None:
    arena = arenas.get("plain")
    arena.check_at_rest()
    before = len(cells())
    for _ in range(30):
        with arena.session(Case("", "os._exit(1)").source()) as session:
            session.reset()
            session.step("go")
    assert eventually(lambda: len(cells()) <= before + arena.policy.num_workers)
    arena.check_at_rest()
