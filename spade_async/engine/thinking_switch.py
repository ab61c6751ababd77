"""Whether a model's chat template names a thinking switch, read without loading the tokenizer.

For the supervisor, before anything starts. The generator then tries the switch itself
(`chat_template.py`), which is exact.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from spade_async.config.schema import Config
from spade_async.engine.chat_template import SWITCHES, no_switch
from spade_async.errors import ConfigError

_NAMED = re.compile(rf"\b({'|'.join(SWITCHES)})\b")


def check_thinking(config: Config, folder: Path | None) -> None:
    """See that `designer.thinking` and `agent.thinking`, where set, can be obeyed.

    Args:
        config: both sections are read.
        folder: of the model; None when it is not made yet.

    Raises:
        ConfigError: the model's template names no switch, or there is no template at all.
    """
    for key, thinking in (
        ("designer.thinking", config.designer.thinking),
        ("agent.thinking", config.agent.thinking),
    ):
        if thinking is None:
            continue
        if config.is_scripted:
            raise ConfigError(
                f'{key}={str(thinking).lower()}, but engine.kind="scripted" has no chat template: '
                f"leave {key} out"
            )
        text = None if folder is None else _template_text(folder)
        if text is not None and not _NAMED.search(text):
            raise ConfigError(no_switch(key, thinking, str(folder)))


def _template_text(folder: Path) -> str | None:
    """All templates of a model folder as one text; None when none is found where one may be."""
    texts = [path.read_text("utf-8", "replace") for path in folder.glob("*.jinja")]
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        found = settings.get("chat_template")
    except (OSError, ValueError, AttributeError):
        found = None
    if found is not None:
        texts.append(json.dumps(found))
    return "\n".join(texts) if texts else None
