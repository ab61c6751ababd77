"""What the coordinator makes of generators whose weights are wrong or old."""

from __future__ import annotations

import asyncio
import dataclasses
import json
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
