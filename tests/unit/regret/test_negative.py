"""The alarm on negative regret: its false alarm rate, how soon it is raised, its state."""

import json
import math
import random

import pytest

from spade_async.regret.negative import WINDOW, NegativeRegret


def detector(alarm_every=100.0, span=1.0, recheck_steps=10):
    return NegativeRegret(alarm_every=alarm_every, recheck_steps=recheck_steps, span=span)


def until_alarm(rng, draw, most, **more):
    """Environments until the alarm, at most `most`."""
    found = detector(**more)
    for n in range(1, most + 1):
        if found.measured("s", draw(rng, n), 0) is not None:
            return n
    return most


LAWS = {
    "even wins and losses": lambda rng, _: rng.choice([1.0, -1.0]),
    "means of eight pairs": lambda rng, _: sum(rng.choice([1, 0, 0, -1]) for _ in range(8)) / 8,
    # Mean 0: rarely a large gain, usually a small loss.
    "skewed": lambda rng, _: 0.95 if rng.random() < 0.05 else -0.05,
    # Positive for long, then 0: the past must neither help nor harm.
    "after good times": lambda rng, n: rng.choice([1.0, -1.0]) if n > 50 else 0.5,
}


@pytest.mark.parametrize("name", LAWS)
def test_false_alarms_are_at_least_as_rare_as_stated(name):
    rng = random.Random(5)
    # Cut at 600, which only makes the mean smaller; stated: at least 100 on average.
    lengths = [until_alarm(rng, LAWS[name], 600) for _ in range(60)]
    assert sum(lengths) / len(lengths) > 100


@pytest.mark.parametrize(("mean", "within"), [(-0.2, 110), (-0.4, 45)])
def test_hints_that_mislead_are_found_soon_also_after_long_good_times(mean, within):
    rng = random.Random(3)

    def draw(rng, n):
        return 0.5 if n <= 500 else max(-1.0, min(1.0, rng.gauss(mean, 0.3)))

    delays = [until_alarm(rng, draw, 2000, alarm_every=10_000.0) - 500 for _ in range(20)]
    assert min(delays) > 0
    assert sum(delays) / len(delays) < within


def test_one_regret_gives_the_closed_form_of_the_evidence():
    found = detector(alarm_every=math.e)
    # M = mean over bets (i + 1/2)/8 of 1 + bet / 2 = 1.25.
    assert found.measured("s", -0.5, 0) is None
    running = found.running()["s"]
    assert running.evidence == pytest.approx(math.log(1.25))
    assert (running.mean, running.standard_error, running.num) == (-0.5, None, 1)


def test_an_alarm_turns_hints_off_and_they_are_tried_again_when_due():
    found, change, n = detector(), None, 0
    while change is None:
        change = found.measured("s", -0.5, 7)
        n += 1
    assert (change.skill, change.hints, change.running.mean) == ("s", False, -0.5)
    assert change.running.standard_error == 0.0
    assert change.running.num == n
    assert not found.uses_hints("s")
    assert found.uses_hints("other")
    # What was still out does not count.
    assert found.measured("s", -1.0, 8) is None
    assert found.resume_hints("s", 16) is None
    assert found.resume_hints("s", 17).hints
    assert found.uses_hints("s")
    assert found.running() == {}
    # It starts anew: as many are needed as before.
    again = 1
    while found.measured("s", -0.5, 18) is None:
        again += 1
    assert again == n


def test_an_alarm_that_is_ignored_goes_on_measuring():
    found = detector()
    while found.measured("s", -0.5, 0) is None:
        pass
    found.ignore("s")
    assert found.uses_hints("s")
    assert found.measured("s", -0.5, 1) is None


def test_the_state_comes_back_through_json_and_goes_on_alike():
    rng = random.Random(1)
    first = detector()
    for n in range(3 * WINDOW):
        first.measured("ab"[n % 2], rng.uniform(-0.3, 1.0), n)
    second = detector()
    second.restore(json.loads(json.dumps(first.state())))
    assert second.state() == first.state()
    for n in range(200):
        draw = rng.uniform(-1.0, 0.4)
        assert first.measured("a", draw, n) == second.measured("a", draw, n)
    assert first.running() == second.running()
    assert first.running()["b"].num == WINDOW
