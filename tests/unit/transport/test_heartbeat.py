from __future__ import annotations

import logging
import threading

from spade_async.transport.heartbeat import HeartbeatThread
from spade_async.transport.messages import Heartbeat


def test_heartbeats_go_on_after_a_snapshot_that_failed(caplog):
    posted: list[Heartbeat] = []
    enough = threading.Event()
    calls = 0

    def snapshot() -> dict[str, object]:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise RuntimeError("not now")
        return {"state": "idle", "progress": calls, "metrics": {"tokens": 3}}

    def post(message: Heartbeat) -> None:
        posted.append(message)
        if len(posted) == 3:
            enough.set()

    with caplog.at_level(logging.ERROR):
        thread = HeartbeatThread(post, "gen-0", snapshot, interval_s=0.01).start()
        assert enough.wait(10)
        thread.stop()
    assert [beat.progress for beat in posted[:3]] == [1, 4, 5]
    assert posted[0].metrics == {"tokens": 3.0}
    assert posted[0].waits_for == ""
    # Two failures in a row are one line.
    assert len(caplog.records) == 1
