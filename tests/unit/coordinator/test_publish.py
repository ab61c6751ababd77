"""What the coordinator makes of generators whose weights are wrong or old."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.coordinator.process import Coordinator
from spade_async.coordinator.publish import Publisher
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from spade_async.types import PolicyVersion
from tests.support.fake_hub import FakeHub
from tests.support.scripted_run import ScriptedGenerator, ScriptedLearner, hello

CONFIG: dict[str, Any] = {
    "train": {"steps": 6},
    "designer": {"group_size": 4, "groups_per_step": 1},
    "agent": {"seeds_per_environment": 2, "groups_per_step": 6},
    "eval": {"every": 6, "instances_per_level": 2},
    "generator": {"count": 2},
}


class AttestingLearner(ScriptedLearner):
    """Publishes numbers for every version."""

    def __call__(self, message: m.Message) -> list[m.Message]:
        answers = super().__call__(message)
        return [
            dataclasses.replace(a, attestation={"tensors": {"w": a.digest}})
            if isinstance(a, m.StepReport | m.WeightsPublished)
            else a
            for a in answers
        ]


class Doubtful(ScriptedGenerator):
    """Reports wrong weights for one version before it reports right ones."""

    def __init__(self, wrong: int | None = None) -> None:
        super().__init__()
        self.wrong = wrong
        self.seen: list[dict[str, Any]] = []

    def __call__(self, message: m.Message) -> list[m.Message]:
        if isinstance(message, m.Welcome):
            self.seen.append(message.resume["attestation"])
        if isinstance(message, m.WeightsPublished):
            self.seen.append(message.attestation)
            if PolicyVersion.unpack(message.version).step == self.wrong:
                bad = m.WeightsLoaded(
                    version=message.version, digest=message.digest, load_s=0.0, pause_s=0.0,
                    attested=False, reason="1 of 9 tensors differ",
                )  # fmt: skip
                return [bad, m.Credit(tasks=0), *super().__call__(message), m.Credit(tasks=8)]
        return super().__call__(message)


def run(root: Path, *generators: ScriptedGenerator) -> RunFolder:
    root.mkdir()
    folder = RunFolder(root)
    folder.info.write_text(json.dumps({"model_folder": "m"}))
    names = [f"gen-{i}" for i in range(len(generators))]
    hub = FakeHub({"learner": AttestingLearner(), **dict(zip(names, generators, strict=True))}, 0)
    coordinator = Coordinator(Config.model_validate(CONFIG), folder, hub)  # type: ignore[arg-type]
    for name in ("learner", *names):
        hub.say(name, hello(name))
    for name in names:
        hub.say(name, m.Credit(tasks=8))
    asyncio.run(coordinator.run())
    return folder


def alerts(folder: RunFolder) -> list[tuple[str, str]]:
    if not folder.alerts.exists():
        return []
    told = [json.loads(line) for line in folder.alerts.read_text().splitlines()]
    return [(alert["kind"], alert["text"]) for alert in told]


def test_the_learners_numbers_reach_every_generator_with_each_version(tmp_path: Path) -> None:
    generator, other = Doubtful(), Doubtful()
    folder = run(tmp_path / "run", generator, other)
    expected = [{"tensors": {"w": f"d{step}"}} for step in range(7)]
    for seen in (generator.seen, other.seen):
        assert [e for e in expected if e in seen] == seen
    assert alerts(folder) == []


def test_a_generator_whose_weights_are_wrong_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", Doubtful(wrong=2), Doubtful())
    ((kind, text),) = alerts(folder)
    assert kind == "weights_not_attested"
    assert text == ("gen-0 is set aside: weights 0.2 do not attest there: 1 of 9 tensors differ")
    with LedgerReader.open(folder.ledger) as ledger:
        steps = ledger.steps()
        assert [row.step for row in steps] == list(range(1, 7))
        assert steps[-1].metrics["generator/not_attested"] == 1.0


def test_a_generator_that_loads_nothing_any_more_is_named_as_stale() -> None:
    told: list[tuple[str, str]] = []
    core = SimpleNamespace(
        alert=lambda text, *, kind, action="": told.append((kind, text)),
        versions=SimpleNamespace(ordinal=lambda packed: None),
        timings=SimpleNamespace(published=lambda ordinal: None),
        counters=Counter(),
    )
    evaluation = SimpleNamespace(running=None, is_due=lambda step: False)
    hub = FakeHub({"gen-0": lambda _: [], "gen-1": lambda _: []}, 0)
    publisher = Publisher(core, hub, evaluation)  # type: ignore[arg-type]

    def weights(step: int) -> m.WeightsPublished:
        return m.WeightsPublished(version=step, location="w", digest=f"d{step}")

    async def publish(step: int) -> None:
        publisher.announce(weights(step))
        await publisher.pump()

    async def story() -> None:
        publisher.announce(weights(0))
        for name in ("gen-0", "gen-1"):
            publisher.add_generator(name)
            publisher.welcome()
        for step in range(6):
            if step:
                await publish(step)
            for name in ("gen-0", "gen-1") if step < 2 else ("gen-1",):
                loaded = m.WeightsLoaded(version=step, digest=f"d{step}", load_s=0.0, pause_s=0.0)
                publisher.on_loaded(name, loaded)

    asyncio.run(story())
    assert told == [
        ("stale_generator", f"gen-0 is stale: it has weights 0.1, {n} newer sets were sent")
        for n in (3, 4)
    ]


class World:
    """A publisher with an evaluation that is due at every step, and two generators."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.started: list[PolicyVersion] = []
        core = SimpleNamespace(
            alert=lambda text, *, kind, action="": self.told.append(kind),
            versions=SimpleNamespace(ordinal=lambda packed: None),
            timings=SimpleNamespace(published=lambda ordinal: None),
            counters=Counter(),
            ledger=SimpleNamespace(versions=list, evals=list),
        )
        self.evaluation = SimpleNamespace(
            running=None,
            is_due=lambda step: True,
            start=self.started.append,
            give_up=lambda: None,
        )
        self.hub = FakeHub({"gen-0": lambda _: [], "gen-1": lambda _: []}, 0)
        self.publisher = Publisher(core, self.hub, self.evaluation)  # type: ignore[arg-type]

    def announce(self, step: int) -> None:
        location = self.folder / f"w{step}"
        location.touch()
        weights = m.WeightsPublished(version=step, location=str(location), digest=f"d{step}")
        self.publisher.announce(weights)

    def loaded(self, name: str, step: int) -> None:
        message = m.WeightsLoaded(version=step, digest=f"d{step}", load_s=0.0, pause_s=0.0)
        self.publisher.on_loaded(name, message)

    def join(self, name: str) -> int:
        self.publisher.add_generator(name)
        return int(self.publisher.welcome()["version"])  # type: ignore[call-overload]

    def sent(self) -> list[tuple[str, int]]:
        return [(peer, message.version) for peer, message in self.hub.sent]  # type: ignore[attr-defined]


