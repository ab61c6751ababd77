"""Environments as a run meets them: success with and without the hint, after the paper's trends.

The paper reports, for the early, middle and late third of a run of a 30B model, the share of
environments that the agent wins between 0.2 and 0.8 (0.16, 0.16, 0.31) and its mean win rate (0.30,
0.46, 0.62). Success without the hint is drawn so that both hold: that share is uniform between 0.2
and 0.8, the rest is at either end, 0.2 * Beta(0.3, 3) away from it. Success with the hint is not
reported. Assumed: three of five hints help, and close a uniform part of the gap to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spade_async.regret import EarlyClass
from spade_async.regret.early import classify
from spade_async.regret.stopped import unbiased_means
from spade_async.types import RegretClass

PHASES = {"early": (0.16, 0.30), "middle": (0.16, 0.46), "late": (0.31, 0.62)}
"""Share of environments won between 0.2 and 0.8, mean win rate (arXiv 2608.19197)."""
HELPFUL = 0.6
AWAY, AWAY_A, AWAY_B = 0.2, 0.3, 3.0
MASTERED_AT, OUT_OF_REACH_AT = 0.9, 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """So many environments of one phase and what their episodes would return."""

    plain: Floats
    """[E] success without the hint."""
    hinted: Floats
    """[E] success with it."""
    pairs: NDArray[np.int64]
    """[E, N, 2] returns of each seed: with the hint, without."""

    @property
    def classes(self) -> list[RegretClass]:
        """What each environment truly is."""
        return [
            classify(p, h, 1, mastered_at=MASTERED_AT, out_of_reach_at=OUT_OF_REACH_AT)
            for p, h in zip(self.plain, self.hinted, strict=True)
        ]


def draw(phase: str, num: int, num_pairs: int, seed: int) -> World:
    """Environments of a phase, the same ones for every rule."""
    rng = np.random.default_rng([seed, list(PHASES).index(phase), num_pairs])
    learnable, mean = PHASES[phase]
    off = AWAY * AWAY_A / (AWAY_A + AWAY_B)
    high = (mean - learnable * 0.5 - (1 - learnable) * off) / (1 - 2 * off)
    where = rng.random(num)
    away = AWAY * rng.beta(AWAY_A, AWAY_B, num)
    ends = np.where(where < learnable + high, 1.0 - away, away)
    plain = np.where(where < learnable, rng.uniform(0.2, 0.8, num), ends)
    closes = rng.uniform(0.0, 1.0, num) * (rng.random(num) < HELPFUL)
    hinted = plain + (1.0 - plain) * closes
    chances = np.stack([hinted, plain], axis=1)[:, None, :]
    pairs = (rng.random((num, num_pairs, 2)) < chances).astype(np.int64)
    return World(plain, hinted, pairs)


def play(world: World, rule: EarlyClass, *, pay: bool = False) -> dict[str, Any]:
    """What the rule makes of a world, against the full count of the same episodes.

    Returns:
        accuracy: share of environments whose class is the true one; accuracy_full: of the full
        count; agreement: share where both say the same; saved: share of episodes not played;
        regret_error and regret_error_full, if `pay`: root mean square error of the regret paid.
    """
    truths = world.classes
    sums = world.pairs.cumsum(axis=1)
    counts = {"right": 0, "right_full": 0, "agree": 0, "played": 0}
    by_class: dict[str, list[int]] = {kind: [0, 0] for kind in RegretClass}
    squares = [0.0, 0.0]
    known: dict[tuple[tuple[float, float], ...], float] = {}  # order plays no part
    for i, truth in enumerate(truths):
        full = _class(sums[i, -1], rule.planned)
        played, found = rule.planned, full
        for looked in range(rule.block, rule.planned, rule.block):
            hinted, plain = sums[i, looked - 1]
            certain = rule.certain(float(plain), float(hinted), looked, rule.planned - looked)
            if certain is not None:
                played, found = looked, certain
                break
        counts["right"] += found is truth
        counts["right_full"] += full is truth
        counts["agree"] += found is full
        counts["played"] += played
        by_class[truth][0] += 1
        by_class[truth][1] += played
        if pay:
            regret = world.hinted[i] - world.plain[i]
            seen = sorted((float(h), float(p)) for h, p in world.pairs[i, :played])
            paid = known.get(tuple(seen))
            if paid is None:
                means = unbiased_means(seen, rule)
                paid = known[tuple(seen)] = means.hinted - means.plain
            squares[0] += (paid - regret) ** 2
            squares[1] += ((sums[i, -1, 0] - sums[i, -1, 1]) / rule.planned - regret) ** 2
    num = len(truths)
    result: dict[str, Any] = {
        "accuracy": counts["right"] / num,
        "accuracy_full": counts["right_full"] / num,
        "agreement": counts["agree"] / num,
        "saved": 1.0 - counts["played"] / (num * rule.planned),
        "saved_of": {
            str(kind): 1.0 - played / (n * rule.planned) for kind, (n, played) in by_class.items()
        },
    }
    if pay:
        result["regret_error"] = (squares[0] / num) ** 0.5
        result["regret_error_full"] = (squares[1] / num) ** 0.5
    return result


def rule(planned: int, block: int, error: float) -> EarlyClass:
    """The rule with the default thresholds."""
    return EarlyClass(
        planned=planned,
        block=block,
        error=error,
        mastered_at=MASTERED_AT,
        out_of_reach_at=OUT_OF_REACH_AT,
    )


def over_phases(
    planned: int, block: int, error: float, num: int, *, pay: bool = False, seed: int = 0
) -> dict[str, Any]:
    """Means over the three phases."""
    rows = [play(draw(p, num, planned, seed), rule(planned, block, error), pay=pay) for p in PHASES]
    mean: Callable[[str], float] = lambda key: sum(row[key] for row in rows) / len(rows)  # noqa: E731
    found = {key: mean(key) for key in rows[0] if key != "saved_of"}
    found["saved_of"] = {
        kind: sum(row["saved_of"][kind] for row in rows) / len(rows) for kind in rows[0]["saved_of"]
    }
    found["by_phase"] = dict(zip(PHASES, rows, strict=True))
    return found


def _class(sums: NDArray[np.int64], num: int) -> RegretClass:
    hinted, plain = sums
    return classify(
        float(plain), float(hinted), num, mastered_at=MASTERED_AT, out_of_reach_at=OUT_OF_REACH_AT
    )
