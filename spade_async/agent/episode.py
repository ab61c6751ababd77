"""One episode of the agent in one fresh jailed session (design step 5).

How an episode ends and what it is worth:

* the environment terminates: the last reward, clamped to [-1, 1];
* it truncates, the run's turn limit is reached, a reply is cut at its token limit, or the context
  has no room for another reply: 0.0, a real return (the task was not solved within the limits);
* the program fails (exception, time, memory, ...): no return, "environment: ..."; as the reference
  plays (`reference_rules.py`) an exception in a step is worth -1.0;
* the engine or the jail fails: no return, "ours: ...".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spade_async.agent import reference_rules
from spade_async.agent.action import action_text
from spade_async.agent.conversation import Conversation
from spade_async.agent.prompt import TokenCodec, first_messages, next_messages
from spade_async.domain import Domain
from spade_async.engine.leases import one_version
from spade_async.engine.protocol import Engine, Sampling
from spade_async.environment import contract
from spade_async.environment.session import Jail, JailUse, MeteredSession, open_session
from spade_async.environment.text import one_line
from spade_async.errors import GenerationError, SandboxError
from spade_async.seeds import derive
from spade_async.types import Arm, Episode, Outcome, Reply, Turn


@dataclass(frozen=True, slots=True)
class PlayLimits:
    """Limits of an episode, the same in both arms."""

    max_turns: int
    max_new_tokens: int
    """Per turn."""
    max_context_tokens: int
    temperature: float
    min_version: int = 0
    """Packed version that must be loaded before the first token."""
    version: int | None = None
    """See `Sampling.version`."""


@dataclass(frozen=True, slots=True)
class Player:
    """What plays: engine, codec, jail and domain. The same for every episode of a process."""

    engine: Engine
    tokens: TokenCodec
    pool: Jail
    domain: Domain
    is_reference: bool = False
    """Whether faults of an environment are the agent's, as in the reference."""


@dataclass(frozen=True, slots=True)
class Play:
    """What is played: one instance of one environment in one arm."""

    environment_id: str
    source: str
    hint_mode: str
    """"environment": the instance gives its hint; otherwise `hint` is the hint of all."""
    hint: str | None
    arm: Arm
    seed: int
    sampling_seed: int
    """Root of the sampling streams; turn t uses derive(sampling_seed, "turn", t)."""
    is_unseeded: bool = False
    """`reset()` is called without the seed, which then seeds chance alone."""


@dataclass(frozen=True, slots=True)
class Played:
    """An episode with what only reports need."""

    episode: Episode
    hint_text: str | None
    """The hint that was shown; None in the other arm."""
    jail: JailUse


@dataclass(slots=True)
class _State:
    """What is known of a running episode, so that a fault keeps what was seen."""

    observation: str = ""
    turns: list[Turn] = field(default_factory=list)
    talk: Conversation | None = None
    hint_text: str | None = None
    use: JailUse = field(default_factory=JailUse)


@dataclass(frozen=True, slots=True)
class _End:
    """How it ended: a return, or the reason why there is none."""

    episode_return: float | None
    outcome: Outcome = Outcome.FINISHED
    detail: str = ""
    missing_reason: str | None = None


async def play_episode(player: Player, play: Play, limits: PlayLimits) -> Played:
    """Play one episode. Faults of the environment, the engine and the jail are in the record."""
    state = _State()
    try:
        async with (
            open_session(player.pool, play.source, play.seed, state.use) as session,
            one_version(player.engine, limits.min_version) as version,
        ):
            end = await _run(player, play, replace(limits, version=version), session, state)
    except (GenerationError, SandboxError) as fault:
        reason = f"ours: {type(fault).__name__}: {one_line(str(fault))}"
        end = _End(None, missing_reason=reason)
    has_trace = end.episode_return is not None
    episode = Episode(
        environment_id=play.environment_id,
        seed=play.seed,
        arm=play.arm,
        outcome=end.outcome,
        detail=end.detail,
        observation=state.observation,
        turns=tuple(state.turns),
        episode_return=end.episode_return,
        missing_reason=end.missing_reason,
        trace=state.talk.trace() if has_trace and state.talk is not None else None,
        jail_wall_s=state.use.wall_s,
        jail_cpu_s=state.use.cpu_s,
    )
    return Played(episode, state.hint_text, state.use)


