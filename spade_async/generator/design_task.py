"""One `DesignTask` to one `DesignResult`: sample, parse, validate, hint, leak check (steps 2-4)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spade_async.agent.trace import TraceBuilder
from spade_async.designer.hint import clean_hint, leak_share
from spade_async.engine.leases import one_version
from spade_async.engine.protocol import Sampling
from spade_async.environment.session import JailUse
from spade_async.environment.shape import shape_features
from spade_async.environment.text import one_line
from spade_async.environment.validate import validate
from spade_async.errors import PromptTooLong, SpadeError
from spade_async.generator.context import GeneratorContext
from spade_async.generator.design_prompt import design_request, fit
from spade_async.generator.meter import EngineMeter
from spade_async.grounding.signature import Signature, minhash
from spade_async.seeds import derive
from spade_async.transport.messages import DesignResult, DesignTask
from spade_async.types import Rejection, Stage, TokenTrace

log = logging.getLogger(__name__)

MAX_HINT_TOKENS = 256
"""Longest reply to the request for a hint (designer.hint = "self")."""
NUM_PROBED_INSTANCES = 1
"""Instances that validation plays, each in two workers."""

EMPTY_TRACE = TokenTrace(
    np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.float32), np.zeros(0, np.int64)
)


@dataclass(slots=True)
class _Draft:
    """What is known so far, so that a fault keeps it."""

    source: str = ""
    rejection: Rejection | None = None
    hint: str | None = None
    leak: float = 0.0
    trace: TokenTrace = EMPTY_TRACE
    use: JailUse = field(default_factory=JailUse)
    timing: dict[str, float] = field(default_factory=dict)
    prompt: dict[str, Any] = field(default_factory=dict)
    signature: Signature = field(default_factory=lambda: np.zeros(0, np.int32))


async def run_design(context: GeneratorContext, task: DesignTask) -> DesignResult:
    """Write and check one environment. Never raises for a fault: the result says it is missing."""
    draft = _Draft()
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
        token_ids=draft.trace.token_ids,
        loss_mask=draft.trace.loss_mask,
        generator_logprobs=draft.trace.generator_logprobs,
        versions=draft.trace.versions,
    )


async def _design(context: GeneratorContext, task: DesignTask, draft: _Draft) -> None:
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


async def _write(context: GeneratorContext, task: DesignTask, draft: _Draft) -> None:
    player, config = context.player, context.config
    fitted = fit(
        player.tokens,
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
        stop_token_ids=player.tokens.stop_token_ids,
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
    reply = player.tokens.decode([int(token) for token in generation.token_ids])
    source = player.domain.parse_program(reply)
    if source is None:
        cut = " (it was cut at its token limit)" if generation.finish_reason != "stop" else ""
        draft.rejection = Rejection(Stage.PARSE, f"there is no program in the reply{cut}")
        return
    draft.source = source
    report = await validate(
        player.pool,
        source,
        seed=task.seed,
        num_seeds=NUM_PROBED_INSTANCES,
        max_turns=config.agent.max_turns,
        hint_mode=config.designer.hint,
        use=draft.use,
    )
    draft.rejection = report.rejection
    if draft.rejection is not None or config.designer.hint == "none":
        return
    if config.designer.hint == "self":
        draft.hint = await _own_hint(context, task, source)
        if draft.hint is None:
            draft.rejection = Rejection(Stage.HINT, "the policy's reply holds no hint")
            return
    seeds = [derive(task.seed, "leak", i) for i in range(config.regret.leak_seeds)]
    draft.leak = await leak_share(player.pool, source, draft.hint, seeds, draft.use)


async def _own_hint(context: GeneratorContext, task: DesignTask, source: str) -> str | None:
    player = context.player
    tokens = context.brief_tokens or player.tokens
    prompt = tokens.encode_prompt(player.domain.hint_messages(source))
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


def _rejection_fields(rejection: Rejection | None) -> dict[str, Any] | None:
    if rejection is None:
        return None
    fields = dataclasses.asdict(rejection)
    outcome = rejection.outcome
    return fields | {"stage": rejection.stage.value, "outcome": outcome.value if outcome else None}
