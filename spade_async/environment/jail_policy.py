"""The limits of the jail as a run's configuration gives them."""

from __future__ import annotations

from spade_async.config.schema import Config
from spade_async.errors import ConfigError
from spade_async.sandbox_policy import SandboxPolicy


def sandbox_policy(config: Config) -> SandboxPolicy:
    """The policy of each generator's pool.

    Raises:
        ConfigError: what only the jail can check: a profile that is not there, a file of profiles
            that cannot be read.
    """
    sandbox = config.sandbox
    try:
        return SandboxPolicy(
            backend=sandbox.backend,
            allow_unsafe=sandbox.allow_unsafe,
            level=sandbox.level,
            profiles=sandbox.profiles,
            num_workers=sandbox.workers,
            spares=max(1, sandbox.spares),
            queue=sandbox.queue,
            wall_s_per_call=sandbox.wall_s_per_call,
            cpu_s_per_call=sandbox.cpu_s_per_call,
            memory_bytes=sandbox.memory_bytes,
            reply_bytes=sandbox.reply_bytes,
            code_cache_bytes=sandbox.code_cache_bytes,
            rotate_after=sandbox.rotate_after,
            rotate_after_s=sandbox.rotate_after_s,
            max_turns=config.agent.max_turns,
        )
    except ValueError as cause:
        raise ConfigError(f"sandbox: {cause}") from cause
