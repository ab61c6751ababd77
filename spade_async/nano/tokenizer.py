"""The nano tokenizer: longest lexeme first, single characters for the rest, ids in listed order."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade_async.errors import ConfigError
from spade_async.nano import vocabulary as v
from spade_async.nano.chat import CHAT_TEMPLATE
from spade_async.nano.model import MAX_POSITIONS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HASH_FILE = "tokenizer_hash.txt"
"""Beside the model: sha256 (hex) of tokenizer.json."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer as transformers' fast class, with the chat template."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = v.vocabulary()
    tokenizer = Tokenizer(
        models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=v.UNKNOWN)
    )
    pieces = sorted(
        (token for token in tokens[len(v.SPECIALS) :] if len(token) > 1), key=len, reverse=True
    )
    pattern = "|".join([*map(re.escape, pieces), r"[\s\S]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    make: Any = PreTrainedTokenizerFast  # its constructor has no types
    made: PreTrainedTokenizerFast = make(
        tokenizer_object=tokenizer,
        unk_token=v.UNKNOWN,
        pad_token=v.PAD,
        eos_token=v.END,
        additional_special_tokens=[t for t in v.SPECIALS if t not in (v.UNKNOWN, v.PAD, v.END)],
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_POSITIONS,
    )
    return made


def save_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Write the tokenizer and its hash into a model folder."""
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    (folder / HASH_FILE).write_text(_digest(folder) + "\n")
    return tokenizer


def check_tokenizer(folder: Path) -> None:
    """Check the tokenizer of a model folder against the hash stored with it.

    Raises:
        ConfigError: a file is missing or the tokenizer is not the one the weights were made with.
    """
    try:
        wanted, found = (folder / HASH_FILE).read_text().strip(), _digest(folder)
    except OSError as cause:
        raise ConfigError(
            f"model.path={str(folder)!r}: {cause.filename} cannot be read ({cause.strerror}); "
            "delete the folder and it is made again"
        ) from cause
    if wanted != found:
        raise ConfigError(
            f"model.path={str(folder)!r}: tokenizer.json has digest {found[:12]}, the weights were "
            f"made with {wanted[:12]}; delete the folder and it is made again"
        )


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
