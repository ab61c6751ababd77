"""Which curves the page shows, from the steps and evaluations of the ledger.

A metric that a run does not have gives no plot: there is nothing to draw, and no zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from spade_async.ledger.rows import EvalRow, StepRow
from spade_async.view.page.plot import Plot, Series
from spade_async.view.run import ViewedRun


def plots(run: ViewedRun) -> list[Plot]:
    """All plots, in the order of the page."""
    steps = run.ledger.steps()

    def curves(title: str, unit: str, *tags: tuple[str, str], **more: object) -> Plot:
        series = tuple(_curve(steps, tag, name) for tag, name in tags)
        return Plot(title, unit, series, **more)  # type: ignore[arg-type]

    agent, designer = run.value("async.agent_bound"), run.value("async.designer_bound")
    both = run.value("async.staleness")
    if both is not None:
        agent, designer = both, 2 * both
    bounds = tuple(
        (float(value), f"{role} bound")
        for role, value in (("agent", agent), ("designer", designer))
        if value is not None
    )
    share = {"low": 0.0, "high": 1.0}
    return [
        curves(
            "Regret", "return", ("regret/mean", "regret"), ("regret/paid_mean", "paid"),
            note="Mean over a step's environments: return with hint less return without.",
        ),
        curves(
            "Success", "share", ("solve/with_hint", "with hint"),
            ("solve/no_hint", "without hint"), **share,
        ),
        curves(
            "Classes", "share of a step's environments", ("regret/frontier_share", "frontier"),
            ("regret/mastered_share", "mastered"), ("regret/out_of_reach_share", "out of reach"),
            **share,
        ),
        held_out(run.ledger.evals()),
        curves(
            "Validity of designs", "share", ("designer/validity", "of the step"),
            ("designer/validity_window", "last 200"), low=0.0, high=1.0,
        ),
        curves(
            "Skeleton entropy", "nats", ("diversity/skeleton_entropy", "of the window"),
            ("diversity/run_skeleton_entropy", "of the run"), low=0.0,
            note="0 is one shape of program for all designs.",
        ),
        curves("Leak", "share", ("designer/leak_share", "hint alone is the answer"), **share),
        curves(
            "Forgetting", "share", ("guards/forgetting", "below the first or best evaluation"),
            note="How far held-out success has fallen; negative is a gain.",
        ),
        curves("Pay of the designer", "reward", ("designer/reward_mean", "mean over designs")),
        curves(
            "Tokens before the first action", "tokens",
            ("behaviour/tokens_before_action", "unhinted episodes"), low=0.0,
        ),
        curves(
            "Use of answers", "share", ("behaviour/feedback_used_share", "answers used"),
            ("behaviour/recovery_share", "recovered from a rejection"), **share,
        ),
        curves(
            "Staleness", "learner steps", ("staleness/agent_mean", "agent, mean"),
            ("staleness/agent_max", "agent, oldest"), ("staleness/designer_mean", "designer, mean"),
            ("staleness/designer_max", "designer, oldest"), low=0.0, lines=bounds,
        ),
        curves("Rollouts per hour", "episodes/h", ("rate/episodes_per_hour", "episodes"), low=0.0),
        curves(
            "Idle", "share of the time", ("generator/idle_share", "generators"),
            ("learner/idle_share", "learner"), **share,
        ),
        curves(
            "Policy entropy", "nats per token", ("learner/entropy_designer", "designer"),
            ("learner/entropy_agent", "agent"), low=0.0,
        ),
        curves(
            "Importance ratio", "learner / generator", ("learner/ratio_mean_agent", "agent, mean"),
            ("learner/ratio_mean_designer", "designer, mean"),
        ),
    ]  # fmt: skip


def held_out(evals: Sequence[EvalRow]) -> Plot:
    """Success per level at each scored version."""
    levels = sorted({e.level for e in evals}, key=lambda name: (len(name), name))
    series = []
    for level in levels:
        # Of a step that was scored twice (before and after a fall-back) the newest counts.
        scored = {
            e.version.step: (e.mean, e.standard_error)
            for e in evals
            if e.level == level and e.mean is not None
        }
        rows = sorted(scored.items())
        series.append(
            Series(
                f"level {level}",
                tuple((float(step), mean) for step, (mean, _) in rows),
                tuple(error for _, (_, error) in rows),
            )
        )
    return Plot(
        "Held-out success", "share", tuple(series), low=0.0, high=1.0,
        note="Bars are two standard errors each way.",
    )  # fmt: skip


def _curve(steps: Sequence[StepRow], tag: str, name: str) -> Series:
    points = [(float(row.step), row.metrics[tag]) for row in steps if tag in row.metrics]
    return Series(name, tuple(points))
