"""Repair turns: the policy is told why its program was rejected, and writes it anew (step 2).

Only the first reply trains; later ones are a means to have something to play. Source: SPADE
reference 1.8.
"""

from __future__ import annotations

import dataclasses
import logging

from spade_async.designer.prompt_review import repair_turn
from spade_async.engine.protocol import Sampling
from spade_async.errors import GenerationError
from spade_async.generator.context import GeneratorContext
from spade_async.generator.draft import Draft
from spade_async.generator.take_reply import take_reply
from spade_async.seeds import derive
from spade_async.transport.messages import DesignTask

log = logging.getLogger(__name__)


async def repair(
    context: GeneratorContext,
    task: DesignTask,
    draft: Draft,
    said: list[int],
    *,
    is_whole: bool,
) -> None:
    """Up to `designer.repair_turns` further turns, until a program is valid or the context ends.

    When none is, the draft stays as the first reply left it, with all attempts on record.

    Args:
        context: of the generator.
        task: the design.
        draft: a rejected one; changed in place.
        said: ids of the prompt and the first reply.
        is_whole: whether that reply ended with a stop token.

    Raises:
        SandboxError: the jail failed.
        GenerationError: the engine failed.
    """
    player, config, tokens = context.player, context.config, context.design_codec
    first = dataclasses.replace(draft)
    ids = list(said)
    for turn in range(1, config.designer.repair_turns + 1):
        rejection = draft.rejection
        assert rejection is not None, "only a rejected program is repaired"
        told = repair_turn(rejection.stage.value, rejection.reason)
        try:
            ids += tokens.encode_turn(told, after_stop=is_whole)
        except GenerationError as cause:
            log.warning("design %s cannot be repaired in turns: %s", task.task_id, cause)
            break
        room = config.model.max_context_tokens - len(ids)
        if room < 1:
            break
        generation = await player.engine.generate(
            list(ids),
            Sampling(
                temperature=task.temperature,
                max_new_tokens=min(task.max_new_tokens, room),
                stop_token_ids=tokens.stop_token_ids,
                seed=derive(task.seed, "repair", turn),
                min_version=task.min_version,
            ),
        )
        answer = [int(token) for token in generation.token_ids]
        ids += answer
        is_whole = generation.finish_reason == "stop"
        reply = tokens.decode(answer)
        await take_reply(context, task, draft, reply, is_whole=is_whole)
        if draft.rejection is None:
            draft.repaired = (*draft.repaired, "turn")
            draft.repair_turns = turn
            return
    draft.source, draft.rejection = first.source, first.rejection
    draft.repaired, draft.hint = first.repaired, first.hint
    draft.verdicts = first.verdicts
