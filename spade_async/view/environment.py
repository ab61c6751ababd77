"""Everything that the ledger knows of one environment, as plain values: `show --json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from spade_async.environment.contract import environment_id
from spade_async.ledger.rows import EnvironmentRow, GroupRow, SampleRow
from spade_async.types import Arm, PolicyVersion
from spade_async.view import plays
from spade_async.view.order import lower_bound
from spade_async.view.run import ViewedRun
from spade_async.view.tokens import Texts, TokenView, view

MOST_DESIGNS = 8
"""Designs of the same program that are told in full, newest first."""


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """One environment with its parents, one play and its tokens."""

    run: ViewedRun
    row: EnvironmentRow
    designs: list[dict[str, Any]]
    """Newest first; at most `MOST_DESIGNS`."""
    num_plays: int
    play: plays.Play | None
    seed: int | None
    why_seed: str
    arms: dict[str, plays.Shown]
    """Of `seed`, by arm."""
    design_tokens: TokenView | None
    episode_tokens: TokenView | None
    """Of the unhinted episode of `seed`."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values; None where there is no number."""
        environment = self.row.environment
        return {
            "run": str(self.run.folder.root),
            **{
                key: value
                for key, value in asdict(environment).items()
                if key not in ("labels", "source")
            },
            "labels": dict(environment.labels),
            "created_step": self.row.created_step,
            "num_designs": self.row.num_designs,
            "num_plays": self.num_plays,
            "regret": self.row.estimate,
            "regret_lower_bound": lower_bound(self.row.estimate, environment.leak_share),
            "missing_regret": self.row.missing_regret,
            "designs": self.designs,
            "play": None if self.play is None else _play(self.play),
            "shown_seed": self.seed,
            "shown_because": self.why_seed,
            "arms": {arm: _arm(shown) for arm, shown in self.arms.items()},
            "design_tokens": None if self.design_tokens is None else self.design_tokens.as_dict(),
            "episode_tokens": (
                None if self.episode_tokens is None else self.episode_tokens.as_dict()
            ),
            "source": environment.source,
        }


def look(
    run: ViewedRun, row: EnvironmentRow, seed: int | None = None, *, with_tokens: bool = True
) -> EnvironmentView:
    """Read what there is of an environment.

    Args:
        run: where.
        row: which.
        seed: to show; None chooses (`plays.choose_seed`).
        with_tokens: read tokens too, which loads the run's tokenizer.

    Raises:
        RunFolderError: the seed was not played.
        LedgerError: a stored value is damaged.
    """
    wanted = row.environment.environment_id
    found = plays.plays_of(run, wanted)
    play = plays.shown_play(run, found, seed)
    if play is None and seed is not None and found:
        play = next((p for p in found if p.seeds), None)
    why, arms = "it was not played", dict[str, plays.Shown]()
    if play is not None and play.seeds:
        seed, why = plays.choose_seed(play, seed)
        arms = {arm: plays.shown(sample) for arm, sample in play.seeds[seed].items()}
    designs = _designs(run, wanted)
    texts = Texts(run)
    unhinted = arms.get(Arm.NO_HINT)
    return EnvironmentView(
        run=run,
        row=row,
        designs=designs,
        num_plays=len(found),
        play=play,
        seed=seed if arms else None,
        why_seed=why,
        arms=arms,
        design_tokens=(
            view(run, texts, designs[0]["sample_id"]) if designs and with_tokens else None
        ),
        episode_tokens=(
            view(run, texts, unhinted.sample.sample_id)
            if unhinted is not None and with_tokens
            else None
        ),
    )


def _designs(run: ViewedRun, wanted: str) -> list[dict[str, Any]]:
    rows = run.ledger.query(
        "SELECT sample_id FROM designs WHERE environment_id = ? ORDER BY rowid DESC LIMIT ?",
        (wanted, MOST_DESIGNS),
    )
    samples = [run.ledger.sample(row[0]) for row in rows]
    return [_design(run, s, run.ledger.group(s.group_id)) for s in samples if s is not None]


def _design(run: ViewedRun, sample: SampleRow, group: GroupRow | None) -> dict[str, Any]:
    known: dict[str, Any] = {
        "sample_id": sample.sample_id,
        "group_id": sample.group_id,
        "position": sample.index,
        "reward": sample.reward,
        "missing_reason": sample.missing_reason or sample.unused_reason,
        "num_tokens": sample.num_tokens,
        "num_sampled_tokens": sample.num_trained_tokens,
        **training(run, sample),
    }
    if group is not None:
        exemplars = _json(group.exemplars_json, [])
        known |= {
            "group_size": group.members,
            "group_state": group.state,
            "skill": group.skill,
            "document_id": group.document_id,
            "document": group.document,
            "exemplar_ids": [_exemplar_id(e) for e in exemplars],
            "exemplars": exemplars,
        }
    return known


def training(run: ViewedRun, sample: SampleRow) -> dict[str, Any]:
    """In which learner step a sample was trained, how old it was and with which advantage."""
    found: dict[str, Any] = dict.fromkeys(("trained_version", "advantage", "staleness"))
    if sample.trained_ordinal is None:
        return found
    rows = run.ledger.query(
        "SELECT b.branch, b.step, r.advantage, r.staleness FROM batch_samples r"
        " JOIN batches b USING (ordinal) WHERE r.sample_id = ? AND b.ordinal = ?",
        (sample.sample_id, sample.trained_ordinal),
    )
    if rows:
        branch, step, found["advantage"], found["staleness"] = rows[0]
        found["trained_version"] = str(PolicyVersion(branch, step))
    return found


def _play(play: plays.Play) -> dict[str, Any]:
    return {
        "group_id": play.group_id,
        "kind": play.kind,
        "state": play.state,
        "seeds": [
            {"seed": seed, **{arm: _episode(sample) for arm, sample in arms.items()}}
            for seed, arms in play.seeds.items()
        ],
    }


def _episode(sample: SampleRow) -> dict[str, Any]:
    return {
        "sample_id": sample.sample_id,
        "episode_return": sample.episode_return,
        "outcome": sample.outcome,
        "detail": sample.detail,
        "missing_reason": sample.missing_reason,
        "num_sampled_tokens": sample.num_trained_tokens,
    }


def _arm(shown: plays.Shown) -> dict[str, Any]:
    return {
        **_episode(shown.sample),
        "observation": shown.observation,
        "hint": shown.hint,
        "transcript": shown.turns if shown.has_words else None,
    }


def _exemplar_id(exemplar: Any) -> str | None:
    """Id of the environment that the designer was shown; None when it is not told by its source."""
    if not isinstance(exemplar, dict):
        return None
    source = exemplar.get("source")
    named = exemplar.get("environment_id")
    return str(named) if named else environment_id(source) if isinstance(source, str) else None


def _json(text: str, default: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return default
