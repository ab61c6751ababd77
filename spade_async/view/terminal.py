"""One environment for a terminal: as wide as it is, also without colour and in a pipe.

Everything that a model wrote goes through `clean`: an escape sequence in a program must not reach
the reader's terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from spade_async.environment.text import clean, few_lines, one_line
from spade_async.types import Arm
from spade_async.view import plays
from spade_async.view.environment import EnvironmentView
from spade_async.view.terminal_tokens import tokens

_SOURCE_CHARS = 100_000
_SOURCE_LINES = 2000
"""Lines of a program that are shown; --json has all of them."""
_DOCUMENT_CHARS = 600
_STACKED_BELOW = 60
"""Columns below which the arms stand one above the other."""
_UNKNOWN = "-"
ARM_NAMES = {Arm.NO_HINT.value: "without hint", Arm.WITH_HINT.value: "with hint"}


def environment(found: EnvironmentView, console: Console) -> RenderableType:
    """Everything that `show` prints without --json."""
    parts: list[RenderableType] = [_head(found), _facts(found), Text()]
    parts += [Rule("source", align="left", style="dim"), _source(found, console), Text()]
    parts += [Rule("both arms on one seed", align="left", style="dim"), *_arms(found, console)]
    parts += [Text(), Rule("all seeds", align="left", style="dim"), _seeds(found)]
    parts += [Text(), Rule("parents", align="left", style="dim"), *_parents(found)]
    for title, view in (
        ("tokens of the design", found.design_tokens),
        ("tokens of the episode without hint", found.episode_tokens),
    ):
        if view is not None:
            parts += [Text(), Rule(title, align="left", style="dim"), *tokens(view, console)]
    return Group(*parts)


def regret_text(found: dict[str, Any] | None, missing: str | None) -> str:
    """Regret with its standard error and what it is made of."""
    if found is None:
        return (
            f"missing: {one_line(missing)}" if missing else "none: it was not played in both arms"
        )
    error = found.get("standard_error")
    noise = "" if error is None else f" ± {error:.3f}"
    return (
        f"{found['regret']:+.3f}{noise} over {pairs_text(found['num_pairs'])}: "
        f"with hint {found['mean_with_hint']:.3f}, without {found['mean_no_hint']:.3f}"
    )


def pairs_text(num: int) -> str:
    """How many pairs a regret is over; the reference's has none."""
    return f"{num} pairs" if num else "no pairs, as each arm has seeds of its own"


def class_text(estimate: dict[str, Any] | None) -> str:
    """Class in words."""
    return _UNKNOWN if estimate is None else str(estimate["regret_class"]).replace("_", " ")


def value_text(value: float | None, digits: int = 3) -> str:
    """A number, "-" where there is none."""
    return _UNKNOWN if value is None else f"{value:.{digits}f}"


def _head(found: EnvironmentView) -> Text:
    environment = found.row.environment
    text = Text(environment.environment_id, style="bold")
    text.append(f"  {class_text(found.row.estimate)}", style="cyan")
    text.append(f"  {environment.origin}, step {found.row.created_step}", style="dim")
    return text


def _facts(found: EnvironmentView) -> RenderableType:
    environment, row = found.row.environment, found.row
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    labels = ", ".join(f"{name} {value}" for name, value in environment.labels) or "none"
    grid.add_row("regret", Text(regret_text(row.estimate, row.missing_regret)))
    if row.estimate is not None:
        grid.add_row(
            "paid",
            f"{row.estimate['paid_regret']:+.3f}: the hint alone is the answer on "
            f"{environment.leak_share:.0%} of the probed seeds",
        )
    grid.add_row("hint", Text(_hint(found)))
    grid.add_row("labels", Text(clean(labels)))
    grid.add_row("skeleton", environment.skeleton or _UNKNOWN)
    grid.add_row("designed", f"{row.num_designs} times, played in {found.num_plays} groups")
    return grid


def _hint(found: EnvironmentView) -> str:
    environment = found.row.environment
    if environment.hint:
        return clean(environment.hint, 1000)
    hinted = found.arms.get(Arm.WITH_HINT)
    if hinted is not None and hinted.hint:
        return f"{clean(hinted.hint, 1000)}   (of seed {found.seed}; each instance has its own)"
    return (
        "of each instance, by its own hint()" if environment.hint_mode == "environment" else "none"
    )


def _source(found: EnvironmentView, console: Console) -> RenderableType:
    text = few_lines(clean(found.row.environment.source, _SOURCE_CHARS), _SOURCE_LINES)
    if console.color_system is None:
        return Text(text, overflow="fold")
    return Syntax(text, "python", theme="ansi_dark", background_color="default", word_wrap=True)


