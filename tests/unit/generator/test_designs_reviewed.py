"""Repair turns, validator and judge on scripted engine and jail."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from spade_async.agent.episode import Player
from spade_async.config.schema import Config
from spade_async.coordinator import opinions
from spade_async.coordinator.state import DesignMember
from spade_async.designer import games
from spade_async.designer.verdict import read_verdict
from spade_async.engine.scripted import ScriptedEngine
from spade_async.errors import GenerationError
from spade_async.generator.context import GeneratorContext
from spade_async.generator.design_task import run_design
from spade_async.transport.messages import DesignResult
from spade_async.types import Outcome
from tests.support.design_task import DESIGN
from tests.support.fake_jail import FakeJail, Script, bad, value
from tests.support.fake_tokens import STOP, FakeTokens, ids

PROGRAM = "```python\nclass {name}Env:\n    pass\n```"
TASK = replace(DESIGN, max_new_tokens=200)
FAILS = Script(reset=bad(Outcome.EXCEPTION, "KeyError: 'seed'"))


def said(text: str) -> list[int]:
    return [*ids(text), STOP]


def program(name: str) -> list[int]:
    return said(PROGRAM.format(name=name))


class NamedJail(FakeJail):
    """Programs called Bad fail at reset."""

    def session(self, source: str, seed: int) -> Any:
        self._script = FAILS if "BadEnv" in source else Script()
        return super().session(source, seed)


def design(
    replies: Any, *, context_tokens: int = 40_000, compat: str = "off", **designer: Any
) -> tuple[DesignResult, ScriptedEngine]:
    settings = Config.model_validate(
        {
            "run": {"compat": compat},
            "model": {"max_context_tokens": context_tokens},
            "designer": {"max_new_tokens": 200, **designer},
            "contract": {"checks": []},
        }
    )
    engine = ScriptedEngine(replies)

    async def run() -> DesignResult:
        context = GeneratorContext(settings, Player(engine, FakeTokens(), NamedJail(), games))
        await context.gate.open(0)
        return await run_design(context, TASK)

    return asyncio.run(run()), engine


def test_a_rejected_program_is_written_anew_and_the_first_reply_trains() -> None:
    first, second = program("Bad"), program("Good")
    result, engine = design([first, second], repair_turns=2)
    assert result.rejection is None
    assert "GoodEnv" in result.source
    assert (result.repaired, result.repair_turns) == (["turn"], 1)
    assert [a["stage"] for a in result.attempts] == ["reset"]
    assert "KeyError" in result.attempts[0]["reason"]
    # What trains is the first prompt and the first reply, nothing of the repair.
    prompt = engine.prompts[0]
    assert result.token_ids.tolist() == [*prompt, *first]
    assert result.loss_mask.sum() == len(first)
    # The second request goes on from exactly what was sampled, and tells the fault.
    again = engine.prompts[1]
    assert again[: len(prompt) + len(first)] == [*prompt, *first]
    assert "KeyError: 'seed'" in FakeTokens().decode(again[len(prompt) + len(first) :])


def test_when_no_turn_helps_the_first_rejection_stands() -> None:
    result, engine = design([said("no"), program("Bad"), program("Bad")], repair_turns=2)
    assert result.rejection is not None
    assert result.rejection["stage"] == "parse"
    assert result.source == ""
    assert (result.repaired, result.repair_turns) == ([], 0)
    assert [a["stage"] for a in result.attempts] == ["parse", "reset", "reset"]
    assert len(engine.prompts) == 3


def test_the_designers_codec_is_the_one_that_designs_and_repairs() -> None:
    used: list[str] = []

    class Noted(FakeTokens):
        def encode_prompt(self, messages: Any) -> list[int]:
            used.append("prompt")
            return super().encode_prompt(messages)

        def encode_turn(self, messages: Any, after_stop: bool) -> list[int]:
            used.append("turn")
            return super().encode_turn(messages, after_stop)

        def decode(self, ids: list[int]) -> str:
            used.append("decode")
            return super().decode(ids)

    async def run() -> DesignResult:
        settings = Config.model_validate(
            {
                "model": {"max_context_tokens": 40_000},
                "designer": {"max_new_tokens": 200, "repair_turns": 1, "validator": "self"},
                "contract": {"checks": []},
            }
        )
        engine = ScriptedEngine([program("Bad"), program("Good"), said(r"\boxed{yes}")])
        player = Player(engine, FakeTokens(), NamedJail(), games)
        context = GeneratorContext(settings, player, designer_tokens=Noted())
        await context.gate.open(0)
        return await run_design(context, TASK)

    result = asyncio.run(run())
    assert (result.repaired, result.verdicts) == (["turn"], {"validator": "yes"})
    assert used == ["prompt", "decode", "turn", "decode", "prompt", "decode"]


def test_without_repair_turns_nothing_is_asked_again() -> None:
    result, engine = design([program("Bad"), program("Good")])
    assert result.rejection is not None
    assert len(engine.prompts) == 1
    valid, engine = design([program("Good")], repair_turns=3)
    assert valid.rejection is None
    assert (valid.repaired, valid.repair_turns, valid.attempts) == ([], 0, [])
    assert len(engine.prompts) == 1


def test_repair_ends_where_the_context_does() -> None:
    whole, engine = design([program("Bad"), program("Good")], repair_turns=1)
    assert whole.rejection is None
    room = len(engine.prompts[1])
    short, engine = design([program("Bad")], repair_turns=5, context_tokens=room)
    assert short.missing_reason is None
    assert short.rejection is not None
    assert len(engine.prompts) == 1


@pytest.mark.parametrize(
    ("reply", "verdict", "rejected"),
    [
        (r"All fine. \boxed{yes}", "yes", False),
        (r"\boxed{no} at first, but \boxed{Yes.}", "yes", False),
        (r"It cannot be won. \boxed{no}", "no", True),
        ("I would say so.", "none", False),
        ("", "none", False),
        (r"\boxed{maybe}", "none", False),
    ],
)
def test_the_validator_rejects_by_a_clear_no_alone(
    reply: str, verdict: str, rejected: bool
) -> None:
    result, engine = design([program("Good"), said(reply)], validator="self")
    assert result.verdicts == {"validator": verdict}
    assert (result.rejection is not None) == rejected
    if result.rejection is not None:
        assert result.rejection["stage"] == "validator"
        assert "cannot be won" in result.rejection["reason"]
    assert len(engine.prompts) == 2
    # No verdict is what the key says.
    strict, _ = design([program("Good"), said(reply)], validator="self", no_verdict="reject")
    assert (strict.rejection is None) == (verdict == "yes")


def test_a_dead_engine_is_our_fault_and_no_verdict() -> None:
    def dies(prompt: list[int], sampling: Any) -> list[int]:
        if dies.calls:  # type: ignore[attr-defined]
            raise GenerationError("dead")
        dies.calls = 1  # type: ignore[attr-defined]
        return program("Good")

    dies.calls = 0  # type: ignore[attr-defined]
    result, _ = design(dies, validator="self")
    assert result.rejection is None
    assert result.missing_reason == "ours: GenerationError: dead"


def test_a_refused_program_may_be_repaired_in_a_turn() -> None:
    replies = [program("Good"), said(r"wrong \boxed{no}"), program("Better"), said(r"\boxed{yes}")]
    result, _ = design(replies, validator="self", repair_turns=1)
    assert result.rejection is None
    assert "BetterEnv" in result.source
    assert (result.repaired, result.verdicts) == (["turn"], {"validator": "yes"})
    assert [a["stage"] for a in result.attempts] == ["validator"]


@pytest.mark.parametrize("plays", ["probe", "policy"])
def test_the_judge_sees_one_play_and_its_no_costs_pay_but_no_place(plays: str) -> None:
    action = [said(r"\boxed{left}")] if plays == "policy" else []
    replies = [program("Good"), *action, said(r"The reward is wrong. \boxed{no}")]
    result, engine = design(replies, self_judge=plays)
    assert result.rejection is None
    assert result.verdicts == {"judge": "no"}
    asked = FakeTokens().decode(engine.prompts[-1])
    assert "what is 1 + 1?" in asked
    assert (r"\boxed{left}" if plays == "policy" else r"\boxed{1}") in asked
    # The play is not trained.
    assert result.loss_mask.sum() == len(replies[0])

    member = DesignMember(index=0, task_id="d-1")
    opinions.take(member, opinions.extra(result), 0.5)
    assert member.judge_penalty == 0.5
    opinions.take(member, {}, 0.5)
    assert (member.judge_penalty, member.repaired) == (0.0, ())


def test_what_is_kept_of_a_design_is_bounded_and_absent_of_most() -> None:
    plain, _ = design([program("Good")])
    assert opinions.extra(plain) == {}
    fixed, _ = design([program("Bad"), program("Good")], repair_turns=1)
    assert opinions.extra(fixed) == {
        "repaired": ["turn"],
        "repair_turns": 1,
        "attempts": fixed.attempts,
    }


@pytest.mark.parametrize(
    ("reply", "ours", "reference"),
    [
        (r"\boxed{yes}", "yes", "yes"),
        (r"\boxed{Y}", "yes", "yes"),
        (r"\boxed{TRUE}", "yes", "yes"),
        (r"\boxed{no}", "no", "no"),
        (r"\boxed{maybe}", "none", "no"),
        (r"\boxed{no} \boxed{yes}", "yes", "no"),
        (r"\boxed{}", "none", "none"),
        ("yes", "none", "none"),
        ("", "none", "none"),
    ],
)
def test_verdicts(reply: str, ours: str, reference: str) -> None:
    assert read_verdict(reply) == ours
    assert read_verdict(reply, compat="reference") == reference


def test_the_reference_takes_a_program_that_ours_would_reject() -> None:
    # It never ends, and its second worker is not asked.
    endless = Script(step=[value("more", 0.0)])

    jails: list[FakeJail] = []

    class Endless(FakeJail):
        def session(self, source: str, seed: int) -> Any:
            self._script = endless
            return super().session(source, seed)

    async def run(compat: str) -> DesignResult:
        settings = Config.model_validate(
            {
                "run": {"compat": compat},
                "model": {"max_context_tokens": 40_000},
                "designer": {"max_new_tokens": 200, "hint": "none"},
                "regret": {"leak_seeds": 0},
                "contract": {"checks": []},
            }
        )
        jails.append(Endless())
        player = Player(ScriptedEngine([program("Good")]), FakeTokens(), jails[-1], games)
        context = GeneratorContext(settings, player)
        await context.gate.open(0)
        return await run_design(context, TASK)

    ours = asyncio.run(run("off"))
    assert ours.rejection is not None
    assert ours.rejection["stage"] == "termination"
    theirs = asyncio.run(run("reference"))
    assert theirs.rejection is None
    assert jails[1].opened[0].calls == [
        "reset", r"step \boxed{1}", r"step \boxed{test}", r"step \boxed{42}", "reset",
    ]  # fmt: skip
