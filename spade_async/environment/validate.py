"""Validation of a draft in the jail (design step 3): from program text to facts or a rejection.

Stages in order: load, reset, step, determinism, termination, reward, hint, then the further checks
of `extra_checks.py`; the first that fails ends it. Each instance is probed in one worker and again
in a fresh one. What the program does wrong is a `Rejection`; a fault of the jail (`SandboxError`)
escapes and is never one. A text that does not parse may be repaired first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from spade_async.config.contract import ContractConfig
from spade_async.environment import contract
from spade_async.environment.extra_checks import Subject, extra_checks
from spade_async.environment.inspector import Rule, inspect
from spade_async.environment.probe import ProbeRun, probe
from spade_async.environment.session import Jail, JailUse
from spade_async.environment.stages import StageResult
from spade_async.environment.text import one_line
from spade_async.seeds import derive
from spade_async.types import Environment, Outcome, Rejection, Reply, Stage

_UNPARSED = re.compile(r"\bin source: (SyntaxError|IndentationError|TabError):")


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """All stages, and either the facts of a valid program or its rejection."""

    source: str
    """The text that was judged: the repaired one, if it was repaired."""
    stages: tuple[StageResult, ...]
    num_turns: int | None
    """Steps until the first probed instance ended; None when it was rejected."""
    jail: JailUse
    repairs: tuple[str, ...] = ()
    """What was done to the text before: "fences", "braces"."""
    shown: ProbeRun | None = None
    """The first probed episode of a valid program."""

    @property
    def rejection(self) -> Rejection | None:
        """Why the draft is not an environment, or None."""
        last = self.stages[-1]
        return None if last.ok else Rejection(last.stage, last.detail, last.outcome)

    def environment(
        self,
        *,
        hint_mode: str,
        hint: str | None,
        leak_share: float,
        labels: dict[str, str],
        origin: str = "designer",
    ) -> Environment:
        """The record of a valid program.

        Raises:
            ValueError: it was rejected.
        """
        if self.rejection is not None:
            raise ValueError(f"rejected at {self.rejection.stage}: there is no environment")
        return Environment(
            environment_id=contract.environment_id(self.source),
            source=self.source,
            hint_mode=hint_mode,
            hint=hint,
            leak_share=leak_share,
            labels=tuple(sorted(labels.items())),
            skeleton=contract.skeleton(self.source),
            origin=origin,
        )


async def validate(
    pool: Jail,
    source: str,
    *,
    seed: int,
    num_seeds: int = 1,
    max_turns: int,
    hint_mode: str = "environment",
    use: JailUse | None = None,
    rules: ContractConfig | None = None,
) -> ValidationReport:
    """Put a draft through all stages; two jailed sessions per probed instance.

    Args:
        pool: the jail.
        source: program text, untrusted.
        seed: root of the instance seeds that are probed.
        num_seeds: how many instances are probed, each with another first action.
        max_turns: turn limit of the run; single-turn (1) must end in one step, others may take
            `contract.TERMINATION_MARGIN` more.
        hint_mode: with "environment" the program's hint() is a stage.
        use: account of what it costs in the jail; a new one when None.
        rules: repair and further checks; None for neither.

    Raises:
        SandboxError: the jail failed; nothing is known about the draft.
    """
    use = use if use is not None else JailUse()
    report = await _validated(pool, source, seed, num_seeds, max_turns, hint_mode, use)
    if rules is not None and rules.repair == "braces":
        repaired = await repaired_source(pool, report, "ours", use)
        if repaired is not None:
            text, repairs = repaired
            report = await _validated(pool, text, seed, num_seeds, max_turns, hint_mode, use)
            report = replace(report, repairs=repairs)
    if rules is None or not rules.checks or report.rejection is not None:
        return report
    subject = Subject(
        pool, report.source, rules, seed, max_turns, single_turn=report.num_turns == 1, use=use
    )
    stages = (*report.stages, *await extra_checks(subject))
    turns = report.num_turns if stages[-1].ok else None
    return replace(report, stages=stages, num_turns=turns)


async def repaired_source(
    pool: Jail, report: ValidationReport, rule: Rule, use: JailUse
) -> tuple[str, tuple[str, ...]] | None:
    """A text that parses in place of one that does not, and what was done to it; or None.

    Nothing is asked of the jail unless the report is of a text that does not parse.

    Raises:
        SandboxError: the jail failed.
    """
    rejection = report.rejection
    if rejection is None or rejection.stage is not Stage.LOAD:
        return None
    if _UNPARSED.search(rejection.reason) is None:
        return None
    found = await inspect(pool, report.source, rule=rule, use=use)
    if found is None or found.repaired is None:
        return None
    if contract.source_problem(found.repaired) is not None:
        return None
    return found.repaired, found.repairs


async def _validated(
    pool: Jail,
    source: str,
    seed: int,
    num_seeds: int,
    max_turns: int,
    hint_mode: str,
    use: JailUse,
) -> ValidationReport:
    problem = contract.source_problem(source)
    if problem is not None:
        return ValidationReport(source, (StageResult(Stage.LOAD, False, problem, 0.0),), None, use)

    async def run(index: int) -> ProbeRun:
        return await probe(
            pool,
            source,
            derive(seed, "validate", index),
            offset=index,
            max_turns=max_turns,
            with_hint=hint_mode == "environment",
            use=use,
        )

    first: list[ProbeRun] = []
    second: list[ProbeRun] = []
    for index in range(num_seeds):
        first.append(await run(index))
        if first[-1].broken:
            break
    if not first[-1].broken:
        second = [await run(index) for index in range(num_seeds)]
    probes = _Probes(source, first, second, max_turns)
    stages: list[StageResult] = []
    for check in _CHECKS:
        result = check(probes)
        if result is None:
            continue
        stages.append(result)
        if not result.ok:
            return ValidationReport(source, tuple(stages), None, use)
    return ValidationReport(source, tuple(stages), len(first[0].steps), use, shown=first[0])


@dataclass(frozen=True, slots=True)
class _Probes:
    source: str
    first: list[ProbeRun]
    second: list[ProbeRun]
    """Same instances in fresh workers; empty when the first worker already showed a fault."""
    max_turns: int

    @property
    def reward_fault(self) -> str | None:
        return self.first[-1].reward_fault


# Each check gives its stage's result, or None when the probes say nothing about that stage.


def _load(p: _Probes) -> StageResult | None:
    replies = [run.load for run in p.first]
    name = contract.class_name(p.source) or "a class that the text does not show"
    return _called(Stage.LOAD, "loading the program", replies, f"defines {name}")


def _reset(p: _Probes) -> StageResult | None:
    replies = [run.reset for run in p.first if run.reset is not None]
    sizes = [len(r.observation) for r in replies]
    detail = f"observation of {sizes[0]} characters"
    result = _called(Stage.RESET, "reset", replies, detail)
    if result.ok and not all(r.observation.strip() for r in replies):
        return StageResult(Stage.RESET, False, "reset gave an empty observation", result.seconds)
    return result


def _step(p: _Probes) -> StageResult | None:
    replies = [r for run in p.first for r in run.steps]
    if p.reward_fault is not None:
        # The call worked, its reward did not: that is another stage.
        replies = replies[:-1]
    actions = p.first[-1].actions
    what = f"step {len(actions)} with {actions[-1]!r}" if actions else "step"
    if not p.first[-1].steps:
        return None
    return _called(Stage.STEP, what, replies, f"{len(replies)} probe action(s) answered")


def _determinism(p: _Probes) -> StageResult | None:
    if not p.second:
        return None
    seconds = sum(r.report.wall_s for run in p.second for r in (run.load, *run.steps))
    for one, two in zip(p.first, p.second, strict=True):
        gap = _difference(one, two)
        if gap is not None:
            return StageResult(Stage.DETERMINISM, False, gap, seconds)
    detail = f"{len(p.first)} instance(s) gave the same in a second worker"
    return StageResult(Stage.DETERMINISM, True, detail, seconds)


def _termination(p: _Probes) -> StageResult | None:
    if not p.second or not p.first[-1].steps:
        return None
    limit = contract.probe_turns(p.max_turns)
    if not all(run.ended for run in p.first):
        detail = f"did not end within {limit} probe action(s); the run allows {p.max_turns} turn(s)"
        return StageResult(Stage.TERMINATION, False, detail, 0.0)
    longest = max(len(run.steps) for run in p.first)
    return StageResult(Stage.TERMINATION, True, f"ended after {longest} probe action(s)", 0.0)


def _reward(p: _Probes) -> StageResult | None:
    if p.reward_fault is not None:
        detail = one_line(f"step {len(p.first[-1].steps)}: {p.reward_fault}", 400)
        return StageResult(Stage.REWARD, False, detail, 0.0, Outcome.BAD_VALUE)
    rewards = [r.reward for run in p.first for r in run.steps if r.reward is not None]
    if not rewards:
        return None
    return StageResult(Stage.REWARD, True, f"from {min(rewards):g} to {max(rewards):g}", 0.0)


def _hint(p: _Probes) -> StageResult | None:
    replies = [run.hint for run in p.first if run.hint is not None]
    if not replies:
        return None
    longest = max(len(r.observation) for r in replies)
    result = _called(Stage.HINT, "hint", replies, f"hint of {longest} characters")
    problems = [contract.hint_problem(r.observation) for r in replies if r.ok]
    problem = next((text for text in problems if text), None)
    if result.ok and problem is not None:
        return StageResult(Stage.HINT, False, problem, result.seconds)
    return result


_CHECKS: tuple[Callable[[_Probes], StageResult | None], ...] = (
    _load,
    _reset,
    _step,
    _determinism,
    _termination,
    _reward,
    _hint,
)


def _called(stage: Stage, what: str, replies: list[Reply], detail: str) -> StageResult:
    """The result of a stage that is a call: its first bad reply decides."""
    seconds = sum(r.report.wall_s for r in replies)
    for reply in replies:
        if not reply.ok:
            cause = one_line(reply.detail, 300) or "no detail"
            reason = f"{what}: {reply.outcome.value}: {cause}"
            return StageResult(stage, False, reason, seconds, reply.outcome)
    return StageResult(stage, True, detail, seconds)


def _difference(one: ProbeRun, two: ProbeRun) -> str | None:
    """What two runs of one instance have different, or None."""
    names = ("outcome", "observation", "reward", "terminated", "truncated")
    facts_one, facts_two = list(one.facts()), list(two.facts())
    for (name, a), (_, b) in zip(facts_one, facts_two, strict=False):
        if a != b:
            fields = ", ".join(n for n, x, y in zip(names, a, b, strict=True) if x != y)
            return f"{name} differs in a second worker of the same seed ({fields})"
    if len(facts_one) != len(facts_two):
        return "a second worker of the same seed took another number of steps"
    return None
