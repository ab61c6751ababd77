"""Writes a built corpus: JSON lines with text, source, licence and digest, the same every time."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spade_async.errors import ConfigError
from spade_async.grounding.build.passage import Text, fingerprint, passages


@dataclass(frozen=True, slots=True)
class Built:
    """What was written."""

    path: Path
    num_passages: int
    num_words: int
    num_copies: int
    """Passages that were left out, because one like it was there."""
    licences: Counter[str]
    """Passages by licence."""
    digest: str
    """sha256 (hex) of the lines, before any packing."""


def write_corpus(texts: Iterable[Text], path: Path, *, words: int) -> Built:
    """Passages of texts as a corpus file; it appears under its name only when complete.

    Args:
        texts: in the order they shall stand.
        path: ends with .jsonl or .jsonl.gz; must not exist.
        words: of a passage.

    Raises:
        ConfigError: it exists, cannot be written, or there is nothing to write.
    """
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise ConfigError(f"--out {path}: a corpus is JSON lines: end its name with .jsonl[.gz]")
    if path.exists():
        raise ConfigError(f"--out {path} exists: remove it or choose another name")
    seen: set[str] = set()
    licences: Counter[str] = Counter()
    digest = hashlib.sha256()
    num_words = num_copies = 0
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".draft-", delete=False) as file:
            draft = Path(file.name)
    except OSError as cause:
        raise ConfigError(f"--out {path} cannot be written: {cause}") from cause
    try:
        with draft.open("wb") as raw, _packed(raw, path) as out:
            for text, passage in _passages(texts, words):
                mark = fingerprint(passage)
                if mark in seen:
                    num_copies += 1
                    continue
                seen.add(mark)
                line = _line(text, passage)
                out.write(line)
                digest.update(line)
                licences[text.licence] += 1
                num_words += len(passage.split())
        if not seen:
            raise ConfigError("there is nothing to build a corpus from: see `corpus build --help`")
        draft.chmod(0o644)
        os.replace(draft, path)
    except OSError as cause:
        raise ConfigError(f"--out {path} cannot be written: {cause}") from cause
    finally:
        draft.unlink(missing_ok=True)
    return Built(path, len(seen), num_words, num_copies, licences, digest.hexdigest())


def _passages(texts: Iterable[Text], words: int) -> Iterator[tuple[Text, str]]:
    for text in texts:
        for passage in passages(text.text, words):
            yield text, passage


def _line(text: Text, passage: str) -> bytes:
    clean = passage.encode("utf-8", "replace").decode()
    row = {
        "text": clean,
        "source": text.source,
        "licence": text.licence,
        "sha256": hashlib.sha256(clean.encode()).hexdigest(),
    }
    return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _packed(raw: IO[bytes], path: Path) -> IO[bytes] | gzip.GzipFile:
    # No time and no name in the header: the same lines are the same file.
    return gzip.GzipFile("", "wb", 6, raw, 0) if path.suffix == ".gz" else raw
