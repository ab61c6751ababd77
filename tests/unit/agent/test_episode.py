"""Episodes: what they are worth, whose fault a missing one is, and their token traces."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from spade_async.agent.episode import Play, Played, Player, PlayLimits, play_episode
from spade_async.agent.trace import TraceBuilder
from spade_async.designer import games
from spade_async.engine.protocol import Generation
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import GenerationError, SandboxError
from spade_async.types import NO_VERSION, Arm, Outcome, PolicyVersion
from tests.support.fake_jail import FakeJail, Script, bad, value
from tests.support.fake_tokens import STOP, FakeTokens, ids, text

LIMITS = PlayLimits(max_turns=3, max_new_tokens=50, max_context_tokens=4096, temperature=1.0)


def say(*replies: str) -> list[list[int]]:
    return [[*ids(reply), STOP] for reply in replies]


def play(
    script: Script | FakeJail,
    replies: list[list[int]] | ScriptedEngine,
    *,
    arm: Arm = Arm.NO_HINT,
    hint: str | None = None,
    hint_mode: str = "environment",
    limits: PlayLimits = LIMITS,
) -> tuple[Played, ScriptedEngine, FakeJail]:
    async def run() -> tuple[Played, ScriptedEngine, FakeJail]:
        jail = script if isinstance(script, FakeJail) else FakeJail(script)
        engine = replies
        if not isinstance(engine, ScriptedEngine):
            engine = ScriptedEngine(engine, version=PolicyVersion(1, 2))
        instance = Play("e", "class AEnv: pass", hint_mode, hint, arm, 7, 99)
        player = Player(engine, FakeTokens(), jail, games)
        played = await play_episode(player, instance, limits)
        assert jail.live == 0
        return played, engine, jail

    return asyncio.run(run())


WON = Script(step=[value("over", 1.0, end=True)])
THREE = Script(step=[value("one", 0.5), value("two", 0.5), value("over", 1.0, end=True)])


def test_a_finished_episode_is_worth_its_last_reward() -> None:
    played, _, jail = play(THREE, say("a", r"\boxed{b}", "c"))
    episode = played.episode
    assert episode.episode_return == 1.0
    assert episode.missing_reason is None
    assert [turn.action for turn in episode.turns] == ["a", r"\boxed{b}", "c"]
    assert [turn.observation for turn in episode.turns] == ["one", "two", "over"]
    assert jail.opened[0].seed == 7
    # load, reset, hint and three steps of 10 ms each.
    assert episode.jail_wall_s == pytest.approx(0.06)


def test_history_is_the_prompt_and_then_only_grows() -> None:
    played, engine, _ = play(THREE, say("a", "b", "c"))
    first, second, third = engine.prompts
    assert second[: len(first) + 2] == [*first, *ids("a"), STOP]
    assert third[: len(second) + 2] == [*second, *ids("b"), STOP]
    assert text(second[len(first) + 2 :]) == "<user>one<assistant>"
    trace = played.episode.trace
    assert trace is not None
    assert trace.token_ids.tolist() == [*third, *ids("c"), STOP]


def test_the_trace_marks_exactly_what_the_engine_sampled() -> None:
    trace = play(THREE, say("first", "second", "third"))[0].episode.trace
    assert trace is not None
    sampled = trace.loss_mask == 1
    assert text(trace.token_ids[sampled].tolist()) == "firstsecondthird"
    assert (trace.token_ids[sampled] == STOP).sum() == 3
    assert (trace.generator_logprobs[sampled] == -0.5).all()
    assert (trace.generator_logprobs[~sampled] == 0.0).all()
    assert (trace.versions[sampled] == PolicyVersion(1, 2).packed).all()
    assert (trace.versions[~sampled] == NO_VERSION).all()


def test_both_arms_have_the_same_prompt_but_for_the_hint() -> None:
    without = play(WON, say("x"))[1].prompts[0]
    played, engine, _ = play(WON, say("x"), arm=Arm.WITH_HINT)
    assert played.hint_text == "count"
    assert text(engine.prompts[0]).replace("\n\nHINT: count", "") == text(without)


def test_both_arms_make_the_same_calls_into_the_program() -> None:
    calls = [play(WON, say("x"), arm=arm)[2].opened[0].calls for arm in Arm]
    assert calls[0] == calls[1] == ["reset", "hint", "step x"]


def test_a_hint_of_the_whole_environment_is_not_asked_of_the_program() -> None:
    played, _, jail = play(WON, say("x"), arm=Arm.WITH_HINT, hint="add", hint_mode="self")
    assert played.hint_text == "add"
    assert jail.opened[0].calls == ["reset", "step x"]


def test_the_unhinted_arm_shows_no_hint() -> None:
    assert play(WON, say("x"), hint="add", hint_mode="self")[0].hint_text is None


@pytest.mark.parametrize(
    ("script", "replies", "limits", "detail"),
    [
        (Script(step=[value("more", 1.0)]), say("a", "b", "c"), LIMITS, "turn limit reached"),
        (WON, [ids("a" * 80)], LIMITS, "reply was cut"),
    ],
)
def test_an_episode_that_ends_by_a_limit_is_worth_zero(
    script: Script, replies: list[list[int]], limits: PlayLimits, detail: str
) -> None:
    episode = play(script, replies, limits=limits)[0].episode
    assert episode.episode_return == 0.0
    assert episode.missing_reason is None
    assert episode.detail == detail
    assert episode.trace is not None


def test_a_full_context_ends_an_episode_at_zero() -> None:
    _, engine, _ = play(THREE, say("a", "b", "c"))
    room = len(engine.prompts[1])
    limits = PlayLimits(3, 50, room, 1.0)
    episode = play(THREE, say("a", "b", "c"), limits=limits)[0].episode
    assert episode.episode_return == 0.0
    assert episode.detail == "context is full"
    assert len(episode.turns) == 1


def test_truncation_by_the_environment_is_worth_zero() -> None:
    reply = value("late", 1.0)
    script = Script(step=[type(reply)(reply.outcome, "late", 1.0, truncated=True)])
    episode = play(script, say("a"))[0].episode
    assert episode.episode_return == 0.0
    assert episode.turns[-1].truncated


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (Script(load=bad(Outcome.EXCEPTION)), "environment: exception in load"),
        (Script(reset=bad(Outcome.OVER_MEMORY)), "environment: over_memory in reset"),
        (Script(step=[bad(Outcome.TIMED_OUT)]), "environment: timed_out in step 1"),
    ],
)
def test_a_fault_of_the_program_is_a_missing_return_and_not_the_agents(
    script: Script, reason: str
) -> None:
    episode = play(script, say("a"))[0].episode
    assert episode.episode_return is None
    assert episode.missing_reason == reason
    assert episode.outcome is not Outcome.FINISHED
    assert episode.trace is None


def test_a_missing_hint_is_missing_in_its_arm_only() -> None:
    script = Script(hint=value(""), step=[value("over", 1.0, end=True)])
    with_hint = play(script, say("a"), arm=Arm.WITH_HINT)[0].episode
    assert with_hint.missing_reason == "environment: there is no hint for this instance"
    assert play(script, say("a"))[0].episode.episode_return == 1.0


def test_a_first_observation_that_does_not_fit_is_the_environments_fault() -> None:
    limits = PlayLimits(3, 50, 20, 1.0)
    episode = play(WON, say("a"), limits=limits)[0].episode
    assert episode.episode_return is None
    assert episode.missing_reason is not None
    assert episode.missing_reason.startswith("environment: the first prompt of")
    assert episode.outcome is Outcome.OVER_OUTPUT


def test_our_own_faults_are_missing_and_say_so() -> None:
    jail = FakeJail()
    jail.fault = SandboxError("the broker is dead")
    episode = play(jail, say("a"))[0].episode
    assert episode.missing_reason == "ours: SandboxError: the broker is dead"

    async def dead() -> ScriptedEngine:
        engine = ScriptedEngine(say("a"))
        engine.failed = RuntimeError("boom")
        return engine

    episode = play(WON, asyncio.run(dead()))[0].episode
    assert episode.episode_return is None
    assert str(episode.missing_reason).startswith("ours: GenerationError")


def test_generations_with_arrays_of_different_lengths_are_refused() -> None:
    builder = TraceBuilder([1, 2])
    wrong = Generation(
        np.asarray([3], np.int32), np.zeros(2, np.float32), np.zeros(1, np.int64), "stop"
    )
    with pytest.raises(ValueError, match="2 log-probabilities"):
        builder.add_sampled(wrong)


def test_each_turn_samples_from_its_own_stream() -> None:
    seeds: list[int] = []

    async def run() -> None:
        def script(prompt: list[int], sampling) -> list[int]:
            seeds.append(sampling.seed)
            return [*ids("a"), STOP]

        player = Player(ScriptedEngine(script), FakeTokens(), FakeJail(THREE), games)
        await play_episode(player, Play("e", "x", "none", None, Arm.NO_HINT, 1, 5), LIMITS)

    asyncio.run(run())
    assert len(set(seeds)) == 3


def test_generation_errors_keep_what_was_seen() -> None:
    def script(prompt: list[int], sampling) -> list[int]:
        if text(prompt).endswith("<user>one<assistant>"):
            raise GenerationError("no room")
        return [*ids("a"), STOP]

    async def run() -> Played:
        player = Player(ScriptedEngine(script), FakeTokens(), FakeJail(THREE), games)
        return await play_episode(player, Play("e", "x", "none", None, Arm.NO_HINT, 1, 5), LIMITS)

    episode = asyncio.run(run()).episode
    assert episode.missing_reason == "ours: GenerationError: no room"
    assert len(episode.turns) == 1
    assert episode.trace is None
