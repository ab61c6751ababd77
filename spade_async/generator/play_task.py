"""One `PlayTask` to one `EpisodeResult` per seed, each sent as soon as it is done (step 5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from spade_async.agent.episode import Play, Played, PlayLimits, play_episode
from spade_async.environment.session import JailUse
from spade_async.environment.text import clean, one_line
from spade_async.generator.blacklist import SKIPPED
from spade_async.generator.context import GeneratorContext
from spade_async.generator.draft import EMPTY_TRACE
from spade_async.generator.meter import EngineMeter
from spade_async.seeds import derive
from spade_async.transport.experts import sent_experts
from spade_async.transport.messages import EpisodeResult, PlayTask
from spade_async.types import Arm, Episode, Outcome

log = logging.getLogger(__name__)

Send = Callable[[EpisodeResult], Awaitable[None]]


async def run_play(context: GeneratorContext, task: PlayTask, send: Send) -> int:
    """Play all seeds at once; `send` gets each result as soon as it is done.

    With a blacklist the first seed is played alone before the others.

    Returns how many episodes are missing by our own fault.

    Episode i samples from derive(task.seed, i). A fault of ours in one episode leaves the others
    alone.
    """
    await context.gate.wait(task.min_version)
    limits = PlayLimits(
        max_turns=task.max_turns,
        max_new_tokens=task.max_new_tokens,
        max_context_tokens=context.config.model.max_context_tokens,
        temperature=task.temperature,
        min_version=task.min_version,
    )
    alone = 0 if context.blacklist is None else 1
    faults = [await _episode(context, task, limits, index, send) for index in range(alone)]
    faults += await asyncio.gather(
        *(_episode(context, task, limits, index, send) for index in range(alone, len(task.seeds)))
    )
    return sum(faults)


async def _episode(
    context: GeneratorContext, task: PlayTask, limits: PlayLimits, index: int, send: Send
) -> bool:
    """Play and send one episode. True when it is missing by our own fault."""
    play = Play(
        environment_id=task.environment_id,
        source=task.source,
        hint_mode=task.hint_mode,
        hint=task.hint,
        arm=Arm(task.arm),
        seed=task.seeds[index],
        sampling_seed=derive(task.seed, index),
        is_unseeded=context.player.is_reference and task.purpose == "train",
    )
    meter = EngineMeter(context.player.engine)
    player = replace(context.player, engine=meter.as_engine())
    listed = context.blacklist
    try:
        if listed is not None and listed.has(play.environment_id, context.gate.loaded):
            listed.num_skipped += 1
            played = _missing(play, SKIPPED, Outcome.TIMED_OUT)
        else:
            played = await play_episode(player, play, limits)
    except asyncio.CancelledError:
        context.counters.cut_tokens[task.task_id] += meter.num_tokens
        raise
    except Exception as fault:
        # Recorded as missing with its reason; the other episodes go on.
        log.exception("episode %s[%d] is missing", task.task_id, index)
        played = _missing(play, f"ours: {type(fault).__name__}: {one_line(str(fault))}")
    if listed is not None and played.episode.outcome is Outcome.TIMED_OUT:
        listed.hung(play.environment_id, context.gate.loaded)
    reason = played.episode.missing_reason
    is_ours = reason is not None and reason.startswith("ours")
    if is_ours:
        log.warning("episode %s[%d] is missing: %s", task.task_id, index, reason)
    context.counters.jail.merge(played.jail)
    context.counters.episodes_done += 1
    context.counters.missing += is_ours
    room = context.config.link.max_message_bytes
    await send(_result(task, index, played, meter.timing(), room))
    return is_ours


def _missing(play: Play, reason: str, outcome: Outcome = Outcome.FINISHED) -> Played:
    episode = Episode(
        environment_id=play.environment_id,
        seed=play.seed,
        arm=play.arm,
        outcome=outcome,
        detail="",
        observation="",
        turns=(),
        episode_return=None,
        missing_reason=reason,
        trace=None,
    )
    return Played(episode, None, JailUse())


def _result(
    task: PlayTask, index: int, played: Played, timing: dict[str, float], max_message_bytes: int
) -> EpisodeResult:
    episode = played.episode
    trace = episode.trace if episode.trace is not None else EMPTY_TRACE
    # Only what is trained needs them: they are most of a message.
    is_trained = task.purpose == "train" and task.arm == Arm.NO_HINT
    return EpisodeResult(
        task_id=task.task_id,
        group_id=task.group_id,
        environment_id=task.environment_id,
        arm=task.arm,
        index=index,
        seed=episode.seed,
        purpose=task.purpose,
        outcome=episode.outcome.value,
        detail=clean(episode.detail),
        episode_return=episode.episode_return,
        missing_reason=episode.missing_reason,
        num_turns=len(episode.turns),
        transcript=[
            {
                "action": clean(turn.action),
                "observation": clean(turn.observation),
                "reward": turn.reward,
            }
            for turn in episode.turns
        ],
        observation=clean(episode.observation),
        hint_text=None if played.hint_text is None else clean(played.hint_text),
        jail=played.jail.as_message(),
        timing=timing,
        starts=list(trace.starts),
        token_ids=trace.token_ids,
        loss_mask=trace.loss_mask,
        generator_logprobs=trace.generator_logprobs,
        versions=trace.versions,
        experts=sent_experts(
            trace.experts if is_trained else None, max_message_bytes, f"episode {task.task_id}"
        ),
    )
