"""Who is cut and when: the clock by itself, then in a run of scripted parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade_async.coordinator.core import CUT
from spade_async.coordinator.dispatch import PLAY, Dispatcher, Task
from spade_async.coordinator.schedule import Schedule, Wait, WaitReason
from spade_async.coordinator.stragglers import Stragglers
from spade_async.transport import messages as m
from spade_async.types import Role
from tests.support.probe_world import FaultyGenerator, ProbeRun

LIMIT_S = 100.0


class Sent:
    """A hub that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[m.Message] = []

    async def send(self, peer: str, message: m.Message) -> None:
        self.sent.append(message)


def play(task_id: str, group: str, *, arm: str = "no_hint", purpose: str = "train") -> Task:
    message = m.PlayTask(
        task_id=task_id,
        group_id=group,
        environment_id="e",
        source="",
        hint=None,
        hint_mode="none",
        arm=arm,
        seeds=[1, 2],
        min_version=3,
        max_turns=1,
        max_new_tokens=5,
        temperature=1.0,
        purpose=purpose,
        seed=1,
    )
    return Task(message=message, waiting_for={0, 1})


class World:
    """A dispatcher with tasks at one generator, and a clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tasks: list[Task], credit: int = 9) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr("spade_async.coordinator.dispatch.time.monotonic", lambda: self.now_s)
        self.loaded = 3
        self.hub = Sent()
        self.dispatcher = Dispatcher(self.hub)  # type: ignore[arg-type]
        self.stragglers = Stragglers(self.dispatcher, LIMIT_S, lambda peer, v: self.loaded >= v)
        for task in tasks:
            self.dispatcher.submit(task, kind=PLAY, number=0)
        if credit:
            self.dispatcher.set_credit("gen-0", credit)
        asyncio.run(self.dispatcher.pump())

    def waits(self, *blockers: tuple[str, Role]) -> tuple[str, list[str]]:
        name, tasks = self.stragglers.waits_for(list(blockers), self.now_s)
        return name, [t.task_id for t in tasks]


A, B = ("m-1", Role.AGENT), ("m-2", Role.AGENT)


def test_a_group_is_cut_once_nothing_came_of_it_for_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [play("a", "m-1"), play("b", "m-2")])
    world.now_s += 10 * LIMIT_S
    assert world.waits(A) == ("", []), "the learner's wait begins here"
    world.now_s += LIMIT_S
    assert world.waits(A) == ("", [])
    world.now_s += 1.0
    assert world.waits(A) == ("m-1", ["a"])


def test_a_result_of_any_group_that_is_waited_for_starts_the_clock_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [play("a", "m-1"), play("b", "m-2"), play("c", "m-3")])
    world.waits(A, B)
    world.now_s += 0.9 * LIMIT_S
    world.dispatcher.result("b", 0)
    world.now_s += 0.9 * LIMIT_S
    world.dispatcher.result("c", 0)
    assert world.waits(A, B) == ("", [])
    world.now_s += 0.2 * LIMIT_S
    assert world.waits(A, B) == ("m-1", ["a"]), "m-3 is not waited for"
    asyncio.run(world.dispatcher.cut(world.dispatcher.running["a"]))
    assert world.waits(B) == ("", [])
    world.now_s += 0.1 * LIMIT_S
    assert world.waits(B) == ("m-2", ["b"]), "the silence goes on: soon the next"


def test_nothing_is_cut_while_the_learner_has_work(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [play("a", "m-1")])
    for _ in range(50):
        world.waits(A)
        world.now_s += 0.5 * LIMIT_S
        world.stragglers.waits_not()
    assert world.waits(A) == ("", [])


@pytest.mark.parametrize("held_by", ["no generator", "weights"])
def test_what_something_else_holds_back_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, held_by: str
) -> None:
    world = World(monkeypatch, [play("a", "m-1")], credit=0 if held_by == "no generator" else 9)
    if held_by == "weights":
        world.loaded = 2
    for _ in range(10):
        assert world.waits(A) == ("", [])
        world.now_s += LIMIT_S
    world.loaded = 3
    world.dispatcher.set_credit("gen-0", 9)
    asyncio.run(world.dispatcher.pump())
    assert world.waits(A) == ("", []), "its time begins when it is free to go"
    world.now_s += 1.1 * LIMIT_S
    assert world.waits(A) == ("m-1", ["a"])


def test_of_a_designer_group_both_arms_are_cut_of_an_agent_group_the_trained_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = [play("a", "d-1.0.play"), play("b", "d-1.0.play", arm="with_hint")]
    world = World(monkeypatch, tasks)
    for group, cut in ((("d-1.0.play", Role.AGENT), ["a"]), (("d-1", Role.DESIGNER), ["a", "b"])):
        world.stragglers.waits_not()
        world.waits(group)
        world.now_s += 1.1 * LIMIT_S
        assert world.waits(group) == (group[0], cut)


def test_an_evaluation_that_falls_silent_is_cut_whatever_the_learner_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [play("e", "evaluation", purpose="eval"), play("a", "m-1")])
    assert world.stragglers.evaluation(world.now_s) == []
    world.now_s += 0.9 * LIMIT_S
    world.dispatcher.result("e", 0)
    world.now_s += 0.9 * LIMIT_S
    assert world.stragglers.evaluation(world.now_s) == []
    world.now_s += 0.2 * LIMIT_S
    assert [t.task_id for t in world.stragglers.evaluation(world.now_s)] == ["e"]


def test_a_cut_task_holds_its_credit_until_its_generator_has_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [play("a", "m-1"), play("b", "m-2")], credit=1)
    dispatcher = world.dispatcher
    asyncio.run(dispatcher.cut(dispatcher.running["a"]))
    asyncio.run(dispatcher.pump())
    assert [m_.task_id for m_ in world.hub.sent] == ["a", "a"]  # type: ignore[attr-defined]
    assert dispatcher.result("a", 0) is None, "nobody waits for it any more"
    dispatcher.ended("a")
    dispatcher.ended("a")
    asyncio.run(dispatcher.pump())
    assert list(dispatcher.running) == ["b"]
    assert dispatcher.num_sequences == 2


def test_the_schedule_names_all_that_can_end_a_wait() -> None:
    schedule = Schedule(
        agent_bound=0,
        designer_bound=1,
        agent_quota=2,
        designer_quota=1,
        group_size=2,
        pool_share=0.0,
    )
    schedule.pool_has_work = False
    schedule.weights_loaded(0)
    schedule.admit_design("d")
    schedule.start_play("d", "slow")
    schedule.start_play("d", "fast")
    wait = schedule.take()
    assert isinstance(wait, Wait)
    assert wait.reason is WaitReason.DEADLINE
    assert schedule.blockers(wait) == [("slow", Role.AGENT), ("fast", Role.AGENT)]
    schedule.ready("fast")
    wait = schedule.take()
    assert isinstance(wait, Wait)
    assert schedule.blockers(wait) == [("slow", Role.AGENT)]
    assert schedule.blockers(Wait(WaitReason.TRAINING)) == []
    found = schedule.blockers(Wait(WaitReason.NOTHING_READY))
    assert found == [("d", Role.DESIGNER), ("slow", Role.AGENT)]


class Hanging(FaultyGenerator):
    """Keeps one episode of some play tasks to itself; ends them when told, with 7 tokens each."""

    def __init__(self, wanted: Callable[[m.EpisodeResult], bool]) -> None:
        super().__init__(self._keep, missing=0.0)
        self._wanted = wanted
        self.kept: list[m.EpisodeResult] = []
        self.cancelled: list[str] = []

    def _keep(self, answer: m.Message) -> list[m.Message]:
        if isinstance(answer, m.EpisodeResult) and self._wanted(answer):
            self.kept.append(answer)
            return []
        return [answer]

    def __call__(self, message: m.Message) -> list[m.Message]:
        if isinstance(message, m.CancelTask):
            self.cancelled.append(message.task_id)
            return [m.TaskCut(task_id=message.task_id, tokens=7)]
        return super().__call__(message)


def test_of_a_group_with_a_cut_straggler_the_finished_members_are_trained(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", **{"async": {"staleness": 2}})
    hangs: dict[str, Any] = {}

    def first(answer: m.EpisodeResult) -> bool:
        if answer.purpose == "train" and answer.index == 2 and not hangs:
            hangs["task"], hangs["group"] = answer.task_id, answer.group_id
        return answer.task_id == hangs.get("task") and answer.index == 2

    generator = Hanging(first)
    run.go(generator, limit_s=60.0)
    counters = run.check()
    assert generator.cancelled == [hangs["task"]]
    assert counters["tasks_cut"] == 1
    assert counters["tokens_cut_at_deadline"] == 7
    trained = [s for b in run.batches for s in b.sample_ids if s.startswith(hangs["task"])]
    assert sorted(trained) == [f"{hangs['task']}.{i}" for i in (0, 1, 3)]
    rows = dict(run.query("SELECT sample_id, missing_reason FROM samples"))
    assert rows[f"{hangs['task']}.2"] == CUT


def test_after_a_resume_what_was_cut_is_not_asked_for_again(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", **{"async": {"staleness": 1}})
    generator = Hanging(lambda answer: answer.purpose == "train" and answer.seed % 40 == 0)
    run.go(
        generator,
        dies_when=lambda c: c.core.counters["tasks_cut"] >= 2 and c.core.step >= 2,
        limit_s=60.0,
    )
    cut = set(generator.cancelled)
    assert len(cut) >= 2
    again = Hanging(lambda answer: False)
    run.go(again, limit_s=60.0)
    run.check()
    assert not cut & set(again.asked)
    steps = [batch.step for batch in run.batches]
    assert steps[-1] == 6


def test_tokens_of_a_result_that_comes_after_the_cut_are_counted(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", **{"async": {"staleness": 1}})

    class Late(Hanging):
        def __call__(self, message: m.Message) -> list[m.Message]:
            answers = super().__call__(message)
            if isinstance(message, m.CancelTask):
                answers += [k for k in self.kept if k.task_id == message.task_id]
            return answers

    hangs: list[str] = []

    def first(answer: m.EpisodeResult) -> bool:
        if answer.purpose == "train" and answer.arm == "no_hint" and not hangs:
            hangs.append(answer.task_id)
        return answer.task_id in hangs

    run.go(Late(first), limit_s=60.0)
    counters = run.check()
    # Four episodes of three tokens, and the seven that the generator counted itself.
    assert counters["tokens_cut_at_deadline"] == 4 * 3 + 7
    assert not np.isin(hangs[0], [s for b in run.batches for s in b.sample_ids])
