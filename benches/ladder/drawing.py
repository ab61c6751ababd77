"""The ladder as an SVG that reads on light and on dark pages."""

from __future__ import annotations

import math
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LABEL, BAR, ROW = 860, 300, 440, 22
TOP, BOTTOM = 58, 44
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: 600; }
.quiet { fill: #6e7781; font-size: 11px; }
.grid { stroke: #8c959f; stroke-opacity: .35; }
.limit { fill: #8c959f; } .native { fill: #1f883d; } .other { fill: #bc4c00; }
.spread { stroke: #57606a; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .quiet { fill: #9198a1; } .spread { stroke: #c9d1d9; }
  .native { fill: #3fb950; } .other { fill: #f0883e; }
}
"""
_LIMITS = ("limit_us", "inprocess_us")
_OTHERS = ("nsjail", "nsjail_no_netns", "bubblewrap", "sandlock", "subprocess")


def svg(rows: list[dict[str, Any]], caption: str) -> str:
    """Bars of the medians on a logarithmic axis, a line from p10 to p99 on each.

    Args:
        rows: `key`, `label` and `figure` of each rung, as in the result; those without a figure
            are left out.
        caption: what it was measured on.
    """
    shown = sorted(
        (row for row in rows if row["figure"] is not None),
        key=lambda row: float(row["figure"]["median"]),
    )
    if not shown:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"/>\n'
    low = math.floor(math.log10(min(row["figure"]["p10"] for row in shown)))
    high = math.ceil(math.log10(max(row["figure"]["median"] for row in shown)))
    height = TOP + ROW * len(shown) + BOTTOM

    def at(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / max(high - low, 1)
        return round(LABEL + BAR * min(share, 1.04), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        f"<style>{_STYLE}</style>",
        '<text class="title" x="12" y="22">What a jailed episode costs, rung by rung</text>',
        '<text class="quiet" x="12" y="40">median, line from p10 to p99; logarithmic; '
        "grey: limits of the machine, green: this jail, orange: others</text>",
    ]
    for power in range(low, high + 1):
        x = at(10.0**power)
        bottom = TOP + ROW * len(shown)
        parts.append(f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}"/>')
        parts.append(
            f'<text class="quiet" x="{x}" y="{bottom + 14}" text-anchor="middle">'
            f"{_time(10.0**power)}</text>"
        )
    for index, row in enumerate(shown):
        parts.extend(_bar(row, TOP + ROW * index, at))
    parts.append(f'<text class="quiet" x="12" y="{height - 10}">{escape(caption)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(row: dict[str, Any], y: int, at: Any) -> list[str]:
    figure, middle = row["figure"], y + ROW // 2
    group, _, name = row["key"].partition(".")
    kind = "limit" if group in _LIMITS else "other" if name in _OTHERS else "native"
    end, right = at(figure["median"]), at(figure["p99"])
    return [
        f'<text x="{LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(row["label"])}</text>',
        f'<rect class="{kind}" x="{LABEL}" y="{y + 4}" width="{max(end - LABEL, 1)}" '
        f'height="{ROW - 8}" rx="2"/>',
        f'<line class="spread" x1="{at(figure["p10"])}" y1="{middle}" x2="{right}" y2="{middle}"/>',
        f'<text x="{max(end, right) + 8}" y="{middle + 4}">{_time(figure["median"])}</text>',
    ]


def _time(microseconds: float) -> str:
    if microseconds < 100:
        return f"{microseconds:.3g} us"
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1e3:.3g} ms"
    return f"{microseconds / 1e6:.3g} s"
