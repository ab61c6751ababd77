"""The tokens of a sample for a terminal: coloured by the weights that sampled them.

Without colour a mark stands before each token whose version is another than that of the token
before it, so that a pipe or a file says the same.
"""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from spade_async.environment.text import clean, one_line
from spade_async.view.tokens import TokenRow, TokenView

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_MOST_TOKENS = 3000
"""More are left out in the middle; --json has them all."""
_MOST_HEAVY = 6
FAR = 0.1
"""An importance weight further than this from 1 is underlined."""
CONTROL = "¶"
"""Stands for a control token."""


def tokens(view: TokenView, console: Console) -> list[RenderableType]:
    """Text, legend and the tokens whose weight is furthest from 1."""
    if view.missing is not None:
        return [Text(f"{view.sample_id}: {view.missing}", style="dim")]
    has_colour = console.color_system is not None and not console.no_color
    marks = {version: _mark(number) for number, version in enumerate(view.versions)}
    said: list[RenderableType] = [_legend(view, marks, has_colour)]
    if all(row.text is None for row in view.rows):
        said.append(Text("no tokenizer is here: token ids only", style="dim"))
    said.append(_flow(view, marks, has_colour))
    said += _weights(view)
    return said


def _mark(number: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return letters[number] if number < len(letters) else f"v{number}"


def _style(number: int) -> str:
    colour = _COLOURS[number % len(_COLOURS)]
    return f"{colour} reverse" if number >= len(_COLOURS) else colour


def _legend(view: TokenView, marks: dict[str, str], has_colour: bool) -> Text:
    text = Text(f"{view.sample_id}  sampled by weights ", style="dim")
    for number, (version, mark) in enumerate(marks.items()):
        count = sum(row.version == version for row in view.rows)
        name = version if has_colour else f"[{mark}] {version}"
        text.append(f"{name} ({count} tokens)", style=_style(number))
        text.append("  ")
    given = sum(not row.is_sampled for row in view.rows)
    text.append(f"dim: given ({given} tokens)" if has_colour else f"[-] given ({given} tokens)")
    return text


def _flow(view: TokenView, marks: dict[str, str], has_colour: bool) -> Text:
    numbers = {version: number for number, version in enumerate(marks)}
    text = Text(overflow="fold")
    before: str | None = "start"
    skip = range(0)
    if len(view.rows) > _MOST_TOKENS:
        half = _MOST_TOKENS // 2
        skip = range(half, len(view.rows) - half)
    for index, row in enumerate(view.rows):
        if index in skip:
            if index == skip.start:
                text.append(f" … {len(skip)} tokens left out … ", style="bold")
            continue
        if index and index in view.starts:
            text.append(f"\n--- sequence {view.starts.index(index) + 1} ---\n", style="bold")
        if not has_colour and row.version != before:
            text.append(f"[{marks.get(row.version or '', '-')}]")
        before = row.version
        style = "dim" if row.version is None else _style(numbers[row.version])
        if row.weight is not None and abs(row.weight - 1.0) > FAR:
            style += " underline"
        text.append(written(row), style=style)
    return text


def written(row: TokenRow) -> str:
    """A token as it is printed."""
    if row.text is None:
        return f"{row.token_id} "
    return clean(row.text) or CONTROL


def _weights(view: TokenView) -> list[RenderableType]:
    """Summary of the importance weights and the tokens that stand out."""
    if view.no_weights is not None:
        return [Text(f"importance weights: {view.no_weights}", style="dim")]
    rows = [(i, r) for i, r in enumerate(view.rows) if r.weight is not None]
    if not rows:
        return [Text("importance weights: the learner computed none for this sample", style="dim")]
    weights = [r.weight for _, r in rows if r.weight is not None]
    mean = sum(weights) / len(weights)
    said: list[RenderableType] = [
        Text(
            f"importance weights: mean {mean:.3f}, {min(weights):.3f} to {max(weights):.3f}; "
            f"{sum(abs(w - 1.0) > FAR for w in weights)} of {len(weights)} further than {FAR} from "
            "1 (underlined in colour); the furthest:",
            style="dim",
        )
    ]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("token", "weights", "generator", "learner", "importance"):
        table.add_column(name, justify="left" if name == "token" else "right")
    heavy = sorted(rows, key=lambda pair: -abs((pair[1].weight or 0.0) - 1.0))[:_MOST_HEAVY]
    for index, row in sorted(heavy):
        table.add_row(
            Text(f"{index} {one_line(repr(written(row)), 24)}"),
            row.version or "-",
            _logprob(row.generator_logprob),
            _logprob(row.learner_logprob),
            f"{row.weight:.3f}",
        )
    return [*said, table]


def _logprob(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
