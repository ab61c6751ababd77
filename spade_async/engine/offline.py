"""Keeps transformers away from any hub; says in one line what is wrong with a model folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from spade_async.errors import ConfigError


def stay_offline() -> None:
    """Forbid hub look-ups in this process; call before transformers is imported first."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def check_model_folder(folder: Path) -> dict[str, Any]:
    """The folder's config.json, after checking that this is a model folder.

    Raises:
        ConfigError: missing, not a model folder, or config.json cannot be read.
    """
    path = folder / "config.json"
    if not folder.is_dir():
        raise ConfigError(f"model folder {folder} does not exist: set model.path to a model folder")
    if not path.is_file():
        raise ConfigError(f"{folder} is not a model folder: it has no config.json")
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as cause:
        raise ConfigError(f"{path} is damaged ({cause}): make or copy the model again") from cause
    if not isinstance(config, dict):
        raise ConfigError(f"{path} is damaged (not an object): make or copy the model again")
    return config