def _arms(found: EnvironmentView, console: Console) -> list[RenderableType]:
    if not found.arms:
        return [Text(f"no episode: {found.why_seed}", style="dim")]
    said: list[RenderableType] = [Text(f"seed {found.seed}: {found.why_seed}", style="dim")]
    shown = [(arm, found.arms[arm]) for arm in plays.ARMS if arm in found.arms]
    if console.width < _STACKED_BELOW:
        for arm, episode in shown:
            said += [Text(ARM_NAMES[arm], style="bold"), transcript(episode)]
        return said
    table = Table(expand=True, show_lines=False)
    for arm, _ in shown:
        table.add_column(ARM_NAMES[arm], ratio=1, overflow="fold")
    table.add_row(*(transcript(episode) for _, episode in shown))
    return [*said, table]


def transcript(episode: plays.Shown) -> Text:
    """What was said in one episode."""
    text = Text()
    if not episode.has_words:
        text.append("(words not kept for this seed)\n", style="dim")
    else:
        if episode.hint:
            text.append(f"hint: {clean(episode.hint)}\n", style="yellow")
        text.append(f"{clean(episode.observation or '')}\n")
        for turn in episode.turns:
            text.append(f"> {clean(str(turn.get('action')))}\n", style="bold")
            text.append(f"{clean(str(turn.get('observation')))}")
            text.append(f"  (reward {turn.get('reward')})\n", style="dim")
    text.append_text(outcome(episode))
    return text


def outcome(episode: plays.Shown) -> Text:
    """How an episode ended, in one line."""
    sample = episode.sample
    if sample.episode_return is None:
        return Text(f"no return: {one_line(sample.missing_reason or '')}", style="red")
    text = Text(f"return {sample.episode_return:g}", style="bold")
    if sample.detail:
        text.append(f"  {one_line(sample.detail)}", style="dim")
    return text


def _seeds(found: EnvironmentView) -> RenderableType:
    if found.play is None:
        return Text("none", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("seed", justify="right")
    for arm in plays.ARMS:
        table.add_column(ARM_NAMES[arm], justify="right")
    table.add_column("difference", justify="right")
    for seed, arms in found.play.seeds.items():
        values = [arms[arm].episode_return if arm in arms else None for arm in plays.ARMS]
        plain, hinted = values
        difference = None if plain is None or hinted is None else hinted - plain
        table.add_row(
            str(seed),
            *("missing" if arm in arms and v is None else value_text(v, 2)
              for arm, v in zip(plays.ARMS, values, strict=True)),
            _UNKNOWN if difference is None else f"{difference:+.2f}",
            style="bold" if seed == found.seed else "",
        )  # fmt: skip
    return table


def _parents(found: EnvironmentView) -> list[RenderableType]:
    if not found.designs:
        return [Text(f"none: it is of the {found.row.environment.origin} pool", style="dim")]
    said: list[RenderableType] = []
    for number, design in enumerate(found.designs):
        said.append(_design(design, in_full=number == 0))
    left = found.row.num_designs - len(found.designs)
    if left > 0:
        said.append(Text(f"and {left} older designs of the same program", style="dim"))
    return said


def _design(design: dict[str, Any], *, in_full: bool) -> RenderableType:
    line = Text(f"design {design['sample_id']}", style="bold")
    line.append(f"  pay {value_text(design['reward'])}", style="default")
    if design["trained_version"] is not None:
        line.append(
            f"  trained in the step to {design['trained_version']} (age {design['staleness']}, "
            f"advantage {design['advantage']:+.3f})",
            style="dim",
        )
    elif design["missing_reason"]:
        line.append(f"  {one_line(design['missing_reason'])}", style="red")
    else:
        line.append("  not trained yet", style="dim")
    if not in_full or "skill" not in design:
        return line
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("group", Text(f"{design['group_id']} of {design['group_size']} designs"))
    grid.add_row("skill", Text(clean(design["skill"])))
    grid.add_row("document", Text(clean(design["document_id"])))
    grid.add_row("", Text(cut(clean(design["document"], 4 * _DOCUMENT_CHARS)), style="italic"))
    grid.add_row("exemplars", Text(_exemplars(design["exemplar_ids"], design["exemplars"])))
    return Group(line, grid)


def _exemplars(ids: Sequence[str | None], exemplars: Sequence[Any]) -> str:
    """Ids, with how the designer was shown them when the ledger says so ("inspire", "avoid")."""
    kinds = [e.get("kind") if isinstance(e, dict) else None for e in exemplars]
    named = [f"{i} ({kind})" if kind else str(i) for i, kind in zip(ids, kinds, strict=True)]
    return clean(", ".join(named), 4000) or "none"


def cut(text: str, limit: int = _DOCUMENT_CHARS) -> str:
    """The start of a long text; --json has all of it."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
