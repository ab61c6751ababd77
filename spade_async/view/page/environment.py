"""One environment on the page: source, hint, both arms, regret, parents. All of it escaped."""

from __future__ import annotations

from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from spade_async.environment.text import clean
from spade_async.types import Arm
from spade_async.view import plays
from spade_async.view.environment import EnvironmentView
from spade_async.view.page.markup import SOURCE_CHARS, escaped, number, with_error
from spade_async.view.terminal import ARM_NAMES, class_text, pairs_text

_DOCUMENT_CHARS = 400


def block(found: EnvironmentView, *, is_open: bool) -> str:
    """The environment as a section that folds."""
    environment, estimate = found.row.environment, found.row.estimate
    regret = (
        "no regret"
        if estimate is None
        else f"regret {with_error(estimate['regret'], estimate['standard_error'])}"
    )
    labels = ", ".join(f"{name} {value}" for name, value in environment.labels)
    head = (
        f'<summary><code>{escaped(environment.environment_id)}</code> <span class="tag">'
        f"{escaped(class_text(estimate))}</span> {escaped(regret)}"
        f'<span class="dim"> {escaped(labels)}</span></summary>'
    )
    return (
        f'<details class="environment"{" open" if is_open else ""}>{head}'
        f"{_facts(found)}{source(environment.source)}{_arms(found)}{_parent(found)}</details>"
    )


def source(text: str) -> str:
    """A program, highlighted; the highlighter escapes it."""
    formatter: HtmlFormatter = HtmlFormatter(nowrap=True, classprefix="k-")
    # The lexer would strip blank lines at both ends.
    lexer = PythonLexer(stripnl=False)
    coloured = highlight(clean(text, SOURCE_CHARS), lexer, formatter)
    return f'<pre class="code" tabindex="0">{coloured}</pre>'


def _facts(found: EnvironmentView) -> str:
    environment, estimate = found.row.environment, found.row.estimate
    if estimate is None:
        missing = found.row.missing_regret
        return f"<p>No regret: {escaped(missing or 'it was not played in both arms')}.</p>"
    return (
        f"<p>With hint {number(estimate['mean_with_hint'])}, without "
        f"{number(estimate['mean_no_hint'])}, {pairs_text(estimate['num_pairs'])}; paid "
        f"{number(estimate['paid_regret'], '+.3f')}; the hint alone is the answer on "
        f"{environment.leak_share:.0%} of the probed seeds; designed in step "
        f"{found.row.created_step}.</p>"
    )


def _arms(found: EnvironmentView) -> str:
    if not found.arms:
        return f'<p class="dim">No episode: {escaped(found.why_seed)}.</p>'
    sides = [
        f"<div><h4>{ARM_NAMES[arm]}</h4>{_episode(found.arms[arm], arm)}</div>"
        for arm in plays.ARMS
        if arm in found.arms
    ]
    return (
        f'<p class="dim">Seed {found.seed}: {escaped(found.why_seed)}.</p>'
        f'<div class="arms">{"".join(sides)}</div>'
    )


def _episode(episode: plays.Shown, arm: str) -> str:
    sample = episode.sample
    lines = []
    if episode.hint and arm == Arm.WITH_HINT:
        lines.append(f'<p class="hint">hint: {escaped(episode.hint)}</p>')
    if not episode.has_words:
        lines.append('<p class="dim">The words of this seed were not kept.</p>')
    else:
        lines.append(f'<p class="said">{escaped(episode.observation or "")}</p>')
    lines += [
        f'<p class="action">{escaped(turn.get("action"))}</p>'
        f'<p class="said">{escaped(turn.get("observation"))} '
        f'<span class="dim">reward {escaped(turn.get("reward"))}</span></p>'
        for turn in episode.turns
    ]
    if sample.episode_return is None:
        lines.append(f"<p>No return: {escaped(sample.missing_reason or '')}</p>")
    else:
        lines.append(
            f"<p><b>return {sample.episode_return:g}</b> "
            f'<span class="dim">{escaped(sample.detail)}</span></p>'
        )
    return "".join(lines)


def _parent(found: EnvironmentView) -> str:
    if not found.designs:
        return ""
    design = found.designs[0]
    trained = design["trained_version"]
    step = "not trained yet" if trained is None else f"trained in the step to {trained}"
    said = f"Design {design['sample_id']}, pay {number(design['reward'])}, {step}"
    if "skill" not in design:
        return f'<p class="dim">{escaped(said)}.</p>'
    return (
        f'<p class="dim">{escaped(said)}; skill {escaped(design["skill"])}; document '
        f"{escaped(design['document_id'])}:</p>"
        f'<blockquote class="dim">{escaped(design["document"], _DOCUMENT_CHARS)}</blockquote>'
    )
