"""The theory of SPADE, executable: self-play with exact gradients, each assumption broken once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STEPS = 2000


def run(quick: bool, draw: Path | None = None) -> dict[str, Any]:
    """Four runs of self-play, and every pure equilibrium of the family with m = 2; seconds."""
    import numpy as np

    from benches.nash_game import drawing
    from benches.nash_game.family import ASSUMPTIONS, family, pure_profiles
    from benches.nash_game.play import self_play

    steps = 200 if quick else STEPS
    points = sorted({int(p) for p in np.geomspace(1, steps, 80)})
    runs: dict[str, Any] = {}
    for broken in ASSUMPTIONS:
        players, curves = self_play(family(broken), steps)
        designer_gap, agent_gap = players.gaps()
        found = [p for p in pure_profiles(family(broken, 2)) if p.is_equilibrium]
        runs[broken] = {
            "curves": {name: [round(c[p - 1], 5) for p in points] for name, c in curves.items()},
            "regret_second_half": float(np.mean(curves["regret"][steps // 2 :])),
            "meant": curves["meant"][-1],
            "worst_meant": curves["worst_meant"][-1],
            "designer_gap": designer_gap,
            "agent_gap": agent_gap,
            "pure_equilibria": len(found),
            "meant_in_equilibria": sorted({float(p.meant.mean()) for p in found}),
            "largest_regret_in_equilibria": max((float(p.regret.max()) for p in found),
                                                default=None),
        }  # fmt: skip
    result = {"steps": steps, "points": points, "runs": runs}
    if draw is not None:
        draw.write_text(drawing.svg(result))
    return result


def table(result: dict[str, Any]) -> str:
    """One line per broken assumption."""
    lines = [
        f"{'broken':<16}{'regret, 2nd half':>18}{'success meant':>15}{'worst':>8}"
        f"{'designer gap':>14}{'agent gap':>11}   pure equilibria with m = 2: success meant"
    ]
    for name, row in result["runs"].items():
        meant = json.dumps(row["meant_in_equilibria"])
        lines.append(
            f"{name:<16}{row['regret_second_half']:>18.4f}{row['meant']:>15.4f}"
            f"{row['worst_meant']:>8.4f}{row['designer_gap']:>14.5f}{row['agent_gap']:>11.5f}"
            f"   {row['pure_equilibria']}: {meant}"
        )
    return "\n".join(lines)
