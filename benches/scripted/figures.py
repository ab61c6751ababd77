"""Figures of a run from its ledger: rates, idle shares, ages, and whether lengths are fair."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.engine import scripted_codec, scripted_domain
from spade_async.engine.protocol import Sampling
from spade_async.engine.scripted_paced import Script
from spade_async.ledger import LedgerReader
from spade_async.ledger.timings import StepTime, TaskTime
from spade_async.seeds import derive
from spade_async.types import Arm

_PLAIN = [scripted_codec.PROMPT_IDS[scripted_domain.PLAIN]]


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch of a run that is measured: from one step's report to another's."""

    first: int
    """Ordinal of the last step of the warm-up."""
    last: float
    """Ordinal at whose report it ends; a fraction lies between two reports."""
    start_s: float
    end_s: float
    tokens: float
    """Trained in it."""
    busy_s: float
    """Of the learner."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s

    @property
    def steps(self) -> float:
        """How many steps it holds."""
        return self.last - self.first


def window(steps: Sequence[StepTime], first: int, tokens: float) -> Window:
    """From the report of step `first` until so many tokens are trained, within a step if need be.

    Raises:
        ValueError: the run is too short for that.
    """
    by_ordinal = {s.ordinal: s for s in steps if s.trained_unix_s is not None}
    start_s = by_ordinal[first].trained_unix_s
    assert start_s is not None
    left, busy_s, now_s = tokens, 0.0, start_s
    for ordinal in range(first + 1, max(by_ordinal) + 1):
        step = by_ordinal[ordinal]
        assert step.trained_unix_s is not None
        assert step.busy_s is not None
        share = min(left / step.num_tokens, 1.0)
        busy_s += share * step.busy_s
        if step.num_tokens >= left:
            end_s = now_s + share * (step.trained_unix_s - now_s)
            return Window(first, ordinal - 1 + share, start_s, end_s, tokens, busy_s)
        left, now_s = left - step.num_tokens, step.trained_unix_s
    raise ValueError(
        f"{tokens - left:.0f} tokens were trained after step {first}, not {tokens:.0f}"
    )


def trained_tokens(steps: Sequence[StepTime], first: int, num: int) -> int:
    """Tokens of the `num` steps after step `first`."""
    return sum(s.num_tokens for s in steps if first < s.ordinal <= first + num)


def slot_seconds(tasks: Iterable[TaskTime], start_s: float, end_s: float) -> float:
    """Seconds that requests held slots between two instants, summed over slots."""
    return sum(
        max(
            0.0, min(t.finished_unix_s, end_s) - max(t.finished_unix_s - t.engine_s, start_s)
        )
        for t in tasks
    )  # fmt: skip


def idle_share(used_s: float, available_s: float) -> float:
    """Share of the available time that was not used, in [0, 1]."""
    return min(max(1.0 - used_s / available_s, 0.0), 1.0)


def ceiling(*, sync_s: float, generation_s: float, learn_s: float) -> float:
    """The most that overlap can give: a synchronous step over the slower side's own time."""
    return sync_s / max(generation_s, learn_s)


