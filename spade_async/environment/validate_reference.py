"""Validation as the reference does it (`run.compat = "reference"`): its checks 1 to 10.

Source: SPADE reference 2.5. One worker: load, reset(42), up to three probe actions, reset(123).
There is no look at determinism, ends, hints or anything of `extra_checks.py`: a game that always
wins, never ends or shows one instance only is accepted. What differs is in docs/compat.md.
"""

from __future__ import annotations

from spade_async.environment import contract
from spade_async.environment.probe import ProbeRun
from spade_async.environment.session import Jail, JailUse, open_session
from spade_async.environment.stages import StageResult
from spade_async.environment.text import one_line
from spade_async.environment.validate import ValidationReport, repaired_source
from spade_async.types import Outcome, Reply, Stage

FIRST_SEED, SECOND_SEED = 42, 123
ACTIONS = (r"\boxed{1}", r"\boxed{test}", r"\boxed{42}")

# What the jail says of a load, and the reference's name for it, in the order in which it checks.
_LOAD_NAMES = (
    ("in source: SyntaxError", "syntax error"),
    ("in source: IndentationError", "syntax error"),
    ("in source: TabError", "syntax error"),
    ("no class whose name ends in Env", "no valid class"),
    ("in constructor", "instantiation error"),
    ("", "execution error"),
)


async def validate_as_the_reference(pool: Jail, source: str, *, use: JailUse) -> ValidationReport:
    """Put a draft through the reference's checks, brace repair by its rule first.

    Raises:
        SandboxError: the jail failed.
    """
    report = await _checked(pool, source, use)
    repaired = await repaired_source(pool, report, "reference", use)
    if repaired is None:
        return report
    text, repairs = repaired
    again = await _checked(pool, text, use)
    return ValidationReport(again.source, again.stages, again.num_turns, use, repairs, again.shown)


async def _checked(pool: Jail, source: str, use: JailUse) -> ValidationReport:
    stages: list[StageResult] = []

    def report(shown: ProbeRun | None = None) -> ValidationReport:
        turns = len(shown.steps) if shown is not None else None
        return ValidationReport(source, tuple(stages), turns, use, shown=shown)

    problem = contract.source_problem(source)
    if problem is not None:
        name = "no game code: " if not source.strip() else ""
        stages.append(StageResult(Stage.LOAD, False, f"{name}{problem}", 0.0))
        return report()
    async with open_session(pool, source, FIRST_SEED, use) as session:
        loaded = session.loaded
        names = (name for mark, name in _LOAD_NAMES if mark in loaded.detail)
        stages.append(_named(Stage.LOAD, next(names), loaded))
        if not loaded.ok:
            return report()
        run = ProbeRun(loaded)
        run.reset = await session.reset()
        stages.append(_named(Stage.RESET, "reset failed", run.reset))
        if run.reset.ok and not run.reset.observation:
            stages[-1] = StageResult(Stage.RESET, False, "reset failed: empty observation", 0.0)
        if not stages[-1].ok:
            return report()
        for number, action in enumerate(ACTIONS):
            run.actions.append(action)
            run.steps.append(await session.step(action))
            last = run.steps[-1]
            stages.append(_named(Stage.STEP, f"step failed on action {number}", last))
            if last.ok and (fault := contract.reward_problem(last.reward)) is not None:
                detail = f"step failed on action {number}: {fault}"
                stages[-1] = StageResult(Stage.REWARD, False, detail, 0.0, Outcome.BAD_VALUE)
            if not stages[-1].ok:
                return report()
            if run.ended:
                break
        again = await session.reset(SECOND_SEED)
        stages.append(_named(Stage.RESET, "second reset failed", again))
        return report(run) if stages[-1].ok else report()


def _named(stage: Stage, name: str, reply: Reply) -> StageResult:
    if reply.ok:
        return StageResult(stage, True, "as the reference demands", reply.report.wall_s)
    cause = one_line(reply.detail, 300) or "no detail"
    if f"no attribute '{stage}'" in cause:
        name = "missing method"
    detail = f"{name}: {reply.outcome.value}: {cause}"
    return StageResult(stage, False, detail, reply.report.wall_s, reply.outcome)
