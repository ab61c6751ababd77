from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spade_async.telemetry import event_file as module
from spade_async.telemetry.tensorboard import EventWriter


def points(folder: Path) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(e.step, e.value) for e in events.Scalars("regret/mean")]


def test_events_that_found_no_room_are_written_whole_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars(1, {"regret/mean": 1.0})
    writer.flush()
    real, left = module.os.write, [37]

    def little(descriptor: int, data: bytes) -> int:
        # The disk takes 37 bytes: the middle of a record.
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken, left[0] = left[0], 0
        return real(descriptor, bytes(data[:taken]))

    with monkeypatch.context() as full:
        full.setattr(module.os, "write", little)
        for step in (2, 3, 4):
            writer.scalars(step, {"regret/mean": float(step)})
            writer.flush()
        # A reader meanwhile sees what is whole.
        assert points(tmp_path) == [(1, 1.0)]
    writer.scalars(5, {"regret/mean": 5.0})
    writer.close()
    assert points(tmp_path) == [(step, float(step)) for step in range(1, 6)]


def test_what_waits_is_bounded_and_what_is_dropped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "MOST_PENDING_BYTES", 20_000)
    writer = EventWriter(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(module.os, "write", never)
        for step in range(1, 500):
            writer.scalars(step, {"regret/mean": float(step)})
        assert len(writer._file._pending) < 21_000
        assert writer._file.num_dropped > 100
    writer.close()
    steps = [step for step, _ in points(tmp_path)]
    assert steps == list(range(1, len(steps) + 1))


def test_events_are_on_disk_after_the_flush_time_without_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EventWriter(tmp_path)
    now = module.time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + 100)
    writer.scalars(1, {"regret/mean": 1.0})
    assert points(tmp_path) == [(1, 1.0)]
    writer.close()
