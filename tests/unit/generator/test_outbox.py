from __future__ import annotations

import asyncio

from spade_async.generator.outbox import WAIT_S, Outbox
from spade_async.transport.messages import CancelTask, Message
from tests.support.asynchronous import run_async


def message(number: int) -> Message:
    return CancelTask(task_id=str(number))


class Wire:
    def __init__(self) -> None:
        self.sent: list[int] = []
        self.refuses: set[int] = set()
        self.faults: list[BaseException] = []

    async def send(self, item: Message) -> None:
        assert isinstance(item, CancelTask)
        if int(item.task_id) in self.refuses:
            raise ValueError(item.task_id)
        self.sent.append(int(item.task_id))


@run_async
async def test_results_wait_for_each_other_and_keep_their_order():
    wire = Wire()
    outbox = Outbox(wire.send, wire.faults.append)
    for number in range(5):
        await outbox.put(message(number))
    await asyncio.sleep(0)
    assert wire.sent == []
    await outbox.flush()
    assert wire.sent == [0, 1, 2, 3, 4]
    await outbox.flush()
    assert wire.sent == [0, 1, 2, 3, 4]


@run_async
async def test_nothing_waits_longer_than_the_limit_and_later_ones_wait_anew():
    wire = Wire()
    outbox = Outbox(wire.send, wire.faults.append)
    for number in range(3):
        begun_s = asyncio.get_running_loop().time()
        await outbox.put(message(number))
        async with asyncio.timeout(60):
            while len(wire.sent) <= number:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert asyncio.get_running_loop().time() - begun_s >= 0.9 * WAIT_S
    assert wire.sent == [0, 1, 2]


@run_async
async def test_a_fault_that_nobody_waits_for_is_told_once_and_the_others_go_on():
    wire = Wire()
    wire.refuses = {1}
    outbox = Outbox(wire.send, wire.faults.append)
    for number in range(3):
        await outbox.put(message(number))
    async with asyncio.timeout(60):
        while not wire.faults:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await outbox.flush()
    assert [str(fault) for fault in wire.faults] == ["1"]
    assert wire.sent == [0, 2]