def test_an_evaluation_does_not_wait_for_a_generator_that_is_dead(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.announce(0)
    for name in ("gen-0", "gen-1"):
        world.join(name)
    world.loaded("gen-1", 0)
    assert world.started == []
    world.publisher.lose_generator("gen-0")
    assert world.started == [PolicyVersion(0, 0)]


def test_nothing_is_evaluated_while_no_generator_lives(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.announce(0)
    world.join("gen-0")
    world.publisher.lose_generator("gen-0")
    assert world.started == []
    assert world.join("gen-0") == 0
    world.loaded("gen-0", 0)
    assert world.started == [PolicyVersion(0, 0)]


def test_weights_that_end_an_evaluation_reach_the_other_generators_too(tmp_path: Path) -> None:
    """A generator died under an evaluation, and the weights of that are gone when it is back."""

    async def story() -> None:
        world = World(tmp_path)
        world.announce(0)
        for name in ("gen-0", "gen-1"):
            world.join(name)
        world.loaded("gen-1", 0)
        world.announce(5)
        await world.publisher.pump()
        assert world.sent() == []  # held back: version 0 is due to be evaluated
        world.publisher.lose_generator("gen-0")
        (tmp_path / "w0").unlink()
        world.evaluation.running = object()
        world.evaluation.give_up = lambda: setattr(world.evaluation, "running", None)
        assert world.join("gen-0") == 5
        await world.publisher.pump()
        assert sorted(world.sent()) == [("gen-0", 5), ("gen-1", 5)]
        for name in ("gen-0", "gen-1"):
            world.loaded(name, 5)
        assert world.started[-1] == PolicyVersion(0, 5)
        assert "evaluation_given_up" in world.told

    asyncio.run(story())
