"""One `DesignTask` to one `DesignResult`: sample, parse, validate, hint, leak check (steps 2-4)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any

from spade_async.agent.trace import TraceBuilder
from spade_async.engine.leases import one_version
from spade_async.engine.protocol import Sampling
from spade_async.environment.shape import shape_features
from spade_async.environment.text import one_line
from spade_async.errors import SpadeError
from spade_async.generator.context import GeneratorContext
from spade_async.generator.design_prompt import design_request, fit
from spade_async.generator.draft import Draft
from spade_async.generator.meter import EngineMeter
from spade_async.generator.repair import repair
from spade_async.generator.take_reply import take_reply
from spade_async.grounding.signature import minhash
from spade_async.transport.experts import sent_experts
from spade_async.transport.messages import DesignResult, DesignTask
from spade_async.types import Rejection

log = logging.getLogger(__name__)


async def run_design(context: GeneratorContext, task: DesignTask) -> DesignResult:
    """Write and check one environment. Never raises for a fault: the result says it is missing."""
    draft = Draft()
    missing: str | None = None
    try:
        await _design(context, task, draft)
    except SpadeError as fault:
        missing = f"ours: {type(fault).__name__}: {one_line(str(fault))}"
        log.warning("design %s is missing: %s", task.task_id, missing)
    except Exception as fault:
        missing = f"ours: {type(fault).__name__}: {one_line(str(fault))}"
        log.exception("design %s is missing", task.task_id)
    counters = context.counters
    counters.jail.merge(draft.use)
    counters.designs_done += 1
    counters.missing += missing is not None
    return DesignResult(
        task_id=task.task_id,
        group_id=task.group_id,
        source=draft.source,
        rejection=None if missing else _rejection_fields(draft.rejection),
        missing_reason=missing,
        hint=draft.hint,
        hint_mode=context.config.designer.hint,
        leak_share=draft.leak,
        jail=draft.use.as_message(),
        timing=draft.timing,
        prompt=draft.prompt,
        signature=draft.signature,
        repaired=list(draft.repaired),
        repair_turns=draft.repair_turns,
        attempts=draft.attempts,
        verdicts=dict(draft.verdicts),
        token_ids=draft.trace.token_ids,
        loss_mask=draft.trace.loss_mask,
        generator_logprobs=draft.trace.generator_logprobs,
        versions=draft.trace.versions,
        experts=sent_experts(
            draft.trace.experts, context.config.link.max_message_bytes, f"design {task.task_id}"
        ),
    )


async def _design(context: GeneratorContext, task: DesignTask, draft: Draft) -> None:
    await context.gate.wait(task.min_version)
    meter = EngineMeter(context.player.engine)
    metered = dataclasses.replace(context.player, engine=meter.as_engine())
    try:
        await _write(dataclasses.replace(context, player=metered), task, draft)
        if draft.source and draft.rejection is None:
            features = await shape_features(context.player.pool, draft.source, draft.use)
            if features is not None:
                draft.signature = minhash(features)
    except asyncio.CancelledError:
        context.counters.cut_tokens[task.task_id] += meter.num_tokens
        raise
    finally:
        draft.timing = meter.timing()


async def _write(context: GeneratorContext, task: DesignTask, draft: Draft) -> None:
    player, config, tokens = context.player, context.config, context.design_codec
    fitted = fit(
        tokens,
        player.domain,
        design_request(config, player.domain, task),
        max_context_tokens=config.model.max_context_tokens,
        max_new_tokens=task.max_new_tokens,
    )
    prompt, draft.prompt = fitted.ids, fitted.facts
    trace = TraceBuilder(prompt)
    sampling = Sampling(
        temperature=task.temperature,
        max_new_tokens=task.max_new_tokens,
        stop_token_ids=tokens.stop_token_ids,
        seed=task.seed,
        min_version=task.min_version,
    )
    # The reply alone is trained: its hint, if the policy writes one, may be of newer weights.
    async with one_version(player.engine, task.min_version) as version:
        generation = await player.engine.generate(
            list(prompt), dataclasses.replace(sampling, version=version)
        )
    trace.add_sampled(generation)
    draft.trace = trace.build()
    reply = tokens.decode([int(token) for token in generation.token_ids])
    is_whole = generation.finish_reason == "stop"
    await take_reply(context, task, draft, reply, is_whole=is_whole)
    if draft.rejection is not None and config.designer.repair_turns:
        await repair(context, task, draft, trace.ids, is_whole=is_whole)


def _rejection_fields(rejection: Rejection | None) -> dict[str, Any] | None:
    if rejection is None:
        return None
    fields = dataclasses.asdict(rejection)
    outcome = rejection.outcome
    return fields | {"stage": rejection.stage.value, "outcome": outcome.value if outcome else None}
