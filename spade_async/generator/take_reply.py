"""From one reply of the designer to a valid environment or a rejection (steps 2-4)."""

from __future__ import annotations

from spade_async.designer.hint import clean_hint, leak_share
from spade_async.domain import ChatTurn
from spade_async.engine.protocol import Sampling
from spade_async.environment.validate import ValidationReport, validate
from spade_async.environment.validate_reference import validate_as_the_reference
from spade_async.errors import PromptTooLong
from spade_async.generator.context import GeneratorContext
from spade_async.generator.draft import Draft
from spade_async.generator.second_opinion import ask_judge, ask_validator
from spade_async.seeds import derive
from spade_async.transport.messages import DesignTask
from spade_async.types import Rejection, Stage

MAX_HINT_TOKENS = 256
"""Longest reply to the request for a hint (designer.hint = "self")."""
NUM_PROBED_INSTANCES = 1
"""Instances that validation plays, each in two workers."""


async def take_reply(
    context: GeneratorContext, task: DesignTask, draft: Draft, reply: str, *, is_whole: bool
) -> None:
    """Parse, repair, validate, ask for opinions and a hint; what comes of it is in `draft`.

    Args:
        context: of the generator.
        task: the design.
        draft: changed in place; a rejection is added to its attempts.
        reply: what the policy said.
        is_whole: False when the reply was cut at its token limit.

    Raises:
        SandboxError: the jail failed.
        GenerationError: the engine failed.
        PromptTooLong: the program leaves no room to ask for a hint.
    """
    source = context.player.domain.parse_program(reply)
    draft.repaired = ()
    if source is None:
        cut = "" if is_whole else " (it was cut at its token limit)"
        draft.rejection = Rejection(Stage.PARSE, f"there is no program in the reply{cut}")
    else:
        draft.source = source
        draft.rejection = await _take_program(context, task, draft, source)
    if draft.rejection is not None:
        stage, reason = draft.rejection.stage.value, draft.rejection.reason
        draft.attempts.append({"stage": stage, "reason": reason})


async def _take_program(
    context: GeneratorContext, task: DesignTask, draft: Draft, source: str
) -> Rejection | None:
    player, config = context.player, context.config
    report = await _validate(context, task, draft, source)
    source = draft.source = report.source
    draft.repaired = report.repairs
    if report.rejection is not None:
        return report.rejection
    if config.designer.validator == "self":
        refused = await ask_validator(context, task, draft)
        if refused is not None:
            return refused
    if config.designer.hint != "none":
        if config.designer.hint == "self":
            draft.hint = await _own_hint(context, task, player.domain.hint_messages(source))
            if draft.hint is None:
                return Rejection(Stage.HINT, "the policy's reply holds no hint")
        seeds = [derive(task.seed, "leak", i) for i in range(config.regret.leak_seeds)]
        draft.leak = await leak_share(player.pool, source, draft.hint, seeds, draft.use)
    if config.designer.self_judge != "off":
        await ask_judge(context, task, draft, report)
    return None


async def _validate(
    context: GeneratorContext, task: DesignTask, draft: Draft, source: str
) -> ValidationReport:
    pool, config = context.player.pool, context.config
    if config.run.compat == "reference":
        return await validate_as_the_reference(pool, source, use=draft.use)
    return await validate(
        pool,
        source,
        seed=task.seed,
        num_seeds=NUM_PROBED_INSTANCES,
        max_turns=config.agent.max_turns,
        hint_mode=config.designer.hint,
        use=draft.use,
        rules=config.contract,
    )


async def _own_hint(
    context: GeneratorContext, task: DesignTask, messages: list[ChatTurn]
) -> str | None:
    player = context.player
    tokens = context.brief_tokens or player.tokens
    prompt = tokens.encode_prompt(messages)
    room = context.config.model.max_context_tokens - len(prompt)
    if room < 1:
        raise PromptTooLong(
            f"the prompt for a hint has {len(prompt)} tokens, with the program, and does not fit "
            f"model.max_context_tokens={context.config.model.max_context_tokens}"
        )
    generation = await player.engine.generate(
        prompt,
        Sampling(
            temperature=task.temperature,
            max_new_tokens=min(MAX_HINT_TOKENS, room),
            stop_token_ids=tokens.stop_token_ids,
            seed=derive(task.seed, "hint"),
            min_version=task.min_version,
        ),
    )
    return clean_hint(tokens.decode([int(token) for token in generation.token_ids]))
