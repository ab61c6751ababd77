"""Line plots as inline SVG, made for 360 pixels; colours come from the page's style.

A plot has a title and a sentence for who cannot see it. Series differ by dashes as well as by
colour. Long runs are averaged into at most `MOST_POINTS` points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from spade_async.view.page.markup import escaped

MOST_POINTS = 240
WIDTH, HEIGHT = 360, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 8, 24
_NUM_STYLES = 6


@dataclass(frozen=True, slots=True)
class Series:
    """One line: (learner step, value), by step."""

    name: str
    points: tuple[tuple[float, float], ...]
    errors: tuple[float | None, ...] = ()
    """Standard errors, drawn as bars of two; empty for none."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure."""

    title: str
    unit: str
    series: tuple[Series, ...]
    low: float | None = None
    """Bottom of the axis; None takes it from the data."""
    high: float | None = None
    note: str = ""
    """What the reader should know of it."""
    lines: tuple[tuple[float, str], ...] = field(default=())
    """Horizontal lines (value, name), such as a bound."""


def svg(plot: Plot) -> str:
    """The figure as HTML; "" when no series has a point."""
    series = [thinned(s) for s in plot.series if s.points]
    if not series:
        return ""
    xs = [x for s in series for x, _ in s.points]
    left, right = min(xs), max(xs)
    low, high = _range(plot, series)
    scale = _Scale(left, right if right > left else left + 1.0, low, high)
    parts = [_axes(scale)]
    for value, name in plot.lines:
        if low <= value <= high:
            y = scale.y(value)
            parts.append(
                f'<line class="bound" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
                f'<text class="tick" x="{WIDTH - _RIGHT}" y="{y - 3:.1f}" text-anchor="end">'
                f"{escaped(name)}</text>"
            )
    for index, one in enumerate(series):
        parts.append(_line(one, scale, index % _NUM_STYLES))
    said = escaped("; ".join(_sentence(s) for s in series), 4000)
    legend = "".join(
        f'<li><svg class="key" viewBox="0 0 24 8" aria-hidden="true">'
        f'<path class="s{i % _NUM_STYLES}" d="M1 4H23"/></svg>{escaped(s.name)}</li>'
        for i, s in enumerate(series)
    )
    note = f"<p>{escaped(plot.note)}</p>" if plot.note else ""
    return (
        f'<figure><figcaption>{escaped(plot.title)} <span class="dim">({escaped(plot.unit)})'
        f"</span></figcaption>"
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escaped(plot.title)}: {said}"><title>{escaped(plot.title)}: {said}</title>'
        f'{"".join(parts)}</svg><ul class="legend">{legend}</ul>{note}</figure>'
    )


def thinned(series: Series) -> Series:
    """At most `MOST_POINTS` points: each the mean of as many neighbours."""
    count = len(series.points)
    if count <= MOST_POINTS or series.errors:
        return series
    size = math.ceil(count / MOST_POINTS)
    chunks = [series.points[i : i + size] for i in range(0, count, size)]
    means = [
        (sum(x for x, _ in chunk) / len(chunk), sum(y for _, y in chunk) / len(chunk))
        for chunk in chunks
    ]
    return Series(series.name, tuple(means))


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About `count` round numbers within [low, high].

    Example: ticks(0, 1) is [0, .2, .4, .6, .8, 1] thinned to steps of .5: [0, .5, 1].
    """
    span = high - low
    if not span > 0:
        return [low]
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class _Scale:
    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        share = (value - self.left) / (self.right - self.left)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        share = min(1.0, max(0.0, share))
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


def _range(plot: Plot, series: Sequence[Series]) -> tuple[float, float]:
    values = [y for s in series for _, y in s.points]
    low = min(values) if plot.low is None else plot.low
    high = max(values) if plot.high is None else plot.high
    if plot.high is None:
        high = max([high, *(value for value, _ in plot.lines)])
    if high <= low:
        # A flat line stands in the middle.
        pad = abs(low) * 0.1 or 1.0
        return (low, low + pad) if plot.low is not None else (low - pad, low + pad)
    pad = (high - low) * 0.05
    return (low if plot.low is not None else low - pad), (
        high if plot.high is not None else high + pad
    )


def _axes(scale: _Scale) -> str:
    parts = []
    for value in ticks(scale.low, scale.high):
        y = scale.y(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
            f'<text class="tick" x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">'
            f"{label(value)}</text>"
        )
    for value in ticks(scale.left, scale.right):
        x = scale.x(value)
        anchor = "end" if x > WIDTH - 24 else "middle"
        parts.append(
            f'<text class="tick" x="{x}" y="{HEIGHT - 8}" text-anchor="{anchor}">'
            f"{label(value)}</text>"
        )
    return "".join(parts)


def label(value: float) -> str:
    """A tick's number, short: 0.25, 12, 3.4k, 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if letter == "k" else size)
            return f"{scaled:.3g}{letter}"
    return f"{0.0 if abs(value) < 1e-12 else value:.4g}"


def _line(series: Series, scale: _Scale, style: int) -> str:
    points = [(scale.x(x), scale.y(y)) for x, y in series.points]
    path = "M" + "L".join(f"{x} {y}" for x, y in points)
    parts = [f'<path class="s{style}" d="{path}"/>']
    if len(points) <= 30:
        parts += [f'<circle class="p{style}" cx="{x}" cy="{y}" r="2.2"/>' for x, y in points]
    for (x, y), error in zip(series.points, series.errors, strict=False):
        if error is not None:
            # Two standard errors each way.
            parts.append(
                f'<path class="e{style}" d="M{scale.x(x)} {scale.y(y - 2 * error)}'
                f'V{scale.y(y + 2 * error)}"/>'
            )
    return "".join(parts)


def _sentence(series: Series) -> str:
    first, last = series.points[0], series.points[-1]
    values = [y for _, y in series.points]
    if len(values) == 1:
        return f"{series.name} {label(first[1])} at step {label(first[0])}"
    return (
        f"{series.name} from {label(first[1])} at step {label(first[0])} to {label(last[1])} at "
        f"step {label(last[0])}, between {label(min(values))} and {label(max(values))}"
    )
