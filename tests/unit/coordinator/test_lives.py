"""Parts that die at any delivery and come back, under a coordinator that goes on."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spade_async.config.schema import Config
from spade_async.coordinator.news import News, listen
from spade_async.coordinator.process import Coordinator
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from spade_async.types import PolicyVersion
from tests.support.fake_hub import FakeHub
from tests.support.scripted_run import ScriptedGenerator, ScriptedLearner, hello
from tests.unit.coordinator.test_loop import Run, check_invariants, small

CREDIT = m.Credit(tasks=16)


class Generator(ScriptedGenerator):
    """As the real one: credit once it has weights, and tasks wait for the version they need."""

    def __init__(self) -> None:
        super().__init__()
        self.is_welcome = False
        self.held: list[m.DesignTask | m.PlayTask] = []

    def __call__(self, message: m.Message) -> list[m.Message]:
        self.is_welcome |= isinstance(message, m.Welcome)
        if not self.is_welcome:
            return []
        if isinstance(message, m.DesignTask | m.PlayTask) and message.min_version > self.version:
            self.held.append(message)
            return []
        answers = super().__call__(message)
        if isinstance(message, m.Welcome):
            return [*answers, CREDIT]
        if isinstance(message, m.WeightsPublished):
            held, self.held = self.held, []
            for task in held:
                answers += self(task)
        return answers


class Learner(ScriptedLearner):
    """Its checkpoints are on disk before it reports them."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.is_welcome = False

    def __call__(self, message: m.Message) -> list[m.Message]:
        self.is_welcome |= isinstance(message, m.Welcome)
        if not self.is_welcome:
            # Sent to the one before: the link does not deliver it to another incarnation.
            return []
        if isinstance(message, m.TrainingBatch) and message.checkpoint:
            name = f"c-{message.branch}-{message.step}"
            (self.run.folder.checkpoints / name).mkdir(parents=True, exist_ok=True)
        answers = super().__call__(message)
        self.run.batches += [self.trained.pop()] if self.trained else []
        return answers


class DeadlyHub(FakeHub):
    """Kills a random part about every so many deliveries; some deaths are not told first."""

    def __init__(self, run: Run, seed: int, every: int, count: int) -> None:
        names = ["gen-0", "gen-1", "learner"]
        super().__init__({name: self._part(name, run) for name in names}, seed)
        self._run, self._every, self._left = run, every, count
        self._draw = random.Random(seed)
        self.coordinator: Coordinator | None = None
        self.deaths: Counter[str] = Counter()

    @staticmethod
    def _part(name: str, run: Run) -> Generator | Learner:
        return Learner(run) if name == "learner" else Generator()

    def _take(self):  # type: ignore[no-untyped-def]
        received = super()._take()
        if self._left and self._draw.random() < 1 / self._every:
            self._left -= 1
            name = self._draw.choice(list(self._peers))
            self.deaths[name] += 1
            self.kill(name, self._part(name, self._run))
            assert self.coordinator is not None
            if self._draw.random() < 0.7:
                self.coordinator.lives.news.append(News(name, f"{name} was killed by SIGKILL", 0.5))
            self.say(name, hello(name))
            if received.peer == name:
                # What was delivered before the death is in the inbox already.
                return received
        return received


async def until(what: Callable[[], bool]) -> None:
    while not what():  # noqa: ASYNC110 (scripted peers have no events)
        await asyncio.sleep(0)


def go(run: Run, seed: int, *, every: int = 60, count: int = 12) -> DeadlyHub:
    hub = DeadlyHub(run, seed, every, count)
    hub.coordinator = Coordinator(run.config, run.folder, hub)  # type: ignore[arg-type]
    for name in ("learner", "gen-0", "gen-1"):
        hub.say(name, hello(name))
    asyncio.run(asyncio.wait_for(hub.coordinator.run(), 60.0))
    return hub


def config(every: int, **more: dict[str, int]) -> Config:
    return small(checkpoint={"every": every}, generator={"count": 2}, **more)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("every", [1, 4])