async def _run(
    player: Player, play: Play, limits: PlayLimits, session: MeteredSession, state: _State
) -> _End:
    if not session.loaded.ok:
        return _failed("load", session.loaded)
    first = await (session.reset(unseeded=True) if play.is_unseeded else session.reset())
    shown = reference_rules.error_observation(first) if player.is_reference else None
    if not first.ok and shown is None:
        return _failed("reset", first)
    state.observation = first.observation if shown is None else shown
    fault = await _read_hint(play, session, state)
    if fault is not None:
        return fault
    talk = Conversation(
        player.tokens,
        first_messages(player.domain, state.observation, arm=play.arm, hint=state.hint_text),
    )
    if len(talk.ids) >= limits.max_context_tokens:
        detail = (
            f"the first prompt of {len(talk.ids)} tokens leaves no room in "
            f"model.max_context_tokens={limits.max_context_tokens}"
        )
        return _End(None, Outcome.OVER_OUTPUT, detail, f"environment: {detail}")
    state.talk = talk
    for turn in range(limits.max_turns):
        room = limits.max_context_tokens - len(talk.ids)
        if room < 1:
            return _End(contract.episode_return(None, terminated=False), detail="context is full")
        sampling = Sampling(
            temperature=limits.temperature,
            max_new_tokens=min(limits.max_new_tokens, room),
            stop_token_ids=player.tokens.stop_token_ids,
            seed=derive(play.sampling_seed, "turn", turn),
            min_version=limits.min_version,
            version=limits.version,
        )
        generation = await player.engine.generate(list(talk.ids), sampling)
        talk.said(generation)
        if generation.finish_reason != "stop":
            # As in the reference: half a reply is no action. It is not solved within the limits.
            return _End(contract.episode_return(None, terminated=False), detail="reply was cut")
        reply_text = player.tokens.decode([int(token) for token in generation.token_ids])
        action = action_text(player.domain, reply_text)
        reply = await session.step(action)
        if not reply.ok:
            return _failed(f"step {turn + 1}", reply, charges_agent=player.is_reference)
        problem = contract.reward_problem(reply.reward)
        if problem is not None or reply.reward is None:
            detail = f"step {turn + 1}: {problem}"
            return _End(None, Outcome.BAD_VALUE, detail, f"environment: bad_value in {detail}")
        state.turns.append(
            Turn(action, reply.observation, reply.reward, reply.terminated, reply.truncated)
        )
        if reply.terminated or reply.truncated:
            value = contract.episode_return(reply.reward, terminated=reply.terminated)
            return _End(value, detail="" if reply.terminated else "truncated by the environment")
        if turn + 1 < limits.max_turns:
            talk.seen(next_messages(player.domain, reply.observation))
    return _End(contract.episode_return(None, terminated=False), detail="turn limit reached")


async def _read_hint(play: Play, session: MeteredSession, state: _State) -> _End | None:
    """Put the hint to show into `state`; an `_End` when the hinted arm cannot have one."""
    shown = play.arm is Arm.WITH_HINT
    if play.hint_mode != "environment" or play.hint:
        state.hint_text = play.hint if shown else None
    else:
        # Asked for in both arms: a hint() that changes the game must change it in both.
        reply = await session.hint()
        if not shown:
            return None
        if not reply.ok:
            return _failed("hint", reply)
        state.hint_text = reply.observation.strip()[: contract.MAX_HINT_CHARS]
    if shown and not state.hint_text:
        detail = "there is no hint for this instance"
        return _End(None, Outcome.BAD_VALUE, detail, f"environment: {detail}")
    return None


def _failed(where: str, reply: Reply, *, charges_agent: bool = False) -> _End:
    """The environment's fault: a missing return, or the agent's loss as in the reference."""
    detail = f"{where}: {one_line(reply.detail, 300)}"
    if charges_agent and reply.outcome in reference_rules.CHARGED:
        return _End(reference_rules.FAULT_RETURN, reply.outcome, detail)
    reason = f"environment: {reply.outcome.value} in {where}"
    return _End(None, reply.outcome, detail, reason)
