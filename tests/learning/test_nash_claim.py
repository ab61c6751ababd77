"""The theory of SPADE, executable (docs/nash.md): where it holds, and where each assumption fails.

Claim: if generation is sound, hints can be articulated and hints can be internalised, every pure
equilibrium has zero regret and an agent that is optimal without hints. Everything is exact: values,
gradients and best responses are finite sums, and with m = 2 all pure strategies are listed.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benches.nash import STEPS
from benches.nash_game.drawing import svg
from benches.nash_game.family import ASSUMPTIONS, MODULUS, PureProfile, family, pure_profiles
from benches.nash_game.play import Players, best_value, self_play
from spade_async.regret import estimate

STORED = Path(__file__).parents[2] / "docs" / "results" / "bench_nash.json"


@functools.cache
def played(broken: str, steps: int = STEPS) -> tuple[Players, dict[str, list[float]]]:
    return self_play(family(broken), steps)


def equilibria(broken: str) -> list[PureProfile]:
    return [p for p in pure_profiles(family(broken, 2)) if p.is_equilibrium]


def test_the_gradient_is_that_of_the_expected_return() -> None:
    players, rng = Players.ignorant(family("internalisable"), 1.0), np.random.default_rng(1)
    players.log_weights = rng.normal(size=MODULUS**2)
    gradient, h = players.agent_gradient(), 1e-6
    for _ in range(10):
        at = tuple(rng.integers(0, n) for n in gradient.shape)
        values = []
        for sign in (1.0, -1.0):
            players.logits[at] += sign * h
            values.append(players.designs @ players.value())
            players.logits[at] -= sign * h
        assert gradient[at] == pytest.approx((values[0] - values[1]) / (2 * h), abs=1e-8)


def test_every_pure_equilibrium_has_zero_regret_and_an_agent_optimal_without_hints() -> None:
    found = equilibria("none")
    # One for each environment the designer may write: nothing is to be gained anywhere.
    assert len(found) == 4
    for profile in found:
        assert (profile.regret == 0.0).all()
        assert (profile.meant == 1.0).all()


def test_self_play_drives_regret_to_zero_and_the_agent_to_the_hint_free_optimum() -> None:
    players, curves = played("none")
    assert curves["regret"][0] > 0.75
    assert curves["largest_regret"][-1] < 0.002
    assert curves["worst_meant"][-1] > 0.998
    # Nobody gains by a best response: the distance from equilibrium.
    assert max(players.gaps()) < 0.002
    # 1/t: ten times the steps, a tenth of the regret.
    assert curves["regret"][200] / curves["regret"][1999] == pytest.approx(10.0, rel=0.3)


def test_the_estimator_of_the_runs_gives_the_exact_regret_of_a_sure_agent() -> None:
    # An agent that answers 0 always: right without a hint where k x + c = 0 (mod 5).
    world = family("none")
    for e in range(MODULUS**2):
        pairs = [(1.0, float(world.returns[e, x, 0])) for x in range(MODULUS)]
        found = estimate(pairs, leak_share=0.0, mastered_at=0.9, out_of_reach_at=0.1)
        players = Players.ignorant(world, 0.0)
        players.logits[..., 0] = 50.0
        assert found.regret == pytest.approx(players.regret()[e], abs=1e-12)


def test_unsound_programs_zero_regret_and_an_agent_that_learns_what_is_wrong() -> None:
    players, curves = played("sound")
    broken = family("sound").broken
    assert curves["largest_regret"][-1] < 0.002
    assert max(players.gaps()) < 0.002
    assert players.value().min() > 0.998
    # By every figure of the run it is perfect; by what was meant it fails on each unsound program.
    assert players.meant_value()[broken].max() < 0.002
    assert curves["meant"][-1] == pytest.approx(1.0 - len(broken) / MODULUS**2, abs=0.002)
    assert {float(p.meant.mean()) for p in equilibria("sound")} == {0.5}
    assert all((p.regret == 0.0).all() for p in equilibria("sound"))


def test_hints_that_say_nothing_zero_regret_and_an_agent_that_stays_ignorant() -> None:
    players, curves = played("articulable")
    mute = family("articulable").broken
    start = Players.ignorant(family("articulable")).value()
    assert curves["largest_regret"][-1] < 0.002
    # The designer leaves such programs at once, so the agent is left where it started.
    assert curves["broken_share"][-1] < 1e-6
    assert players.value()[mute] == pytest.approx(start[mute], abs=0.1)
    assert np.delete(players.value(), mute).min() > 0.998
    assert curves["meant"][-1] == pytest.approx(0.8 + 0.2 * start[mute].mean(), abs=0.02)
    # Of 40 pure equilibria, all of zero regret, only few have an optimal agent: 2 programs that
    # speak x 16 answers to mute ones, and 2 mute ones x 4 answers to the other.
    found = equilibria("articulable")
    assert len(found) == 2 * 16 + 2 * 4
    assert all(p.regret.max() == 0.0 for p in found)
    assert sum(bool((p.meant == 1.0).all()) for p in found) == 4
    assert min(float(p.meant.mean()) for p in found) == 0.5


def test_a_hint_that_only_narrows_is_enough() -> None:
    # Two of five answers left open: regret is positive as long as the agent is not sure.
    world = family("none")
    world.hint[...] = np.maximum(world.returns, np.roll(world.returns, 1, axis=-1))
    _, curves = self_play(world, STEPS)
    assert curves["regret"][0] == pytest.approx(0.5 - 0.2, abs=0.02)
    assert curves["largest_regret"][-1] < 0.002
    assert curves["worst_meant"][-1] > 0.995


def test_hints_that_cannot_be_learnt_regret_forever_and_everything_else_is_left() -> None:
    players, curves = played("internalisable")
    world = family("internalisable")
    pairs = world.broken.reshape(2, MODULUS).T
    # Two programs that look alike and answer differently: values add up to 1 at most.
    sums = players.regret()[pairs].sum(axis=1)
    assert (sums >= 1.0 - 1e-9).all()
    # So the best that any agent can guarantee is a regret of 1/2; the designer finds it and stays.
    even = np.zeros(MODULUS**2)
    even[pairs[0]] = 0.5
    assert best_value(world, even) == 0.5
    assert np.mean(curves["regret"][STEPS // 2 :]) > 0.5 - 0.01
    assert curves["broken_share"][-1] > 1.0 - 1e-6
    # It is played against itself without end: no equilibrium in pure strategies.
    assert equilibria("internalisable") == []
    assert players.gaps()[1] > 0.2 or players.gaps()[0] > 0.2
    # What could be learnt pays less than 1/2 once it is half learnt, and is not written any more.
    others = np.delete(players.value(), world.broken)
    assert others.max() < 0.65
    assert others.min() > 0.4


def test_the_stored_figures_are_those_of_the_game() -> None:
    stored = json.loads(STORED.read_text())["result"]
    assert stored["steps"] == STEPS
    assert list(stored["runs"]) == list(ASSUMPTIONS)
    for name, row in stored["runs"].items():
        if name != "internalisable":  # It cycles: the last digits differ between machines.
            assert played(name)[1]["meant"][-1] == pytest.approx(row["meant"], abs=1e-4)
        assert len(equilibria(name)) == row["pure_equilibria"]


def test_the_picture_has_a_panel_per_assumption() -> None:
    stored = json.loads(STORED.read_text())["result"]
    drawn = ElementTree.fromstring(svg(stored))
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3 * 4 - 1
    assert (STORED.parents[1] / "nash.svg").read_text() == svg(stored)
