"""The generator's loop against a scripted link: start, swap, stop, and last words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spade_async.agent.episode import Player
from spade_async.config.schema import Config
from spade_async.designer import games
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import SandboxError, WeightsError
from spade_async.generator import serve as serving
from spade_async.generator.context import GeneratorContext
from spade_async.generator.serve import Generator
from spade_async.transport.link import Received
from spade_async.transport.messages import (
    CancelTask,
    Credit,
    EpisodeResult,
    Message,
    PlayTask,
    ProcessFailed,
    Stop,
    TaskCut,
    WeightsLoaded,
    WeightsPublished,
    Welcome,
)
from spade_async.types import PolicyVersion
from tests.support.fake_jail import FakeJail
from tests.support.fake_tokens import STOP, FakeTokens


class FakePeer:
    """Gives what is put into `inbox`, keeps what is sent."""

    def __init__(self) -> None:
        self.welcome = Welcome(resume={"version": 0, "location": "w0", "digest": "d0"})
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.num_acknowledged = 0
        self.num_unacknowledged = 0

    async def receive(self) -> Received:
        message = await self.inbox.get()

        def ack() -> None:
            self.num_acknowledged += 1

        return Received("coordinator", message, ack)

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def post(self, message: Message) -> None:
        pass

    async def flush(self, timeout_s: float) -> bool:
        return True

    def of(self, kind: type[Message]) -> list[Any]:
        return [message for message in self.sent if isinstance(message, kind)]


def play_task(**changes: Any) -> PlayTask:
    values: dict[str, Any] = {
        "task_id": "p",
        "group_id": "g",
        "environment_id": "e",
        "source": "class AEnv: pass",
        "hint": None,
        "hint_mode": "none",
        "arm": "no_hint",
        "seeds": [1],
        "min_version": 0,
        "max_turns": 1,
        "max_new_tokens": 5,
        "temperature": 1.0,
        "purpose": "train",
        "seed": 1,
    }
    return PlayTask(**(values | changes))


def serve(
    *messages: Message,
    check: Callable[[str, str], None] | None = None,
    delay_s: float = 0.0,
    leave_after_s: float | None = None,
) -> tuple[int, FakePeer]:
    async def run() -> tuple[int, FakePeer]:
        peer, jail, leave = FakePeer(), FakeJail(), asyncio.Event()
        engine = ScriptedEngine([[65, STOP]], check=check, delay_s=delay_s)
        config = Config.model_validate({"model": {"max_context_tokens": 2000}})
        context = GeneratorContext(config, Player(engine, FakeTokens(), jail, games))
        generator = Generator("gen-0", context, jail, peer, leave)  # type: ignore[arg-type]
        for message in messages:
            peer.inbox.put_nowait(message)
        if leave_after_s is not None:
            asyncio.get_running_loop().call_later(leave_after_s, leave.set)
        code = await asyncio.wait_for(generator.serve(), 10)
        assert jail.live == 0
        return code, peer

    return asyncio.run(run())


def published(step: int) -> WeightsPublished:
    version = PolicyVersion(0, step).packed
    return WeightsPublished(version=version, location=f"w{step}", digest=f"d{step}")


def test_weights_are_loaded_before_credit_is_given() -> None:
    code, peer = serve(leave_after_s=0.1)
    assert code == 0
    assert [type(m) for m in peer.sent] == [WeightsLoaded, Credit]
    assert peer.of(WeightsLoaded)[0].digest == "d0"


def test_stop_with_finish_waits_for_running_tasks() -> None:
    tasks = [play_task(task_id=f"p{i}", seeds=[1, 2]) for i in range(5)]
    code, peer = serve(*tasks, Stop(reason="done", finish=True), delay_s=0.05)
    assert code == 0
    assert len(peer.of(EpisodeResult)) == 10
    assert peer.num_acknowledged == 6


def test_stop_with_finish_does_not_wait_for_weights_that_never_come() -> None:
    held = play_task(min_version=PolicyVersion(0, 9).packed)
    code, peer = serve(held, Stop(reason="done", finish=True))
    assert code == 0
    assert peer.of(EpisodeResult) == []


def test_a_cancelled_task_ends_with_its_jailed_workers_and_says_so() -> None:
    code, peer = serve(
        play_task(task_id="slow", seeds=[1, 2]),
        CancelTask(task_id="slow"),
        CancelTask(task_id="unknown"),
        delay_s=30.0,
        leave_after_s=1.0,
    )
    assert code == 0
    ended = {message.task_id: message.tokens for message in peer.of(TaskCut)}
    assert ended == {"slow": 0, "unknown": 0}
    assert peer.of(EpisodeResult) == []


def test_a_task_that_comes_after_its_cancellation_is_not_begun() -> None:
    code, peer = serve(CancelTask(task_id="p"), play_task(), leave_after_s=0.5)
    assert code == 0
    assert [message.task_id for message in peer.of(TaskCut)] == ["p"]
    assert peer.of(EpisodeResult) == []


def test_stop_at_once_leaves_running_tasks() -> None:
    code, peer = serve(play_task(), Stop(reason="now", finish=False), delay_s=30.0)
    assert code == 0
    assert peer.of(EpisodeResult) == []


def test_new_weights_are_reported_and_let_held_tasks_go() -> None:
    newer = PolicyVersion(0, 1).packed
    code, peer = serve(play_task(min_version=newer), published(1), leave_after_s=0.3)
    assert code == 0
    # The newer set superseded the first one before that was read.
    assert peer.of(WeightsLoaded)[-1].version == newer
    (episode,) = peer.of(EpisodeResult)
    assert set(episode.versions[episode.loss_mask == 1]) == {newer}


def test_weights_that_cannot_be_loaded_end_it_with_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_LOAD_PAUSE_S", 0.001)

    def check(location: str, digest: str) -> None:
        if location == "w1":
            raise WeightsError("w1 is gone")

    code, peer = serve(published(1), check=check)
    assert code == 1
    (failed,) = peer.of(ProcessFailed)
    assert "weights 0.1 cannot be loaded: w1 is gone" in failed.message


def test_weights_that_are_gone_are_no_fault_when_newer_ones_are_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_LOAD_PAUSE_S", 0.05)

    def check(location: str, digest: str) -> None:
        if location == "w1":
            raise WeightsError("w1 is gone")

    code, peer = serve(published(1), published(2), check=check, leave_after_s=0.4)
    assert code == 0
    assert peer.of(WeightsLoaded)[-1].version == PolicyVersion(0, 2).packed


class Doubtful(ScriptedEngine):
    """Shows a tensor that is right only after so many loads of version 0.1."""

    wrong = 0

    async def tensor_digests(self) -> dict[str, str]:
        if self.version == PolicyVersion(0, 1) and self.wrong > 0:
            self.wrong -= 1
            return {"w": "bad"}
        return {"w": "good"}


def serve_doubtful(wrong: int, *messages: Message) -> tuple[int, FakePeer]:
    async def run() -> tuple[int, FakePeer]:
        peer, leave = FakePeer(), asyncio.Event()
        engine = Doubtful([[65, STOP]])
        engine.wrong = wrong
        config = Config.model_validate({"model": {"max_context_tokens": 2000}})
        context = GeneratorContext(config, Player(engine, FakeTokens(), FakeJail(), games))
        generator = Generator("gen-0", context, FakeJail(), peer, leave)  # type: ignore[arg-type]
        serving_it = asyncio.create_task(generator.serve())
        while not peer.of(Credit):  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.005)
        for message in messages:
            peer.inbox.put_nowait(message)
        asyncio.get_running_loop().call_later(0.5, leave.set)
        return await asyncio.wait_for(serving_it, 10), peer

    return asyncio.run(run())


def attested_weights() -> WeightsPublished:
    return replace(published(1), attestation={"tensors": {"w": "good"}, "ids": [], "logprobs": []})


def test_weights_that_do_not_attest_withdraw_credit_until_they_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_LOAD_PAUSE_S", 0.01)
    held = play_task(min_version=PolicyVersion(0, 1).packed)
    code, peer = serve_doubtful(2, attested_weights(), held)
    assert code == 0
    told = [
        (m.attested, m.reason) if isinstance(m, WeightsLoaded) else m.tasks
        for m in peer.sent
        if isinstance(m, WeightsLoaded | Credit)
    ]
    credit = Config().generator.concurrent_tasks
    wrong = (False, "1 of 1 tensors differ from those published, first w")
    assert told == [(True, ""), credit, wrong, 0, wrong, 0, (True, ""), credit]
    # The task waited for weights that are proven.
    assert len(peer.of(EpisodeResult)) == 1
    proven = max(i for i, m in enumerate(peer.sent) if isinstance(m, WeightsLoaded))
    assert peer.sent.index(peer.of(EpisodeResult)[0]) > proven


def test_weights_that_never_attest_end_it_with_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_LOAD_PAUSE_S", 0.01)
    code, peer = serve_doubtful(9, attested_weights())
    assert code == 1
    assert "weights 0.1 do not attest: 1 of 1 tensors" in peer.of(ProcessFailed)[0].message
    assert peer.of(Credit)[-1].tasks == 0


def test_a_fault_of_ours_in_a_task_is_fatal_when_the_jail_is_dead() -> None:

    async def run() -> tuple[int, FakePeer]:
        peer, jail = FakePeer(), FakeJail()
        jail.fault = SandboxError("the broker is dead")
        engine = ScriptedEngine([[65, STOP]])
        context = GeneratorContext(Config(), Player(engine, FakeTokens(), jail, games))
        generator = Generator("gen-0", context, jail, peer, asyncio.Event())  # type: ignore[arg-type]
        peer.inbox.put_nowait(play_task())
        return await asyncio.wait_for(generator.serve(), 10), peer

    code, peer = asyncio.run(run())
    assert code == 1
    (episode,) = peer.of(EpisodeResult)
    assert episode.missing_reason == "ours: SandboxError: the broker is dead"
    assert "the jail is dead" in peer.of(ProcessFailed)[0].message
