from __future__ import annotations

import os
import select
import signal

import pytest

from spade_async.supervisor.signals import Interrupts


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_way_to_ask_for_a_stop_is_counted_and_wakes_the_watch(signum: signal.Signals) -> None:
    # Whoever runs the tests may ignore signals, as nohup does.
    own = signal.signal(signum, signal.default_int_handler)
    before = signal.getsignal(signum)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signum)
        assert select.select([interrupts.fd], [], [], 5.0)[0]
        interrupts.drain()
        assert not select.select([interrupts.fd], [], [], 0.0)[0]
        assert interrupts.count == 1
    assert signal.getsignal(signum) is before
    signal.signal(signum, own)


def test_run_under_nohup_ignores_a_closed_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.count == 0
    finally:
        signal.signal(signal.SIGHUP, before)
