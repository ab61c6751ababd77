"""Makes the engine and the codec that the configuration names."""

from __future__ import annotations

from pathlib import Path

from spade_async.agent.prompt import TokenCodec
from spade_async.config.schema import Config
from spade_async.engine.protocol import Engine
from spade_async.errors import ConfigError


def make_tokens(folder: Path) -> TokenCodec:
    """The codec of the model's tokenizer and chat template."""
    from spade_async.engine.tokens import ChatTokens

    return ChatTokens.from_folder(folder)


async def make_engine(config: Config, folder: Path) -> Engine:
    """The engine of `engine.kind`, with the model's own weights until others are loaded.

    Raises:
        ConfigError: this kind cannot run a training.
    """
    kind = config.engine.kind
    if kind != "builtin":
        raise ConfigError(
            f'engine.kind={kind!r} cannot generate in a run yet: set engine.kind="builtin"'
        )
    from spade_async.engine.builtin import BuiltinEngine

    engine: Engine = await BuiltinEngine.create(
        model_folder=folder,
        config=config.engine,
        max_context_tokens=config.model.max_context_tokens,
    )
    return engine
