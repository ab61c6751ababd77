"""The four runs as small multiples, on light and on dark pages (SVG)."""

from __future__ import annotations

import math
from typing import Any

PANEL, HEIGHT, GAP, LEFT, TOP = 210, 170, 26, 44, 66
TITLES = {
    "none": "all assumptions hold",
    "sound": "unsound programs",
    "articulable": "hints that say nothing",
    "internalisable": "hints that cannot be learnt",
}
LINES = {
    "regret": ("regret that is paid", "#d1495b"),
    "meant": ("success, as meant", "#2a9d5c"),
    "broken_share": ("share of broken programs", "#8a8f98"),
}
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: 600; }
.quiet { fill: #6e7781; font-size: 11px; }
.frame { stroke: #d0d7de; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .quiet { fill: #9198a1; } .frame { stroke: #444c56; }
}
"""


def svg(result: dict[str, Any]) -> str:
    """Curves over the step, on a logarithmic axis.

    Args:
        result: of `benches.nash.run`.
    """
    width = LEFT + (PANEL + GAP) * len(TITLES)
    height = TOP + HEIGHT + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<style>{_STYLE}</style>",
        '<text class="title" x="12" y="22">Self-play with exact gradients, one assumption broken '
        "at a time</text>",
    ]
    for number, (name, title) in enumerate(TITLES.items()):
        x = LEFT + (PANEL + GAP) * number
        parts += [
            f'<text x="{x}" y="{TOP - 12}">{title}</text>',
            f'<rect class="frame" x="{x}" y="{TOP}" width="{PANEL}" height="{HEIGHT}"/>',
        ]
        for level in (0.0, 0.5, 1.0):
            y = TOP + HEIGHT * (1.0 - level)
            if number == 0:
                parts.append(
                    f'<text class="quiet" x="{x - 8}" y="{y + 4:.0f}" '
                    f'text-anchor="end">{level:g}</text>'
                )
        curves = result["runs"][name]["curves"]
        for key, (_, colour) in LINES.items():
            if key == "broken_share" and name == "none":
                continue
            parts.append(_line(result["points"], curves[key], x, colour))
        parts.append(
            f'<text class="quiet" x="{x + PANEL}" y="{TOP + HEIGHT + 16}" text-anchor="end">'
            f"step, 1 to {result['steps']}</text>"
        )
    for number, (label, colour) in enumerate(LINES.values()):
        x, y = LEFT + 200 * number, height - 18
        parts += [
            f'<rect x="{x}" y="{y - 6}" width="18" height="3" fill="{colour}"/>',
            f'<text x="{x + 26}" y="{y}">{label}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _line(points: list[int], values: list[float], left: int, colour: str) -> str:
    last = math.log(points[-1])
    places = " ".join(
        f"{left + PANEL * math.log(p) / last:.1f},{TOP + HEIGHT * (1.0 - v):.1f}"
        for p, v in zip(points, values, strict=True)
    )
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'
