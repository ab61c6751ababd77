"""A Hugging Face model folder, looked at before anything is loaded: complete, and of one model.

Reads configuration, tokenizer and the headers of the weights; nothing heavy is imported. Whether
the weights are numbers is `model_numbers`.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from spade_async.errors import ConfigError
from spade_async.planning.architecture import architecture
from spade_async.supervisor.tensor_file import StoredTensor, read_header

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_TOKENIZER = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json",
    "*.tiktoken",
)  # fmt: skip
"""Files that hold a vocabulary; tokenizer_config.json holds none."""
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")
_AGAIN = "copy the model again"
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")

TRAINABLE = {"F64", "F32", "F16", "BF16"}
"""Types of weights that can be trained, by their names in a file."""
DTYPES = ("float64", "float32", "float16", "bfloat16")
"""The same, by their names in config.json."""


def check_model_folder(path: Path, max_context_tokens: int | None = None) -> None:
    """See that the folder is whole, and that its parts belong together.

    Args:
        path: the folder.
        max_context_tokens: `model.max_context_tokens`; held against the positions of the model.

    Raises:
        ConfigError: no folder, no readable config.json, no tokenizer or one of another model, no
            weights, a shard that is missing or cut, a type of weights that cannot be trained, or
            fewer positions than asked for. One line, with the remedy.
    """
    where = f"model.path={str(path)!r}"
    if not path.is_dir():
        raise ConfigError(
            f'{where}: no such folder; give a Hugging Face model folder or "nano" to make one'
        )
    settings = _settings(path, where)
    if not any(any(path.glob(name)) for name in _TOKENIZER):
        raise ConfigError(
            f"{where}: it has no tokenizer (tokenizer.json, tokenizer.model or the like); copy it "
            "from the model that these weights come from"
        )
    tensors = _tensors(path, where)
    _check_types(settings, tensors, where)
    _check_vocabulary(path, settings, tensors, where)
    _check_count(settings, tensors, where)
    _check_positions(settings, max_context_tokens, where)


def weight_files(path: Path) -> list[Path]:
    """The files with weights of a model folder."""
    return [file for pattern in _WEIGHTS for file in sorted(path.glob(pattern))]


def _settings(path: Path, where: str) -> dict[str, Any]:
    try:
        settings = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        raise ConfigError(f"{where}: it has no config.json, so it is no model folder") from None
    except (OSError, ValueError) as cause:
        raise ConfigError(f"{where}: config.json cannot be read ({cause}); copy it again") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{where}: config.json is damaged; {_AGAIN}")
    text = settings.get("text_config")
    return text if isinstance(text, dict) else settings


def _tensors(path: Path, where: str) -> dict[str, StoredTensor]:
    """Every tensor of the safetensors files; files of another format are not looked into.

    Raises:
        ConfigError: no weights, a damaged file, or a shard that is missing.
    """
    files = weight_files(path)
    if not files:
        raise ConfigError(f"{where}: it has no weights ({' or '.join(_WEIGHTS)})")
    found: dict[str, StoredTensor] = {}
    for file in files:
        try:
            if file.suffix == ".safetensors":
                found |= read_header(file)
            elif file.stat().st_size == 0:
                raise ValueError("it is empty")
        except (ValueError, OSError) as cause:
            raise ConfigError(f"{where}: {file.name} is damaged ({cause}); copy it again") from None
    missing = _missing_shards(path, {file.name for file in files})
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ConfigError(f"{where}: it lacks {missing[0]}{more}, a part of its weights; {_AGAIN}")
    lacking = [name for name in _indexed(path) if name not in found]
    if lacking:
        raise ConfigError(
            f"{where}: {_INDEX} names the weight {lacking[0]!r}, which no file holds; {_AGAIN}"
        )
    return found


def _indexed(path: Path) -> dict[str, str]:
    """Name of a weight -> its file, by the index; {} without one, or when it says nothing."""
    try:
        found = json.loads((path / _INDEX).read_text())["weight_map"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): str(file) for name, file in found.items()}


def _missing_shards(path: Path, present: set[str]) -> list[str]:
    """Files that the index, or the numbers in the names of the others, say must be there."""
    wanted = set(_indexed(path).values())
    for name in present:
        shard = _SHARD.fullmatch(name)
        if shard is not None:
            start, _, count = shard.groups()
            numbers = range(1, min(int(count), 10_000) + 1)
            wanted |= {f"{start}-{n:05d}-of-{count}.safetensors" for n in numbers}
    return sorted(wanted - present)


def _check_types(settings: dict[str, Any], tensors: dict[str, StoredTensor], where: str) -> None:
    dtype = settings.get("dtype", settings.get("torch_dtype"))
    if dtype is not None and str(dtype).removeprefix("torch.") not in DTYPES:
        raise ConfigError(
            f"{where}: config.json says dtype={dtype!r}, which is none of {', '.join(DTYPES)}; "
            "take the model in one of these"
        )
    if settings.get("quantization_config"):
        raise ConfigError(
            f"{where}: config.json says that it is quantised, and such weights cannot be trained; "
            "take the model in bfloat16 or float32"
        )
    odd = [(name, t.dtype) for name, t in tensors.items() if t.dtype not in TRAINABLE]
    if odd:
        name, kind = odd[0]
        raise ConfigError(
            f"{where}: the weight {name!r} is of type {kind}, which cannot be trained; take the "
            "model in bfloat16 or float32"
        )


def _check_count(settings: dict[str, Any], tensors: dict[str, StoredTensor], where: str) -> None:
    """A weight that is left out would be random numbers, and nothing would fail.

    Only for networks whose size is known by formula; the learner sees the others when it loads.
    """
    if settings.get("mlp_only_layers") or settings.get("decoder_sparse_step", 1) != 1:
        return
    try:
        shape = architecture(settings, where)
    except ConfigError:
        return
    found = sum(
        math.prod(tensor.shape)
        for name, tensor in tensors.items()
        if not (name.endswith("inv_freq") or (shape.is_tied and name == "lm_head.weight"))
    )
    if tensors and found < shape.num_weights:
        raise ConfigError(
            f"{where}: its weights are {found:,} numbers, and by config.json the model has "
            f"{shape.num_weights:,}: a part of them is missing; {_AGAIN}"
        )


def _check_vocabulary(
    path: Path, settings: dict[str, Any], tensors: dict[str, StoredTensor], where: str
) -> None:
    """Tokens, configuration and embedding must speak of the same vocabulary."""
    largest = _largest_id(path, where)
    size = settings.get("vocab_size")
    if not isinstance(size, int):
        return
    for name, tensor in tensors.items():
        if name.endswith(_EMBEDDINGS) and tensor.shape and tensor.shape[0] != size:
            raise ConfigError(
                f"{where}: config.json says vocab_size={size}, its weights hold {tensor.shape[0]} "
                f"tokens ({name!r}): they are of different models; {_AGAIN}"
            )
    if largest is not None and largest >= size:
        raise ConfigError(
            f"{where}: its tokenizer has token ids up to {largest}, the model knows {size} tokens: "
            "it is the tokenizer of another model; copy the one that came with the weights"
        )


def _largest_id(path: Path, where: str) -> int | None:
    """Largest token id of tokenizer.json; None when it does not say."""
    try:
        stored = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as cause:
        raise ConfigError(
            f"{where}: tokenizer.json cannot be read ({cause}); copy it again"
        ) from None
    if not isinstance(stored, dict):
        return None
    model = stored.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids: list[int] = []
    if isinstance(vocabulary, dict):
        ids += [value for value in vocabulary.values() if isinstance(value, int)]
    elif isinstance(vocabulary, list):
        ids.append(len(vocabulary) - 1)
    added = stored.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            ids.append(token["id"])
    return max(ids, default=None)


def _check_positions(settings: dict[str, Any], wanted: int | None, where: str) -> None:
    positions = settings.get("max_position_embeddings")
    if wanted is not None and isinstance(positions, int) and 0 < positions < wanted:
        raise ConfigError(
            f"{where}: it has {positions} positions, model.max_context_tokens={wanted} is more: "
            f"set at most {positions}"
        )
