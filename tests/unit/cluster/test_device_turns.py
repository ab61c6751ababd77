"""A device that is shared: one side at a time, and nobody waits for the dead."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spade_async.cluster.turns import DeviceTurn

pytestmark = pytest.mark.timeout(60)


class GivenUp(Exception):
    pass


def nothing() -> None:
    pass


def give_up() -> None:
    raise GivenUp


def test_the_learner_waits_until_every_generator_has_left(tmp_path: Path) -> None:
    learner, first, second = (DeviceTurn(tmp_path) for _ in range(3))
    assert first.try_enter()
    assert second.try_enter()
    assert not first.is_wanted
    events: list[str] = []

    def train() -> None:
        with learner.as_learner(nothing) as waited_s:
            events.append("on")
            assert waited_s > 0
            time.sleep(0.1)
            events.append("off")

    thread = threading.Thread(target=train)
    thread.start()
    while not first.is_wanted:
        time.sleep(0.005)
    assert not DeviceTurn(tmp_path).try_enter(), "who comes now waits behind the learner"
    first.leave()
    time.sleep(0.1)
    assert events == []
    second.leave()
    while not first.try_enter():
        time.sleep(0.005)
    assert events == ["on", "off"]
    thread.join()


def test_a_learner_that_is_told_to_leave_gives_up_its_wish(tmp_path: Path) -> None:
    learner, generator = DeviceTurn(tmp_path), DeviceTurn(tmp_path)
    assert generator.try_enter()
    with pytest.raises(GivenUp), learner.as_learner(give_up):
        pytest.fail("the generator is on the device")
    assert not generator.is_wanted
    generator.leave()
    # A fault in its turn ends the turn.
    with pytest.raises(GivenUp), learner.as_learner(nothing):
        raise GivenUp
    assert generator.try_enter()


HOLD = """
import sys, time
from pathlib import Path
from spade_async.cluster.turns import DeviceTurn
turn = DeviceTurn(Path(sys.argv[1]))
if sys.argv[2] == "learner":
    context = turn.as_learner(lambda: None)
    context.__enter__()
else:
    assert turn.try_enter()
print("on", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("who", ["learner", "generator"])
def test_a_dead_process_is_on_no_device(who: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), who], stdout=subprocess.PIPE
    ) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"on\n"
        other = DeviceTurn(tmp_path)
        if who == "learner":
            assert other.is_wanted
            assert not other.try_enter()
        else:
            with pytest.raises(GivenUp), other.as_learner(give_up):
                pytest.fail("it is on the device")
        held.send_signal(signal.SIGKILL)
        held.wait()
        if who == "learner":
            assert other.try_enter()
        else:
            with other.as_learner(give_up):
                pass


def test_what_is_closed_holds_nothing(tmp_path: Path) -> None:
    generator, other = DeviceTurn(tmp_path), DeviceTurn(tmp_path)
    assert generator.try_enter()
    generator.close()
    generator.close()
    with other.as_learner(give_up):
        pass
