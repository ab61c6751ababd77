"""Validator and judge: the policy's own opinion of a valid program (step 3; off by default).

They are inference only and may be of newer weights than the design. A fault of the engine is ours,
and never a verdict.
"""

from __future__ import annotations

from spade_async.agent.episode import Play, PlayLimits, play_episode
from spade_async.designer.prompt_review import judge_messages, validator_messages
from spade_async.designer.verdict import Verdict, read_verdict
from spade_async.domain import ChatTurn
from spade_async.engine.protocol import Sampling
from spade_async.environment.contract import environment_id
from spade_async.environment.text import one_line
from spade_async.environment.validate import ValidationReport
from spade_async.generator.context import GeneratorContext
from spade_async.generator.draft import Draft
from spade_async.seeds import derive
from spade_async.transport.messages import DesignTask
from spade_async.types import Arm, Rejection, Stage

Shown = tuple[str, list[tuple[str, str, float]]]
"""First observation of a play, and (action, observation, reward) of each turn."""


async def ask_validator(
    context: GeneratorContext, task: DesignTask, draft: Draft
) -> Rejection | None:
    """Record the validator's verdict; a rejection by it, or None.

    Raises:
        GenerationError: the engine failed.
    """
    verdict, reply = await _ask(context, task, "validator", validator_messages(draft.source))
    draft.verdicts = draft.verdicts | {"validator": verdict}
    if verdict == "no":
        return Rejection(Stage.VALIDATOR, one_line(f"it says no: {reply[-300:]}", 400))
    if verdict == "none" and context.config.designer.no_verdict == "reject":
        return Rejection(Stage.VALIDATOR, 'no verdict, and designer.no_verdict="reject"')
    return None


async def ask_judge(
    context: GeneratorContext, task: DesignTask, draft: Draft, report: ValidationReport
) -> None:
    """Record the judge's verdict of one play; without a play there is no verdict.

    Raises:
        GenerationError, SandboxError: engine or jail failed.
    """
    if context.config.designer.self_judge == "policy":
        shown = await _own_play(context, task, draft)
    else:
        shown = _probed_play(report)
    verdict: Verdict = "none"
    if shown is not None:
        messages = judge_messages(draft.source, *shown)
        verdict, _ = await _ask(context, task, "judge", messages)
    draft.verdicts = draft.verdicts | {"judge": verdict}


def _probed_play(report: ValidationReport) -> Shown | None:
    run = report.shown
    if run is None or run.reset is None:
        return None
    turns = [
        (action, reply.observation, reply.reward)
        for action, reply in zip(run.actions, run.steps, strict=True)
        if reply.reward is not None
    ]
    return run.reset.observation, turns


async def _own_play(context: GeneratorContext, task: DesignTask, draft: Draft) -> Shown | None:
    config = context.config
    play = Play(
        environment_id=environment_id(draft.source),
        source=draft.source,
        hint_mode="none",
        hint=None,
        arm=Arm.NO_HINT,
        seed=derive(task.seed, "judged"),
        sampling_seed=derive(task.seed, "judged play"),
    )
    limits = PlayLimits(
        max_turns=config.agent.max_turns,
        max_new_tokens=config.agent.max_new_tokens_per_turn,
        max_context_tokens=config.model.max_context_tokens,
        temperature=config.agent.temperature,
        min_version=task.min_version,
    )
    played = await play_episode(context.player, play, limits)
    draft.use.merge(played.jail)
    episode = played.episode
    if not episode.turns:
        return None
    return episode.observation, [
        (turn.action, turn.observation, turn.reward) for turn in episode.turns
    ]


async def _ask(
    context: GeneratorContext, task: DesignTask, who: str, messages: list[ChatTurn]
) -> tuple[Verdict, str]:
    """Verdict and reply; a prompt that leaves no room for a reply gives no verdict."""
    config = context.config
    # Not the brief one: a reviewer thinks where the designer does.
    tokens = context.design_codec
    prompt = tokens.encode_prompt(messages)
    room = config.model.max_context_tokens - len(prompt)
    if room < 1:
        return "none", ""
    generation = await context.player.engine.generate(
        prompt,
        Sampling(
            temperature=config.designer.verdict_temperature,
            max_new_tokens=min(config.designer.verdict_tokens, room),
            stop_token_ids=tokens.stop_token_ids,
            seed=derive(task.seed, who),
            min_version=task.min_version,
        ),
    )
    reply = tokens.decode([int(token) for token in generation.token_ids])
    return read_verdict(reply, compat=config.run.compat), reply
