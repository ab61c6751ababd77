"""Tokens and rollouts per hour, from rates that are given or were measured in a run.

Work of a step in tokens, from the configuration's quotas and mean lengths; speeds in tokens per
second. Generators and learner work at the same time, so the slower side sets the pace; with both
bounds 0 they take turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import LedgerError
from spade_async.ledger import LedgerReader
from spade_async.simulate.durations import LogNormal
from spade_async.simulate.startup import SIGMA, VALIDITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What is known of speeds and lengths; None where nothing is."""

    generator_tokens_per_s: float | None = None
    """Sampled by one generator, over all its slots."""
    learner_tokens_per_s: float | None = None
    """Trained tokens, over all ranks."""
    design_tokens: float | None = None
    """Mean length of a design."""
    episode_tokens: float | None = None
    """Mean length of an episode, sampled tokens of all turns."""
    source: str = "given"

    def over(self, other: Rates) -> Rates:
        """These, with what they lack from another."""
        mine = {k: getattr(self, k) for k in self.__dataclass_fields__}
        named = {k: getattr(other, k) if mine[k] is None else mine[k] for k in mine}
        known = {k: v for k, v in mine.items() if v is not None and k != "source"}
        named["source"] = self.source if len(known) else other.source
        if known and other.source != "given":
            named["source"] = f"{self.source}, the rest {other.source}"
        return Rates(**named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One learner step."""

    designs: int
    episodes: int
    """Of both arms."""
    trained_episodes: int
    design_tokens: float
    episode_tokens: float
    lengths: str
    """Where the two lengths come from."""

    @property
    def sampled_tokens(self) -> float:
        """Tokens that generators sample."""
        return self.designs * self.design_tokens + self.episodes * self.episode_tokens

    @property
    def trained_tokens(self) -> float:
        """Tokens that the learner trains."""
        trained = self.trained_episodes * self.episode_tokens
        return self.designs * self.design_tokens + trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Hourly:
    """What an hour gives."""

    step_s: float
    steps: float
    sampled_tokens: float
    trained_tokens: float
    episodes: float
    designs: float
    slower: str
    """ "generators" or "learner"; "both, in turn" when nothing may be old."""


def work_of(config: Config, rates: Rates) -> Work:
    """The work of one step; lengths that nobody says are those of `simulate.startup`."""
    designer, agent = config.designer, config.agent
    designs = designer.groups_per_step * designer.group_size
    pool = round(agent.groups_per_step * agent.pool_share)
    designed = min(designs * VALIDITY, float(agent.groups_per_step - pool))
    plain = agent.groups_per_step * agent.seeds_per_environment
    own = config.run.compat == "reference"
    per_design = config.regret.reference_hinted_plays if own else agent.seeds_per_environment
    hinted = round(designed * per_design)
    context = config.model.max_context_tokens
    turns = agent.max_turns * agent.max_new_tokens_per_turn
    said = [rates.design_tokens is not None, rates.episode_tokens is not None]
    return Work(
        designs=designs,
        episodes=plain + hinted,
        trained_episodes=plain,
        design_tokens=rates.design_tokens or _mean_length(designer.max_new_tokens),
        episode_tokens=rates.episode_tokens or _mean_length(min(turns, context)),
        lengths="given" if all(said) else "half the limit, log-normal, where none is given",
    )


def hourly(config: Config, work: Work, rates: Rates) -> Hourly | None:
    """What an hour gives; None while a speed is unknown."""
    generator, learner = rates.generator_tokens_per_s, rates.learner_tokens_per_s
    if not generator or not learner:
        return None
    sampling_s = work.sampled_tokens / (generator * config.generator.count)
    learning_s = work.trained_tokens / learner
    if config.async_.bounds == (0, 0):
        step_s, slower = sampling_s + learning_s, "both, in turn"
    else:
        step_s = max(sampling_s, learning_s)
        slower = "generators" if sampling_s >= learning_s else "learner"
    steps = 3600.0 / step_s
    return Hourly(
        step_s=step_s,
        steps=steps,
        sampled_tokens=steps * work.sampled_tokens,
        trained_tokens=steps * work.trained_tokens,
        episodes=steps * work.episodes,
        designs=steps * work.designs,
        slower=slower,
    )


def measured(run_dir: Path) -> Rates:
    """Speeds and lengths of a run, from the times in its ledger.

    Raises:
        LedgerError: no ledger, or nothing in it that was timed.
    """
    with LedgerReader.open(RunFolder(run_dir).ledger) as ledger:
        tasks, steps = ledger.task_times(), ledger.step_times()
    # Only between the first task and the last result: an earlier start's pause is no sampling.
    busy = [step for step in steps if step.busy_s]
    if not tasks or not busy:
        raise LedgerError(f"{run_dir}: its ledger has no timed step yet; name a run that trained")
    span_s = max(t.finished_unix_s for t in tasks) - min(t.started_unix_s for t in tasks)
    generators = len({task.generator for task in tasks})
    designs = [task.num_tokens for task in tasks if task.kind == "design"]
    episodes = [task.num_tokens for task in tasks if task.kind != "design"]
    if span_s <= 0 or not episodes:
        raise LedgerError(f"{run_dir}: its ledger has no episode that took time")
    sampled = sum(task.num_tokens for task in tasks)
    return Rates(
        generator_tokens_per_s=sampled / span_s / generators,
        learner_tokens_per_s=sum(s.num_tokens for s in busy) / sum(s.busy_s or 0.0 for s in busy),
        design_tokens=sum(designs) / len(designs) if designs else None,
        episode_tokens=sum(episodes) / len(episodes),
        source=f"measured in {run_dir}",
    )


def _mean_length(limit: int) -> float:
    return LogNormal(max(limit / 2.0, 0.5), SIGMA, float(limit)).mean
