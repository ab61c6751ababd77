"""What a generator tells of its jail, and what becomes of it in the coordinator."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from spade_async.coordinator.jail_totals import JailTotals
from spade_async.generator.jail_figures import JailRecord, level_text, write_record
from spade_async.sandbox_policy import SandboxPolicy
from spade_async.sandbox_records import Event
from spade_async.telemetry.metrics import find
from tests.support.fake_jail import FakeJail

CAPABILITIES: dict[str, Any] = {
    "level": "container",
    "layers": {
        "seccomp": {"ok": True, "detail": "", "remedy": ""},
        "cgroup": {"ok": False, "detail": "not writable", "remedy": "mount it"},
        "pid_namespace": {"ok": False, "detail": "", "remedy": ""},
    },
}


def event(kind: str) -> Event:
    return Event(1.0, kind, "compute", None, "it was seen")


def test_events_are_counted_and_only_those_about_the_machine_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jail, record = FakeJail(), JailRecord()
    jail.happened = [event("timed_out"), event("timed_out"), event("broker_died")]
    jail.counters = {"broker_restarts": 1, "code_hits": 9, "forked": 4}
    with caplog.at_level(logging.WARNING):
        figures = record.take(jail)
    assert [r.getMessage() for r in caplog.records] == ["jail: broker_died compute: it was seen"]
    assert figures == {
        "jail_live": 0, "jail_spare": 1, "jail_waiting": 0, "jail_broker_restarts": 1,
        "jail_code_hits": 9, "jail_event_timed_out": 2, "jail_event_broker_died": 1,
    }  # fmt: skip
    jail.happened = [event("timed_out")]
    assert record.take(jail)["jail_event_timed_out"] == 3  # since the start


def test_totals_add_up_over_generators_and_their_restarts() -> None:
    totals = JailTotals()
    first = {"jail_code_hits": 6.0, "jail_code_misses": 2.0, "jail_lost_spares": 1.0,
             "jail_broker_restarts": 0.0, "jail_p50_s": 0.5, "jail_event_crashed": 2.0}  # fmt: skip
    totals.add({}, first)
    totals.add({}, {"jail_code_hits": 0.0, "jail_code_misses": 2.0})  # another generator
    assert totals.flush() == {
        "jail/lost_spares": 1.0, "jail/broker_restarts": 0.0,
        "jail/code_hit_share": 0.6, "jail/event/crashed": 2.0,  # 6 of 10 loads
    }  # fmt: skip
    totals.add(first, first)
    # Nothing new: no share of nothing, no events; what is "so far" stays.
    assert totals.flush() == {"jail/lost_spares": 1.0, "jail/broker_restarts": 0.0}
    # A generator that starts anew counts from 0 again.
    totals.add(first, {"jail_lost_spares": 1.0, "jail_broker_restarts": 2.0,
                       "jail_event_crashed": 1.0})  # fmt: skip
    assert totals.flush() == {
        "jail/lost_spares": 2.0, "jail/broker_restarts": 2.0, "jail/event/crashed": 1.0,
    }  # fmt: skip


def test_every_number_is_in_the_catalog() -> None:
    totals = JailTotals()
    stats = ("lost_spares", "template_restarts", "template_rotations", "broker_restarts",
             "events_dropped", "code_hits", "code_misses", "event_busy")  # fmt: skip
    totals.add({}, {f"jail_{name}": 1.0 for name in stats})
    found = totals.flush()
    assert len(found) == 7
    assert [tag for tag in found if find(tag) is None] == []


def test_the_level_and_what_it_lacks_are_told_and_kept(tmp_path: Path) -> None:
    text = level_text(CAPABILITIES)
    assert text == "level container; missing: cgroup (not writable), pid_namespace"
    assert level_text({"level": "strict", "layers": {}}) == "level strict; missing: no layer"
    path = tmp_path / "jail-gen-0.json"
    write_record(path, SandboxPolicy(profiles=("numpy", "compute")), CAPABILITIES)
    kept = json.loads(path.read_text())
    assert kept["holds"] == CAPABILITIES
    assert [profile["name"] for profile in kept["asked"]["profiles"]] == ["numpy", "compute"]
    assert kept["asked"]["level"] == "auto"
    assert list(tmp_path.iterdir()) == [path]
