"""Validation on scripted replies: stages, their order, and whose fault it is."""

from __future__ import annotations

import asyncio

import pytest

from spade_async.environment.session import JailUse, open_session
from spade_async.environment.validate import ValidationReport, validate
from spade_async.errors import SandboxError
from spade_async.types import Outcome, Stage
from tests.support.fake_jail import FakeJail, Script, bad, value

SOURCE = "class AEnv: pass"


def run(jail: FakeJail, *, max_turns: int = 4, num_seeds: int = 1, hint: str = "environment"):
    work = validate(jail, SOURCE, seed=5, num_seeds=num_seeds, max_turns=max_turns, hint_mode=hint)
    return asyncio.run(work)


def stages(report: ValidationReport) -> list[tuple[str, bool]]:
    return [(s.stage.value, s.ok) for s in report.stages]


def test_a_good_program_costs_two_sessions() -> None:
    jail = FakeJail()
    report = run(jail)
    assert report.rejection is None
    assert report.num_turns == 1
    assert len(jail.opened) == 2
    # load, reset, hint and one step, in each of two workers.
    assert report.jail.calls == 8
    assert report.jail.wall_s == pytest.approx(0.08)
    assert jail.live == 0


def test_both_workers_get_the_same_instance_and_the_same_actions() -> None:
    jail = FakeJail()
    run(jail, num_seeds=2)
    first, second, again, again2 = jail.opened
    assert (first.seed, first.calls) == (again.seed, again.calls)
    assert (second.seed, second.calls) == (again2.seed, again2.calls)
    assert first.seed != second.seed
    assert first.calls != second.calls


def test_a_program_that_cannot_be_loaded_costs_one_session() -> None:
    jail = FakeJail(Script(load=bad(Outcome.EXCEPTION, "SyntaxError: line 1")))
    report = run(jail)
    assert stages(report) == [("load", False)]
    assert report.rejection is not None
    assert report.rejection.outcome is Outcome.EXCEPTION
    assert "SyntaxError" in report.rejection.reason
    assert len(jail.opened) == 1


def test_an_empty_program_costs_none() -> None:
    jail = FakeJail()
    report = asyncio.run(validate(jail, "  ", seed=1, max_turns=1))
    assert stages(report) == [("load", False)]
    assert jail.opened == []


@pytest.mark.parametrize(
    ("script", "stage"),
    [
        (Script(reset=bad(Outcome.TIMED_OUT)), Stage.RESET),
        (Script(reset=value(" ")), Stage.RESET),
        (Script(step=[bad(Outcome.CRASHED)]), Stage.STEP),
        (Script(step=[value("more", 0.0)]), Stage.TERMINATION),
        (Script(step=[bad(Outcome.BAD_VALUE, "in step: reward is nan")]), Stage.REWARD),
        (Script(step=[value("done", 11.0, end=True)]), Stage.REWARD),
        (Script(hint=bad(Outcome.EXCEPTION)), Stage.HINT),
        (Script(hint=bad(Outcome.TIMED_OUT)), Stage.HINT),
        (Script(hint=value("")), Stage.HINT),
        (Script(hint=value("x" * 2000)), Stage.HINT),
    ],
)
def test_each_fault_is_rejected_at_its_stage(script: Script, stage: Stage) -> None:
    rejection = run(FakeJail(script)).rejection
    assert rejection is not None
    assert rejection.stage is stage


@pytest.mark.parametrize(
    "other",
    [
        Script(reset=value("what is 2 + 2?")),
        Script(hint=value("another")),
        Script(step=[value("done", 1.0, end=True)]),
        Script(step=[value("more", 0.0), value("done", 0.0, end=True)]),
        Script(step=[bad(Outcome.EXCEPTION)]),
        Script(load=bad(Outcome.EXCEPTION)),
    ],
)
def test_a_second_worker_that_differs_is_a_lack_of_determinism(other: Script) -> None:
    jail = FakeJail(lambda number, seed: other if number == 1 else Script())
    rejection = run(jail).rejection
    assert rejection is not None
    assert rejection.stage is Stage.DETERMINISM


def test_what_varies_between_instances_is_no_lack_of_determinism() -> None:
    jail = FakeJail(lambda number, seed: Script(reset=value(f"instance {seed}")))
    assert run(jail, num_seeds=3).rejection is None


def test_a_multi_turn_program_may_take_the_margin_but_a_single_turn_one_may_not() -> None:
    def late(number: int, seed: int) -> Script:
        return Script(step=[*[value("more", 0.0)] * 5, value("done", 0.0, end=True)])

    assert run(FakeJail(late), max_turns=4).rejection is None
    rejection = run(FakeJail(late), max_turns=1).rejection
    assert rejection is not None
    assert rejection.stage is Stage.TERMINATION


def test_the_hint_is_a_stage_only_when_the_program_gives_it() -> None:
    jail = FakeJail(Script(hint=bad(Outcome.EXCEPTION)))
    assert run(jail, hint="self").rejection is None
    assert all("hint" not in session.calls for session in jail.opened)


def test_a_fault_of_the_jail_is_never_a_rejection() -> None:
    jail = FakeJail()
    jail.fault = SandboxError("the broker is dead")
    with pytest.raises(SandboxError, match="broker"):
        run(jail)


def test_a_busy_pool_is_waited_for() -> None:
    jail = FakeJail()
    jail.busy = 2
    report = run(jail)
    assert report.rejection is None
    assert report.jail.busy == 2
    assert jail.attempts == 4


def test_a_session_is_given_back_when_the_task_is_cancelled() -> None:
    jail = FakeJail()

    async def hold() -> None:
        async with open_session(jail, SOURCE, 1, JailUse()):
            await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.create_task(hold())
        await asyncio.sleep(0)
        assert jail.live == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancelled())
    assert jail.live == 0


def test_accounts_add_up() -> None:
    one, two = JailUse(), JailUse()
    one.add(value())
    two.add(value())
    two.add(bad(Outcome.CRASHED))
    one.merge(two)
    assert one.calls == 3
    assert one.outcomes == {"finished": 2, "crashed": 1}
    assert one.as_message()["wall_s"] == pytest.approx(0.03)


def test_the_record_of_a_valid_program_has_sorted_labels_and_its_skeleton() -> None:
    environment = run(FakeJail()).environment(
        hint_mode="self", hint="h", leak_share=0.5, labels={"level": "2", "family": "sum"}
    )
    assert environment.labels == (("family", "sum"), ("level", "2"))
    assert environment.leak_share == 0.5
    assert len(environment.skeleton) == len(environment.environment_id) == 16


def test_a_rejected_program_has_no_record() -> None:
    report = run(FakeJail(Script(load=bad(Outcome.EXCEPTION))))
    with pytest.raises(ValueError, match="rejected at load"):
        report.environment(hint_mode="none", hint=None, leak_share=0.0, labels={})
