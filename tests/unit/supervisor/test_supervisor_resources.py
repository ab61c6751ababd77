from __future__ import annotations

import os
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.supervisor.processes import facts, pss_bytes
from spade_async.supervisor.resources import ResourceMeter, read_resources


def test_our_own_facts_are_read() -> None:
    me = facts(os.getpid())
    assert me is not None
    assert me.parent == os.getppid()
    assert pss_bytes(os.getpid()) > 1 << 20


def test_gone_process_has_no_facts_and_no_memory() -> None:
    assert facts(2**22 + 1) is None
    assert pss_bytes(2**22 + 1) == 0


def test_totals_add_up_over_resumes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first = ResourceMeter(folder, is_resumed=False)
    first.warm_start(2.0, 1.5)
    first.tick(force=True)
    one = read_resources(folder)
    assert one is not None
    assert one.restarts == 0
    assert one.warm_start_seconds == 2.0
    assert one.peak_memory_gib is not None
    second = ResourceMeter(folder, is_resumed=True)
    second.warm_start(0.5, 0.5)
    second.tick(force=True)
    two = read_resources(folder)
    assert two is not None
    assert two.restarts == 1
    assert two.warm_start_seconds == 2.5
    assert two.wall_seconds >= one.wall_seconds
    assert two.cpu_seconds >= one.cpu_seconds
    assert (two.peak_memory_gib or 0) >= one.peak_memory_gib


def test_what_was_not_measured_is_none(tmp_path: Path) -> None:
    meter = ResourceMeter(RunFolder(tmp_path), is_resumed=False)
    assert meter.totals().warm_start_seconds is None
    assert meter.totals().peak_memory_gib is None
    assert read_resources(RunFolder(tmp_path)) is None