def test_parts_that_die_at_any_delivery_cost_nothing_and_nothing_is_trained_twice(
    tmp_path: Path, seed: int, every: int
) -> None:
    run = Run(tmp_path / "run", config(every))
    hub = go(run, seed)
    assert sum(hub.deaths.values()) > 3
    check_invariants(run)
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert [row.step for row in ledger.steps()] == list(range(1, 13))
        rows = ledger.versions()
        assert len({row.version for row in rows}) == len(rows)
        counters = ledger.get_state("counters")
        if every == 1:
            assert not counters.get("lost_to_rollback", 0)
        # A learner that had begun comes back on a branch of its own each time.
        branches = {row.version.branch for row in rows}
        assert branches == set(range(len(branches)))
    events = EventAccumulator(str(run.folder.tensorboard), size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        axis = [event.step for event in events.Scalars(tag)]
        assert axis == sorted(set(axis)), tag
    assert [event.step for event in events.Scalars("learner/loss")] == list(range(1, 13))
    agent, _ = run.config.async_.bounds
    assert all(batch.staleness_max <= 2 * agent for batch in run.batches)


def test_learner_that_falls_back_repeats_its_steps_in_the_same_composition(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", config(5, train={"steps": 9}, **{"async": {"staleness": 12}}))
    hub = DeadlyHub(run, 1, every=1, count=0)
    coordinator = hub.coordinator = Coordinator(run.config, run.folder, hub)  # type: ignore[arg-type]
    for name in ("learner", "gen-0", "gen-1"):
        hub.say(name, hello(name))
    original = coordinator._finish_step
    died = False

    def finish(report: m.StepReport) -> None:
        nonlocal died
        original(report)
        if report.step == 8 and not died:
            died = True
            hub.kill("learner", Learner(run))
            coordinator.lives.news.append(News("learner", "learner was killed by SIGKILL", 0.5))
            hub.say("learner", hello("learner"))

    coordinator._finish_step = finish  # type: ignore[method-assign]
    asyncio.run(asyncio.wait_for(coordinator.run(), 60.0))
    check_invariants(run)
    steps = [(batch.branch, batch.step) for batch in run.batches]
    first = [(0, n) for n in range(1, 9)]
    assert steps == first + [(1, n) for n in range(6, 10)]
    composed = {}
    for batch in run.batches:
        composed.setdefault(batch.step, []).append(batch.sample_ids)
    for step in (6, 7, 8):
        assert composed[step][0] == composed[step][1]
    with LedgerReader.open(run.folder.ledger) as ledger:
        abandoned = [row.version for row in ledger.versions() if row.is_abandoned]
        assert abandoned == [PolicyVersion(0, n) for n in (6, 7, 8)]
        assert any("SIGKILL; started again" in row.text for row in ledger.alerts())


def test_stop_does_not_wait_for_a_step_that_died_with_its_learner(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", config(1))
    hub = DeadlyHub(run, 3, every=1, count=0)
    coordinator = hub.coordinator = Coordinator(run.config, run.folder, hub)  # type: ignore[arg-type]
    for name in ("learner", "gen-0", "gen-1"):
        hub.say(name, hello(name))

    async def scene() -> None:
        going = asyncio.create_task(coordinator.run())
        await until(lambda: any(batch.step == 3 for batch in run.batches))
        hub.kill("learner", lambda message: [])
        coordinator.lives.news.append(News("learner", "learner ended with exit code 1", None))
        coordinator.request_stop()
        await asyncio.wait_for(going, 20.0)

    asyncio.run(scene())
    check_invariants(run)
    go(run, 5, count=0)
    check_invariants(run)


def test_news_are_read_line_by_line_from_a_pipe() -> None:
    reader, writer = os.pipe()
    told: list[News] = []
    sent = [News("gen-0", "gen-0 left", 0.5), News("learner", 'a "quoted" line', None)]

    async def scene() -> None:
        listen(told.append, reader)
        data = sent[0].line() + b"nonsense\n" + sent[1].line()
        for byte in range(len(data)):
            os.write(writer, data[byte : byte + 1])
            if byte % 7 == 0:
                await asyncio.sleep(0)
        os.close(writer)
        await until(lambda: len(told) == 2)

    asyncio.run(asyncio.wait_for(scene(), 10.0))
    os.close(reader)
    assert told == sent
