"""What a dry run changes of a configuration, as `--set` arguments."""

from __future__ import annotations

import json
from pathlib import Path

from spade_async.config.schema import Config

STEPS = 2
REPLY_TOKENS = 300
"""A random model ends its reply at each token with a chance of one in its vocabulary of 261."""


def settings(config: Config, folder: Path) -> list[str]:
    """The overrides, on top of the recipe's and the user's.

    Args:
        config: of the recipe, resolved.
        folder: of the tiny model, with programs for the pool: a random model writes none that is
            valid.
    """
    changed: dict[str, object] = {
        "run.name": f"{config.run.name[:59]}-fake",
        "run.fake_weights": True,
        "model.path": str(folder),
        "cluster.gpus": 0,
        "grounding.corpus": "stdlib-docstrings",
        "grounding.max_document_words": 60,
        "designer.group_size": 2,
        "designer.groups_per_step": 1,
        "designer.max_new_tokens": REPLY_TOKENS,
        "designer.reward.delay": 0,
        "agent.pool": str(folder),
        "agent.pool_share": 0.5,
        "agent.groups_per_step": 2,
        "agent.seeds_per_environment": 4,
        "agent.max_turns": 1,
        "agent.max_new_tokens_per_turn": REPLY_TOKENS,
        "engine.slots": 8,
        "generator.count": 1,
        "generator.concurrent_tasks": 8,
        "sandbox.workers": 12,
        "sandbox.spares": 2,
        "learner.device": "cpu",
        "learner.ranks": 1,
        "learner.dtype": "float32",
        "checkpoint.every": STEPS,
        "train.steps": STEPS,
    }
    if config.engine.kind == "vllm":
        changed |= {
            "engine.vllm.dtype": "float32",
            "engine.vllm.tensor_parallel": 1,
            "engine.vllm.transfer": "file",
        }
    return [f"{key}={json.dumps(value)}" for key, value in changed.items()]
