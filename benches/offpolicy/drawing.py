"""The age table as an SVG: one square per rule and age, on light and on dark pages."""

from __future__ import annotations

from typing import Any

LABEL, CELL, ROW, TOP, GAP = 150, 46, 22, 64, 40
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: 600; }
.quiet { fill: #6e7781; font-size: 11px; }
.cell { font-size: 11px; fill: #1b1f24; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .quiet { fill: #9198a1; } }
"""


def svg(result: dict[str, Any]) -> str:
    """Scores over the on-policy score; green holds, orange does not.

    Args:
        result: of `benches.correction.run`.
    """
    worlds, ages = result["worlds"], result["ages"]
    names = list(next(iter(worlds.values()))["rules"])
    panel = CELL * len(ages)
    width = LABEL + (panel + GAP) * len(worlds)
    height = TOP + ROW * len(names) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<style>{_STYLE}</style>",
        '<text class="title" x="12" y="22">What is left of on-policy learning, by age of the '
        "samples</text>",
    ]
    for number, (world, figures) in enumerate(worlds.items()):
        left = LABEL + (panel + GAP) * number
        parts.append(f'<text x="{left}" y="44">{world}</text>')
        for column, age in enumerate(ages):
            x = left + CELL * column + CELL // 2
            parts.append(f'<text class="quiet" x="{x}" y="58" text-anchor="middle">{age}</text>')
        for row, name in enumerate(names):
            y = TOP + ROW * row
            if number == 0:
                parts.append(f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{name}</text>')
            for column, score in enumerate(figures["rules"][name]["score"]):
                share = score / figures["reference"]
                x = left + CELL * column
                parts.append(
                    f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{ROW - 2}" rx="2" '
                    f'fill="{_colour(share)}"/>'
                    f'<text class="cell" x="{x + CELL // 2 - 1}" y="{y + 14}" '
                    f'text-anchor="middle">{share:.2f}</text>'
                )
    note = f"mean of {result['seeds']} seeds; 1 is on-policy; green from .90"
    parts.append(f'<text class="quiet" x="12" y="{height - 10}">{note}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _colour(share: float) -> str:
    if share >= 0.9:
        return "#7ee2a0"
    if share >= 0.75:
        return "#f7d774"
    if share >= 0.5:
        return "#f4a261"
    return "#e5737f"