def length_ratio(trained: Sequence[int], asked: Sequence[int]) -> float | None:
    """Mean trained length over mean length that was asked for; 1 favours none. None of nothing."""
    if not trained or not asked:
        return None
    return statistics.fmean(trained) / statistics.fmean(asked)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What one run gives; see `benches.overlap` for the names in the JSON."""

    window: Window
    rollouts: int
    slot_s: float
    mean_age: float
    max_age: int
    designer_mean_age: float | None
    designer_max_age: int | None
    samples_over_bound: int
    tokens_discarded_for_age: int
    tokens_cut: int
    samples_cut: int
    length_ratio: float | None

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return self.window.seconds / self.window.steps

    def generation_s(self, slots: int) -> float:
        """Seconds per step that all slots together need for what was generated."""
        return self.slot_s / slots / self.window.steps

    @property
    def learn_s(self) -> float:
        """Seconds per step in which the learner was busy."""
        return self.window.busy_s / self.window.steps


def read_steps(folder: Path) -> list[StepTime]:
    """Times of the steps of a run."""
    with LedgerReader.open(RunFolder(folder).ledger) as ledger:
        return ledger.step_times()


def run_figures(folder: Path, first: int, tokens: float) -> RunFigures:
    """Figures of the window after step `first` in which `tokens` were trained."""
    config = load_resolved(folder)
    agent_bound, designer_bound = config.async_.bounds
    with LedgerReader.open(RunFolder(folder).ledger) as ledger:
        found = window(ledger.step_times(), first, tokens)
        tasks = [t for t in ledger.task_times() if t.kind != "eval"]
        ages: dict[str, list[int]] = {"agent": [], "designer": []}
        for row in ledger.query(
            "SELECT role, staleness, ordinal FROM batch_samples JOIN samples USING (sample_id)"
        ):
            if first < row["ordinal"] <= found.last + 1:
                ages[row["role"]].append(row["staleness"])
        counters = ledger.get_state("counters", {}) or {}
        is_single_turn = config.is_scripted and config.scripted.turns == 1
        return RunFigures(
            window=found,
            rollouts=sum(
                t.kind != "design" and found.start_s < t.finished_unix_s <= found.end_s
                for t in tasks
            ),
            slot_s=slot_seconds(tasks, found.start_s, found.end_s),
            mean_age=statistics.fmean(ages["agent"]),
            max_age=max(ages["agent"]),
            designer_mean_age=statistics.fmean(ages["designer"]) if ages["designer"] else None,
            designer_max_age=max(ages["designer"], default=None),
            samples_over_bound=ledger.over_bound(
                {"agent": agent_bound, "designer": designer_bound}
            ),
            tokens_discarded_for_age=int(counters.get("tokens_discarded_for_age", 0)),
            tokens_cut=int(counters.get("tokens_cut_at_deadline", 0)),
            samples_cut=_num_cut(ledger),
            length_ratio=_length_ratio(ledger, config, found) if is_single_turn else None,
        )


def _num_cut(ledger: LedgerReader) -> int:
    (row,) = ledger.query("SELECT COUNT(*) FROM samples WHERE missing_reason LIKE 'ours: cut%'")
    return int(row[0])


def _length_ratio(ledger: LedgerReader, config: Config, found: Window) -> float | None:
    """Of unhinted episodes whose groups were born in the window and had time to be trained.

    What was asked for is drawn again from the names, so that an episode that was cut, or never came
    back, counts with the length it would have had.
    """
    script = Script(config.scripted)
    last = int(found.last) - 2 * config.async_.bounds[1] - 1
    groups = ledger.query(
        "SELECT group_id, members FROM groups"
        " WHERE role = 'agent' AND birth_ordinal BETWEEN ? AND ?",
        (found.first, max(last, found.first)),
    )
    asked: list[int] = []
    trained: list[int] = []
    for group_id, members in groups:
        task_seed = derive(config.run.seed, "play", group_id, Arm.NO_HINT)
        for index in range(members):
            seed = derive(derive(task_seed, index), "turn", 0)
            limit = config.agent.max_new_tokens_per_turn
            sampling = Sampling(1.0, limit, scripted_codec.ScriptedCodec.stop_token_ids, seed)
            asked.append(script.say(_PLAIN, sampling, 0, 0.0).num_tokens)
        rows = ledger.query(
            "SELECT num_trained_tokens FROM samples WHERE group_id = ? AND purpose = 'train'"
            " AND trained_ordinal IS NOT NULL",
            (group_id,),
        )
        trained += [int(row[0]) for row in rows]
    return length_ratio(trained, asked)


def row(
    bound: int, found: RunFigures, generator_idle_share: float, generation_s: float
) -> dict[str, Any]:
    """What every row of the overlap bench says of one run; seconds are per learner step."""
    span = found.window
    return {
        "staleness_bound": bound,
        "rollouts_per_hour": found.rollouts / span.seconds * 3600.0,
        "generator_idle_share": generator_idle_share,
        "learner_idle_share": idle_share(span.busy_s, span.seconds),
        "tokens_discarded_for_age": found.tokens_discarded_for_age,
        "samples_over_bound": found.samples_over_bound,
        "mean_age": found.mean_age,
        "max_age": found.max_age,
        "length_ratio": found.length_ratio,
        "designer_mean_age": found.designer_mean_age,
        "designer_max_age": found.designer_max_age,
        "tokens_cut_at_deadline": found.tokens_cut,
        "samples_cut_at_deadline": found.samples_cut,
        "trained_tokens": span.tokens,
        "tokens_per_s": span.tokens / span.seconds,
        "seconds": span.seconds,
        "steps": span.steps,
        "step_s": found.step_s,
        "generation_s": generation_s,
        "learn_s": found.learn_s,
    }
