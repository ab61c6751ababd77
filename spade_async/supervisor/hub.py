"""`model.path` as the name of a model on a hub: found in the cache, else fetched, before a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from spade_async.config.schema import Config
from spade_async.errors import ConfigError

_HUB_ID = re.compile(r"(?P<id>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?")
_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken"]
"""What a run reads of a model: no other framework's weights."""


def is_hub_id(path: str) -> bool:
    """Whether `model.path` is "owner/name" or "owner/name@revision", and no folder."""
    return _HUB_ID.fullmatch(path) is not None and not Path(path).exists()


def with_local_model(config: Config) -> Config:
    """The configuration with the folder of a hub's model in place of its name.

    Raises:
        ConfigError: it is not in the cache, and no hub gives it.
    """
    path = config.model.path
    if not is_hub_id(path):
        return config
    model = config.model.model_copy(update={"path": str(fetch(path))})
    return config.model_copy(update={"model": model})


def fetch(path: str) -> Path:
    """Folder of a hub's model, in the cache; downloaded when it is not there.

    Args:
        path: "owner/name" or "owner/name@revision".

    Raises:
        ConfigError: it is not in the cache, and no hub gives it; the line says which it was.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    found = _HUB_ID.fullmatch(path)
    assert found is not None, path
    name, revision = found["id"], found["revision"]
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=_FILES, local_files_only=True
        )
        if (Path(folder) / "config.json").is_file():
            return Path(folder)
    except LocalEntryNotFoundError:
        pass
    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT)
    if constants.is_offline_mode():
        raise ConfigError(f"{_missing(path)} and HF_HUB_OFFLINE forbids to ask a hub: {_REMEDY}")
    try:
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=_FILES, endpoint=endpoint)
        )
    except Exception as cause:
        # Of many kinds: no network, no such model, a gated one, a full disk.
        said = str(cause.__cause__ or cause).strip().splitlines() or [type(cause).__name__]
        raise ConfigError(
            f"{_missing(path)} and {endpoint} does not give it ({said[0]}): {_REMEDY}"
        ) from cause


_REMEDY = "copy the model's folder to this machine and set model.path to it"


def _missing(path: str) -> str:
    return f"model.path={path!r} is no folder here, it is not in the cache of the hub,"
