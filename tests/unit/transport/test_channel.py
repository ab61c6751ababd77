"""Two channels over a network that loses, repeats and reorders, in virtual time."""

from __future__ import annotations

import random

import pytest

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport.channel import Channel
from spade_async.transport.codec import decode
from spade_async.transport.counters import LinkCounters
from spade_async.transport.messages import Credit, Message, Stop

CAP = 1 << 20


def channel(name: str, resend_s: float = 1.0) -> tuple[Channel, LinkCounters]:
    counters = LinkCounters()
    config = LinkConfig(resend_s=resend_s, max_message_bytes=CAP)
    return Channel(name, "other", config, counters, lambda: None), counters


def stop(number: int) -> Message:
    return Stop(reason=str(number), finish=False)


@pytest.mark.parametrize("seed", range(5))
def test_a_bad_network_loses_and_doubles_nothing(seed):
    rng = random.Random(seed)
    (left, left_counters), (right, right_counters) = channel("left"), channel("right")
    wires = {left: [], right: []}
    delivered = {left: [], right: []}
    waiting = {left: [], right: []}
    for number in range(1000):
        now_s = number * 0.01
        for sender in (left, right):
            if number < 300:
                sender.send(stop(number), now_s)
    for turn in range(4000):
        now_s = 3.0 + turn * 0.05
        for sender, receiver in ((left, right), (right, left)):
            sender.tick(now_s)
            sender.queue_acknowledgements()
            while sender.outgoing:
                frames = sender.outgoing.popleft().frames
                copies = rng.choice((0, 1, 1, 2))
                wires[receiver] += [frames] * copies
            rng.shuffle(wires[receiver])
            for _ in range(rng.randrange(len(wires[receiver]) + 1)):
                received = receiver.deliver(decode(wires[receiver].pop(), CAP))
                if received is not None:
                    delivered[receiver].append(int(received.message.reason))
                    waiting[receiver].append(received)
            # Acknowledged late and in any order; some only much later.
            rng.shuffle(waiting[receiver])
            for received in waiting[receiver][rng.randrange(3) :]:
                received.ack()
                received.ack()
            del waiting[receiver][2:]
            for received in list(waiting[receiver]) if rng.random() < 0.2 else ():
                received.ack()
        if not left.num_unacknowledged and not right.num_unacknowledged:
            break
    assert sorted(delivered[left]) == sorted(delivered[right]) == list(range(300))
    assert left.num_unacknowledged == right.num_unacknowledged == 0
    assert left_counters.duplicates > 0
    assert right_counters.duplicates > 0
    assert not left_counters.refused


def test_a_message_that_breaks_its_record_takes_no_number_and_no_acknowledgement():
    (left, _), (right, _) = channel("left"), channel("right")
    left.send(stop(1), 0.0)
    received = right.deliver(decode(left.outgoing.popleft().frames, CAP))
    assert received is not None
    received.ack()
    with pytest.raises(TransportError):
        right.send(Stop(reason=None, finish=False), 0.0)  # type: ignore[arg-type]
    assert not right.outgoing
    right.send(stop(2), 0.0)
    assert left.deliver(decode(right.outgoing.popleft().frames, CAP)) is not None
    assert left.num_unacknowledged == 0


def test_acknowledgements_travel_with_messages():
    (left, _), (right, _) = channel("left"), channel("right")
    for number in range(3):
        left.send(stop(number), 0.0)
    for item in list(left.outgoing):
        right.deliver(decode(item.frames, CAP)).ack()
    right.send(Credit(tasks=1), 0.0)
    right.queue_acknowledgements()
    assert len(right.outgoing) == 1
    left.deliver(decode(right.outgoing[0].frames, CAP))
    assert left.num_unacknowledged == 0


def test_a_message_that_is_worked_on_for_long_is_not_sent_a_second_time():
    (left, left_counters), (right, right_counters) = channel("left"), channel("right")
    left.send(stop(1), 0.0)
    held = None
    for tenth in range(110):
        for sender, receiver in ((left, right), (right, left)):
            sender.tick(tenth / 10)
            sender.queue_acknowledgements()
            while sender.outgoing:
                item = sender.outgoing.popleft()
                (left_counters if sender is left else right_counters).count_out(item)
                held = receiver.deliver(decode(item.frames, CAP)) or held
    assert held is not None
    assert left.num_unacknowledged == 1
    assert left_counters.resent == 0
    assert right_counters.duplicates == 0
    assert left_counters.control == 1, "its arrival was told once"


def test_unreliable_messages_are_not_kept():
    left, _ = channel("left")
    left.send(Credit(tasks=1), 0.0)
    assert left.num_unacknowledged == 0
    left.outgoing.clear()
    left.tick(100.0)
    assert not left.outgoing


def test_a_queue_that_does_not_move_is_not_made_longer():
    left, _ = channel("left")
    left.send(stop(1), 0.0)
    for second in range(100):
        left.tick(float(second))
    assert len(left.outgoing) == 1


def test_a_reconnection_repeats_all_in_order_once():
    left, _ = channel("left")
    for number in range(3):
        left.send(stop(number), 0.0)
    left.reconnect(0.5)
    texts = [decode(item.frames, CAP).message.reason for item in left.outgoing]
    assert texts == ["0", "1", "2"]
    assert [message.reason for message in left.unacknowledged()] == texts
