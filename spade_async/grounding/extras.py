"""Libraries that only some corpora need: the extra `corpus`, never a hard dependency."""

from __future__ import annotations

import importlib
from typing import Any

from spade_async.errors import ConfigError

EXTRA = "corpus"
"""Name of the extra in pyproject.toml."""


def need(module: str, what: str) -> Any:
    """The module.

    Args:
        module: name to import.
        what: the file that needs it, for the message.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        package = module.partition(".")[0]
        raise ConfigError(
            f"grounding.corpus: {what} needs {package}, which is not installed ({cause}): "
            f"pip install 'spade-async[{EXTRA}]', or give JSON lines"
        ) from cause
