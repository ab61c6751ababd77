"""Makes the engine, the codec and the jail that the configuration names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade_async.agent.prompt import TokenCodec
from spade_async.config.schema import Config
from spade_async.engine.protocol import Engine
from spade_async.engine.scripted_codec import ScriptedCodec
from spade_async.engine.scripted_jail import ScriptedJail
from spade_async.engine.scripted_paced import PacedEngine
from spade_async.environment.jail_policy import sandbox_policy
from spade_async.sandbox import Pool

if TYPE_CHECKING:
    from spade_async.engine.tokens import ChatTokens


def make_jail(config: Config) -> Pool | ScriptedJail:
    """The jail, not started yet; a scripted run may have one that runs nothing."""
    policy = sandbox_policy(config)
    if config.is_scripted and not config.scripted.jail:
        return ScriptedJail(policy)
    return Pool(policy)


@dataclass(frozen=True, slots=True)
class Codecs:
    """The codec of the model's tokenizer and chat template, as each use sets it."""

    agent: TokenCodec
    designer: TokenCodec
    brief: TokenCodec
    """Without thinking where the template can: for replies of a few words, such as hints."""


def make_tokens(config: Config, folder: Path, *, quick: bool = False) -> Codecs:
    """The codecs of a model folder; for `quick` see `ChatTokens.from_folder`.

    Raises:
        ConfigError: see `ChatTokens.from_folder`.
    """
    if config.is_scripted:
        return Codecs(*[ScriptedCodec()] * 3)
    from spade_async.engine.tokens import ChatTokens

    thinking, key = config.agent.thinking, "agent.thinking"
    agent = ChatTokens.from_folder(folder, thinking=thinking, key=key, quick=quick)
    return _for_each_use(config, agent)


def codecs_of(config: Config, tokenizer: Any) -> Codecs:
    """The same of a tokenizer that lies in no folder yet.

    Raises:
        ConfigError: its template cannot do what the configuration asks for.
    """
    from spade_async.engine.tokens import ChatTokens

    thinking = config.agent.thinking
    return _for_each_use(config, ChatTokens(tokenizer, thinking=thinking, key="agent.thinking"))


def _for_each_use(config: Config, agent: ChatTokens) -> Codecs:
    designer = agent
    if config.designer.thinking != config.agent.thinking:
        designer = agent.with_thinking(config.designer.thinking, "designer.thinking")
    brief = agent.with_thinking(False, "hint") if agent.has_switch else designer
    return Codecs(agent, designer, brief)


async def make_engine(config: Config, folder: Path) -> Engine:
    """The engine of `engine.kind`, with the model's own weights until others are loaded.

    Raises:
        ConfigError: this kind cannot run here, or not this model.
    """
    kind = config.engine.kind
    finish = config.async_.in_flight == "finish"
    if kind == "scripted":
        return PacedEngine(config.scripted, slots=config.engine.slots, finish=finish)
    engine: Engine
    if kind == "vllm":
        from spade_async.engine.vllm.engine import VllmEngine

        lora = config.learner.lora
        engine = await VllmEngine.create(
            folder,
            config.engine,
            config.model.max_context_tokens,
            lora=lora if lora.pushes_adapter else None,
            returns_experts=config.learner.replay_experts,
            sleeps=config.cluster.takes_turns,
        )
        return engine
    from spade_async.engine.builtin import BuiltinEngine

    engine = await BuiltinEngine.create(
        model_folder=folder,
        config=config.engine,
        max_context_tokens=config.model.max_context_tokens,
        finish=finish,
        returns_experts=config.learner.replay_experts,
    )
    return engine
