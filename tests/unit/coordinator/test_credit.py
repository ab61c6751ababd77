"""Credit is the flow control of tasks: none at 0, seen in the figures, never below 0."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from spade_async.coordinator.dispatch import DESIGN, Dispatcher, Task
from spade_async.coordinator.link_figures import LinkFigures
from spade_async.transport.hub import Hub
from spade_async.transport.messages import DesignTask, Heartbeat
from tests.support.fake_hub import FakeHub


def task(number: int) -> Task:
    message = DesignTask(
        task_id=f"t{number}", group_id="g", min_version=0, skill="", document="", document_id="",
        exemplars=[], temperature=1.0, max_new_tokens=1, seed=number,
    )  # fmt: skip
    return Task(message, {0})


def dispatcher(num_tasks: int) -> tuple[Dispatcher, FakeHub]:
    hub = FakeHub({"gen-0": lambda message: [], "gen-1": lambda message: []}, 0)
    found = Dispatcher(cast(Hub, hub))
    for number in range(num_tasks):
        found.submit(task(number), kind=DESIGN, number=number)
    return found, hub


def test_a_credit_of_zero_pauses_and_a_later_one_goes_on():
    work, hub = dispatcher(5)
    work.set_credit("gen-0", 0)
    asyncio.run(work.pump())
    assert hub.sent == []
    assert (work.is_out_of_credit, work.credit, work.num_held) == (True, 0, 0)
    work.set_credit("gen-0", 3)
    asyncio.run(work.pump())
    assert len(hub.sent) == 3
    assert (work.is_out_of_credit, work.credit, work.num_held) == (False, 3, 3)
    # Lowered below what it holds: nothing more until it is under the new line.
    work.set_credit("gen-0", 1)
    work.result("t0", 0)
    work.result("t1", 0)
    asyncio.run(work.pump())
    assert len(hub.sent) == 3
    work.result("t2", 0)
    asyncio.run(work.pump())
    assert len(hub.sent) == 4


def test_a_generator_without_credit_leaves_the_work_to_the_other():
    work, hub = dispatcher(4)
    work.set_credit("gen-0", 0)
    work.set_credit("gen-1", 2)
    asyncio.run(work.pump())
    assert [peer for peer, _ in hub.sent] == ["gen-1", "gen-1"]
    assert not work.is_out_of_credit


def test_a_negative_credit_is_zero_and_said_so(caplog):
    work, hub = dispatcher(1)
    with caplog.at_level(logging.WARNING):
        work.set_credit("gen-0", -5)
    asyncio.run(work.pump())
    assert hub.sent == []
    assert work.credit == 0
    assert "credit of -5: taken as 0" in caplog.text


def test_figures_add_both_ends_and_take_the_oldest():
    work, hub = dispatcher(2)
    work.set_credit("gen-0", 1)
    asyncio.run(work.pump())
    hub.counters.resent, hub.counters.busy_s = 2, 1.0
    hub.counters.refuse("schema")
    parts: list[dict[str, Any]] = [
        {"link_resent": 3.0, "link_busy_s": 0.5, "link_oldest_unacknowledged_s": 4.0},
        {"link_unacknowledged": 7.0, "link_oldest_unacknowledged_s": 9.0},
        {},
    ]
    beats = [
        Heartbeat(
            name="x", state="", waits_for="", progress=0, oldest_wait_s=0.0, metrics=metrics
        )
        for metrics in parts
    ]  # fmt: skip
    figures = LinkFigures(cast(Hub, hub), work).metrics(beats)
    assert figures["link/resent"] == 5.0
    assert figures["link/refused"] == 1.0
    assert figures["link/unacknowledged"] == 7.0
    assert figures["link/oldest_unacknowledged_s"] == 9.0
    assert figures["link/busy_s"] == 1.5
    assert (figures["link/credit"], figures["link/credit_used"]) == (1.0, 1.0)
    assert figures["link/lost"] == 0.0
