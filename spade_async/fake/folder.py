"""The folder of a dry run's model and programs, in the cache; made in a process of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from spade_async.config.schema import Config
from spade_async.disk import model_cache
from spade_async.errors import ConfigError
from spade_async.planning.architecture import known_names, known_settings

PROGRAM = '''\
"""Pays 1 where the characters of the reply add up to an even number: chance, whoever plays."""


class ChanceEnv:
    def reset(self, seed=None):
        return f"Say anything. This is instance {seed}.", {}

    def step(self, action):
        return "over", float(sum(map(ord, action)) % 2 == 0), True, False, {}
'''
"""The one program of the pool. A random model learns nothing from it, but its returns differ, so
that a step has something to train."""
_VERSION = 1
"""Raised when what is written changes."""


def make(config: Config) -> Path:
    """Find or make them for the architecture of `model.path`: a model folder, with a program in it.

    Raises:
        ConfigError: what architecture that is cannot be known here, or it cannot be made.
    """
    real = json.dumps(_real(config.model.path), sort_keys=True)
    key = hashlib.sha256(f"{_VERSION} {PROGRAM} {real}".encode()).hexdigest()[:20]
    folder = model_cache.cache_root() / f"fake-{key}"

    def fill(target: Path) -> None:
        (target / "chance.py").write_text(PROGRAM)
        done = subprocess.run(
            [sys.executable, "-m", "spade_async.fake.model", target, real],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
            raise ConfigError(
                f"model.path={config.model.path!r}: no fake of it can be made: {last}"
            )

    made = model_cache.make(folder, "fake", lambda share, text: None, fill)
    return made


def _real(path: str) -> dict[str, Any]:
    """The real model's config.json: of its folder, else the built-in one of that name."""
    file = Path(path) / "config.json"
    if file.is_file():
        try:
            found = json.loads(file.read_text())
        except (OSError, ValueError) as cause:
            raise ConfigError(f"{file} cannot be read ({cause})") from cause
        if isinstance(found, dict) and "num_attention_heads" in found and "model_type" in found:
            return found
        raise ConfigError(f"{file} says neither model_type nor num_attention_heads: no fake of it")
    known = known_settings(path)
    if known is None:
        raise ConfigError(
            f"--fake-weights: model.path={path!r} is no folder here, and its architecture is not "
            f"built in ({', '.join(known_names())}): name one of these, or a folder with a "
            "config.json"
        )
    return known
