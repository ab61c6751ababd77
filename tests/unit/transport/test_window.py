from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spade_async.transport.window import Arrival, ReceiveWindow, SendWindow

FRAMES = (b"h", b"b")


def filled(count: int, resend_s: float = 1.0) -> SendWindow:
    window = SendWindow(resend_s)
    for number in range(count):
        window.keep((str(number + 1).encode(), b""), now_s=float(number))
    return window


def test_cumulative_and_ranges_settle_exactly_what_they_name():
    window = filled(10)
    assert window.acknowledge(3, [(5, 6), (9, 9)])
    assert [int(header) for header, _ in window.frames()] == [4, 7, 8, 10]


def test_an_acknowledgement_of_what_was_never_sent_changes_nothing():
    window = filled(2)
    assert not window.acknowledge(3, [])
    assert not window.acknowledge(1, [(2, 9)])
    assert len(window) == 2


def test_resending_starts_after_the_delay_and_backs_off():
    window = SendWindow(1.0)
    window.keep(FRAMES, now_s=0.0)
    times = [t / 10 for t in range(0, 400) if window.due(t / 10)]
    # Delays 1, 2, 4, 8, 12, ... seconds: the receiver may be busy with the message.
    assert times == [1.0, 3.0, 7.0, 15.0, 27.0, 39.0]


def test_at_most_so_many_are_sent_again_at_once_and_the_others_stay_due():
    window = filled(5)
    assert [int(header) for header, _ in window.due(100.0, most=2)] == [1, 2]
    assert [int(header) for header, _ in window.due(100.0, most=2)] == [3, 4]
    assert [int(header) for header, _ in window.due(100.0, most=2)] == [5]
    assert window.due(100.0, most=2) == []


def test_a_new_connection_makes_everything_due():
    window = filled(3, resend_s=100.0)
    assert not window.due(5.0)
    window.rewind(5.0)
    assert len(window.due(5.0)) == 3
    assert not window.due(6.0)


def test_a_held_message_is_a_silent_duplicate_and_an_acknowledged_one_is_told_again():
    window = ReceiveWindow()
    assert window.arrive(2) is Arrival.NEW
    assert window.arrive(2) is Arrival.DUPLICATE
    assert not window.has_news
    window.acknowledge(2)
    assert window.take_news() == (0, ((2, 2),), 0)
    assert window.arrive(2) is Arrival.DUPLICATE
    assert window.take_news() == (0, ((2, 2),), 0)
    window.arrive(1)
    window.acknowledge(1)
    assert window.take_news()[0] == 2
    assert window.arrive(1) is Arrival.DUPLICATE
    assert window.take_news()[0] == 2


def test_what_the_receiver_holds_is_sent_again_rarely_as_only_its_acknowledgement_can_be_lost():
    window = SendWindow(1.0)
    window.keep(FRAMES, now_s=0.0)
    assert window.acknowledge(0, [], delivered=1)
    assert len(window) == 1, "it is kept until it is acknowledged"
    times = [t / 10 for t in range(0, 400) if window.due(t / 10)]
    assert times == [12.0, 24.0, 36.0]


def test_a_new_connection_makes_due_what_the_receiver_held_before():
    window = filled(3)
    assert window.acknowledge(1, [], delivered=3)
    window.rewind(5.0)
    assert [int(header) for header, _ in window.due(5.0)] == [2, 3]
    assert window.acknowledge(1, [], delivered=3)
    assert not window.due(9.0), "the receiver says of the new connection that it has them"


def test_delivery_of_what_was_never_sent_changes_nothing():
    window = filled(2)
    assert not window.acknowledge(2, [], delivered=3)
    assert len(window) == 2
    assert len(window.due(2.0)) == 2


def test_held_messages_are_told_once_without_a_gap_and_again_when_they_come_again():
    window = ReceiveWindow()
    for seq in (1, 2, 4):
        window.arrive(seq)
    assert not window.has_news
    window.tell_delivered()
    assert window.take_news() == (0, (), 2)
    window.tell_delivered()
    assert not window.has_news
    assert window.arrive(2) is Arrival.DUPLICATE
    assert window.take_news() == (0, (), 2)
    window.arrive(3)
    window.tell_delivered()
    assert window.take_news() == (0, (), 4)


def test_what_is_acknowledged_at_once_needs_no_word_of_its_delivery():
    window = ReceiveWindow()
    window.arrive(1)
    window.acknowledge(1)
    assert window.take_news() == (1, (), 1)
    window.tell_delivered()
    assert not window.has_news


def test_a_number_far_ahead_is_refused():
    assert ReceiveWindow().arrive(1 << 40) is Arrival.TOO_FAR


def test_more_ranges_than_one_frame_holds_are_told_in_the_next():
    window, sent = ReceiveWindow(), filled(4000)
    for seq in range(2, 4001, 2):
        window.arrive(seq)
        window.acknowledge(seq)
    rounds = 0
    while window.has_news:
        assert sent.acknowledge(*window.take_news())
        rounds += 1
    assert rounds == 4
    assert len(sent) == 2000


@given(st.permutations(range(1, 30)))
def test_any_order_of_acknowledging_settles_everything(order):
    window, sent = ReceiveWindow(), filled(29)
    for seq in order:
        assert window.arrive(seq) is Arrival.NEW
    for seq in reversed(order):
        window.acknowledge(seq)
        if seq % 3 == 0:
            sent.acknowledge(*window.take_news())
    sent.acknowledge(*window.take_news())
    assert len(sent) == 0
    assert window.num_held == 0
