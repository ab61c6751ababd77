"""Design and play tasks on scripted engine and jail: results, reasons, order, versions."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from spade_async.agent.episode import Player
from spade_async.config.schema import Config
from spade_async.designer import games
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import ProcessFailure, SandboxError
from spade_async.generator import health
from spade_async.generator.context import GeneratorContext, VersionGate
from spade_async.generator.design_task import run_design
from spade_async.generator.heartbeat import Vitals
from spade_async.generator.play_task import run_play
from spade_async.seeds import derive
from spade_async.transport.messages import DesignResult, EpisodeResult, PlayTask
from spade_async.types import Outcome, PolicyVersion
from tests.support.design_task import DESIGN
from tests.support.fake_jail import FakeJail, Script, bad, value
from tests.support.fake_tokens import STOP, FakeTokens, ids

PROGRAM = "```python\nclass AEnv:\n    pass\n```"
PLAY = PlayTask(
    task_id="p-1",
    group_id="g",
    environment_id="e",
    source="class AEnv: pass",
    hint=None,
    hint_mode="environment",
    arm="no_hint",
    seeds=[3, 4, 5],
    min_version=0,
    max_turns=2,
    max_new_tokens=10,
    temperature=1.0,
    purpose="train",
    seed=6,
)


def config(**designer: Any) -> Config:
    return Config.model_validate(
        {"model": {"max_context_tokens": 20_000}, "designer": {"max_new_tokens": 100, **designer}}
    )


async def context(
    replies: Any, jail: FakeJail | None = None, settings: Config | None = None
) -> GeneratorContext:
    engine = replies if isinstance(replies, ScriptedEngine) else ScriptedEngine(replies)
    pool = jail if jail is not None else FakeJail()
    made = GeneratorContext(settings or config(), Player(engine, FakeTokens(), pool, games))
    await made.gate.open(0)
    return made


def design(
    replies: Any, jail: FakeJail | None = None, settings: Config | None = None
) -> DesignResult:
    async def run() -> DesignResult:
        return await run_design(await context(replies, jail, settings), DESIGN)

    return asyncio.run(run())


def said(text: str) -> list[int]:
    return [*ids(text), STOP]


def test_a_valid_design_has_source_trace_and_leak_share() -> None:
    result = design([said(PROGRAM)])
    assert result.rejection is None
    assert result.missing_reason is None
    assert result.source == "class AEnv:\n    pass\n"
    assert result.leak_share == 0.0
    assert result.loss_mask.sum() == len(PROGRAM) + 1
    assert result.jail["outcomes"] == {"finished": result.jail["calls"]}


def test_a_reply_without_program_is_rejected_at_parse_and_keeps_its_tokens() -> None:
    result = design([said("no")])
    assert result.rejection is not None
    assert result.rejection["stage"] == "parse"
    assert result.source == ""
    assert result.loss_mask.sum() == 3


def test_a_program_that_fails_is_rejected_with_its_outcome() -> None:
    result = design([said(PROGRAM)], FakeJail(Script(load=bad(Outcome.OVER_MEMORY))))
    assert result.rejection is not None
    assert (result.rejection["stage"], result.rejection["outcome"]) == ("load", "over_memory")
    assert isinstance(result.rejection["stage"], str)


def test_a_fault_of_the_jail_makes_the_design_missing_and_not_rejected() -> None:
    jail = FakeJail()
    jail.fault = SandboxError("dead")
    result = design([said(PROGRAM)], jail)
    assert result.rejection is None
    assert result.missing_reason == "ours: SandboxError: dead"


def test_an_unexpected_exception_makes_the_design_missing() -> None:
    def script(prompt: list[int], sampling: Any) -> list[int]:
        raise KeyError("what")

    result = design(script)
    assert result.missing_reason is not None
    assert result.missing_reason.startswith("ours: KeyError")


def test_the_policy_may_write_the_hint() -> None:
    result = design([said(PROGRAM), said("Add them.<|im_end|>")], settings=config(hint="self"))
    assert result.hint == "Add them."
    assert result.hint_mode == "self"
    assert result.rejection is None


def test_a_policy_without_a_hint_is_rejected_at_hint() -> None:
    result = design([said(PROGRAM), said("")], settings=config(hint="self"))
    assert result.rejection is not None
    assert result.rejection["stage"] == "hint"


def test_exemplars_are_left_out_until_the_prompt_fits() -> None:
    async def run() -> tuple[DesignResult, int]:
        made = await context([said(PROGRAM)])
        many = [{"source": "y" * 1900, "labels": {}, "regret": 0.1}] * 16
        task = dataclasses.replace(DESIGN, exemplars=many)
        result = await run_design(made, task)
        return result, len(made.player.engine.prompts[0])

    result, num_tokens = asyncio.run(run())
    assert result.missing_reason is None
    assert 10_000 < num_tokens <= 19_900


def test_a_prompt_that_can_never_fit_is_our_fault_with_the_knob() -> None:
    settings = Config.model_validate({"designer": {"max_new_tokens": 100}})
    result = design([said(PROGRAM)], settings=settings)
    assert result.missing_reason is not None
    assert "model.max_context_tokens=384" in result.missing_reason


def test_each_episode_is_sent_when_it_is_done_with_its_own_stream() -> None:
    sent: list[EpisodeResult] = []
    streams: list[int] = []

    def script(prompt: list[int], sampling: Any) -> list[int]:
        streams.append(sampling.seed)
        return said("x")

    async def send(result: EpisodeResult) -> None:
        sent.append(result)

    async def run() -> int:
        return await run_play(await context(script), PLAY, send)

    assert asyncio.run(run()) == 0
    assert sorted((r.index, r.seed) for r in sent) == [(0, 3), (1, 4), (2, 5)]
    assert set(streams) == {derive(derive(6, i), "turn", 0) for i in range(3)}
    assert all(r.purpose == "train" and r.num_turns == 1 for r in sent)


def test_a_broken_episode_leaves_its_siblings_alone() -> None:
    sent: list[EpisodeResult] = []

    async def send(result: EpisodeResult) -> None:
        sent.append(result)

    def script(prompt: list[int], sampling: Any) -> list[int]:
        if sampling.seed == derive(derive(6, 1), "turn", 0):
            raise KeyError("what")
        return said("x")

    async def run() -> int:
        return await run_play(await context(script), PLAY, send)

    assert asyncio.run(run()) == 1
    missing = {r.index: r.missing_reason for r in sent if r.missing_reason}
    assert list(missing) == [1]
    assert str(missing[1]).startswith("ours: KeyError")
    assert next(r for r in sent if r.index == 1).episode_return is None


def test_transcripts_are_bounded_and_clean() -> None:
    sent: list[EpisodeResult] = []

    async def send(result: EpisodeResult) -> None:
        sent.append(result)

    script = Script(step=[value("\x1b[2J" + "o" * 5000, 0.0, end=True)])

    async def run() -> None:
        await run_play(await context([said("x")], FakeJail(script)), PLAY, send)

    asyncio.run(run())
    (turn,) = sent[0].transcript
    assert len(turn["observation"]) == 400
    assert "\x1b" not in turn["observation"]


def test_the_gate_opens_at_the_wanted_version_and_not_before() -> None:
    async def run() -> list[str]:
        gate, order = VersionGate(), []

        async def wait(version: PolicyVersion) -> None:
            await gate.wait(version.packed)
            order.append(str(version))

        # A later branch replaces every step of an earlier one.
        waits = [asyncio.create_task(wait(v)) for v in (PolicyVersion(0, 9), PolicyVersion(1, 3))]
        await asyncio.sleep(0)
        await gate.open(PolicyVersion(0, 8).packed)
        await asyncio.sleep(0.01)
        assert order == []
        assert gate.num_waiting == 2
        await gate.open(PolicyVersion(1, 2).packed)
        await asyncio.sleep(0.01)
        assert order == ["0.9"]
        await gate.open(PolicyVersion(1, 3).packed)
        await asyncio.gather(*waits)
        return order

    assert asyncio.run(run()) == ["0.9", "1.3"]


def test_a_closed_gate_cancels_who_waits() -> None:
    async def run() -> bool:
        gate = VersionGate()
        task = asyncio.create_task(gate.wait(7))
        await asyncio.sleep(0)
        await gate.close()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(run())


def test_health_names_the_part_that_is_dead() -> None:
    winning = Script(step=[value("done", 1.0, end=True)])

    async def run(kill: str) -> None:
        jail = FakeJail(winning)
        made = await context([said("x")], jail)
        if kill == "jail":
            jail.fault = SandboxError("broker gone")
        if kill == "engine":
            made.player.engine.failed = RuntimeError("boom")
        await health.check(made.player)

    asyncio.run(run("nothing"))
    with pytest.raises(ProcessFailure, match="the jail is dead: broker gone"):
        asyncio.run(run("jail"))
    with pytest.raises(ProcessFailure, match="the engine is dead"):
        asyncio.run(run("engine"))


def test_vitals_name_all_figures_and_tell_idle_from_working() -> None:
    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        jail = FakeJail()
        jail.latencies = [i / 1000 for i in range(1, 101)]
        made = await context([said(PROGRAM)], jail)
        vitals = Vitals()
        vitals.state = "working"
        vitals.take(made, jail)
        idle = vitals.snapshot()
        await run_design(made, DESIGN)
        made.counters.running["t"] = 0.0
        vitals.take(made, jail)
        return idle, vitals.snapshot()

    idle, working = asyncio.run(run())
    assert (idle["state"], idle["waits_for"]) == ("idle", "tasks")
    assert idle["oldest_wait_s"] == 0.0
    assert working["state"] == "working"
    assert working["oldest_wait_s"] > 0.0
    assert working["progress"] > idle["progress"]
    metrics = working["metrics"]
    assert metrics["jail_p50_s"] == pytest.approx(0.051)
    assert metrics["jail_p99_s"] == pytest.approx(0.1)
    assert metrics["jail_outcome_finished"] == metrics["jail_calls"] > 0
    for name in ("tokens", "requests", "engine_busy_s", "engine_idle_s", "active", "waiting"):
        assert name in metrics
    assert {"tasks_running", "jail_busy", "jail_full"} <= set(metrics)
