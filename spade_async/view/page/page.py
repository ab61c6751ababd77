"""The whole page, put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from spade_async.evals.tables import change, verdict
from spade_async.ledger.rows import EnvironmentRow
from spade_async.view.environment import look
from spade_async.view.order import best_first
from spade_async.view.page.environment import block
from spade_async.view.page.markup import escaped, number, table, with_error
from spade_async.view.page.plot import svg
from spade_async.view.page.plots import plots
from spade_async.view.run import ViewedRun, flat
from spade_async.view.totals import Regrets, regrets

NUM_BEST, NUM_WORST = 5, 3
_MOST_ALERTS = 50


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What the page takes from elsewhere."""

    report: Mapping[str, Any]
    """Of ``report --json``."""
    state: str
    """"running", "finished", ... or "" when it is not known."""
    failure: str | None = None


def page(run: ViewedRun, facts: PageFacts) -> str:
    """HTML of a run."""
    report = facts.report
    found = regrets(run, report["steps"])
    figures = [figure for plot in plots(run) if (figure := svg(plot))]
    title = escaped(run.name, 200)
    parts = [
        f"<header><h1>{title}</h1><p>{escaped(_subtitle(run, facts))}</p></header>",
        _failure(facts),
        _section("Figures", _cards(report, found)),
        _section("Held-out success", _held_out(report)),
        _section("Alerts", _alerts(run)),
        _section(
            "Curves",
            f'<p class="dim">Horizontal axis: learner step.</p><div class="plots">'
            f"{''.join(figures)}</div>"
            if figures
            else '<p class="dim">No learner step yet.</p>',
        ),
        *_environments(run),
        _section("Configuration", _configuration(run)),
    ]
    style = resources.files("spade_async.view.page").joinpath("page.css").read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # No script and no request, whatever a program's text may say.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">"
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{style}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>"


def _subtitle(run: ViewedRun, facts: PageFacts) -> str:
    said = [facts.state or "state not known", f"step {facts.report['steps']}"]
    seed, commit = run.value("run.seed"), run.info.get("git_commit")
    if seed is not None:
        said.append(f"seed {seed}")
    if commit:
        said.append(f"commit {str(commit)[:12]}")
    if facts.report["scripted"]:
        said.append("scripted: no model, nothing is trained")
    return ", ".join(said)


def _failure(facts: PageFacts) -> str:
    return "" if not facts.failure else f'<p class="alert">{escaped(facts.failure)}</p>'


def _cards(report: Mapping[str, Any], found: Regrets) -> str:
    known = sum(found.classes.values())
    classes = " / ".join(f"{n / known:.0%}" for n in found.classes.values()) if known else "–"
    rows = (
        ("rollouts", number(report["episodes"], ",.0f")),
        ("rollouts/h while learning", number(report["episodes_per_hour"], ",.0f")),
        ("designs", number(report["designs"], ",.0f")),
        ("validity", number(report["designer_validity_mean"], ".1%")),
        ("regret", with_error(found.all.mean, found.all.standard_error)),
        ("regret, last third", with_error(found.last.mean, found.last.standard_error)),
        ("environments", number(found.num_environments, ",.0f")),
        (" / ".join(found.classes).replace("_", " "), classes),
        ("wall", f"{number(report['wall_seconds'], ',.0f')} s"),
        ("CPU", f"{number(report['cpu_seconds'], ',.0f')} s"),
        ("peak memory", f"{number(report['peak_memory_gib'], '.2f')} GiB"),
        ("restarts", number(report["restarts"], ",.0f")),
        (
            "samples lost / twice / over bound",
            f"{report['samples_lost']} / {report['samples_trained_twice']} / "
            f"{report['samples_over_bound']}",
        ),
        ("updates set aside", number(report["nonfinite_updates"], ",.0f")),
    )
    cards = "".join(f"<div><dt>{name}</dt><dd>{escaped(value)}</dd></div>" for name, value in rows)
    return f'<dl class="cards">{cards}</dl>'


def _held_out(report: Mapping[str, Any]) -> str:
    if not report["held_out"]:
        return '<p class="dim">Nothing was scored yet.</p>'
    rows = [
        [
            escaped(row["level"], 60),
            str(row["n"]),
            with_error(row["base"], row["base_se"]),
            with_error(row["trained"], row["trained_se"]),
            with_error(*change(row), "+.3f"),
            verdict(row),
        ]
        for row in report["held_out"]
    ]
    versions = f"Weights {report['base_version']} against {report['trained_version'] or '–'}"
    return (
        table(["level", "n", "base", "trained", "difference", ""], rows)
        + f'<p class="dim">{escaped(versions)}; within noise: the difference is at most two '
        "standard errors of it.</p>"
    )


def _alerts(run: ViewedRun) -> str:
    alerts = run.ledger.alerts()
    if not alerts:
        return '<p class="dim">None.</p>'
    lines = "".join(
        f"<li>step {alert.step}: {escaped(alert.text)}</li>" for alert in alerts[-_MOST_ALERTS:]
    )
    left = len(alerts) - _MOST_ALERTS
    more = f'<p class="dim">and {left} older ones</p>' if left > 0 else ""
    return f'<ul class="alerts">{lines}</ul>{more}'


def _environments(run: ViewedRun) -> list[str]:
    known = best_first(run.ledger.environments(origin="designer", with_estimate=True))
    if not known:
        return [
            _section("Environments", '<p class="dim">No designed environment has a regret yet.</p>')
        ]
    best = known[:NUM_BEST]
    worst = known[max(len(best), len(known) - NUM_WORST) :][::-1]
    order = (
        '<p class="dim">By class, then by the lower bound of the regret (two standard errors, less '
        "what the hint gives away).</p>"
    )
    said = [_section("Best environments", order + _blocks(run, best))]
    if worst:
        said.append(_section("Worst environments", _blocks(run, worst, opens_first=False)))
    return said


def _blocks(run: ViewedRun, rows: list[EnvironmentRow], *, opens_first: bool = True) -> str:
    found = [look(run, row, with_tokens=False) for row in rows]
    return "".join(block(f, is_open=opens_first and i == 0) for i, f in enumerate(found))


def _configuration(run: ViewedRun) -> str:
    rows = [
        [f"<code>{escaped(key)}</code>", f"<code>{escaped(_plain(value), 400)}</code>"]
        for key, value in flat(run.config).items()
    ]
    return f"<details><summary>{len(rows)} keys</summary>{table([], rows, kind='keys')}</details>"


def _plain(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
