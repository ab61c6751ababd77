"""Files that cannot be read from the middle, unpacked once: gzip, zstd, UTF-16.

The plain copy lies in ``$XDG_CACHE_HOME/spade-async/corpus`` (or ``~/.cache``), named by path, size
and samples of the original (gzip ends with a checksum); it is written beside and renamed, so it is
whole or not there.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from spade_async.errors import ConfigError
from spade_async.grounding.blocks import sampled_digest
from spade_async.grounding.extras import need

log = logging.getLogger(__name__)

FREE_BYTES = 1 << 30
"""What unpacking leaves free on the disk of the cache."""
_CHUNK = 4 << 20
_ZSTD_CHUNK = 4 << 10
"""Of packed bytes: one of them may become 32 KiB, and all that comes of a chunk is in memory."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BOMS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def packing(path: Path) -> str | None:
    """How a file is packed ("gzip", "zstd", "utf-16"), by its first bytes; None when it is not."""
    with path.open("rb") as file:
        head = file.read(4)
    for magic, kind in (_MAGIC | _BOMS).items():
        if head.startswith(magic):
            return kind
    return None


def unpacked(path: Path, kind: str) -> Path:
    """The plain copy of a packed file, made now if it is not there.

    Raises:
        ConfigError: it is damaged, the disk is too full, or zstandard is not installed.
    """
    identity = f"{path.resolve()}\0{sampled_digest(path)}\0{kind}"
    folder = cache_folder()
    plain = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.{path.stem}"
    if plain.exists():
        return plain
    log.info("corpus: unpacking %s (%s) once into %s", path, kind, plain)
    draft = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".draft-", delete=False) as out:
            draft = Path(out.name)
            for chunk in _chunks(path, kind):
                if shutil.disk_usage(folder).free < FREE_BYTES + len(chunk):
                    raise ConfigError(
                        f"grounding.corpus: {path} does not fit unpacked into {folder} with "
                        f"{FREE_BYTES >> 20} MiB to spare: free some room or set XDG_CACHE_HOME"
                    )
                out.write(chunk)
        os.replace(draft, plain)
    except (OSError, EOFError, UnicodeError, ValueError) as cause:
        raise ConfigError(
            f"grounding.corpus: {path} cannot be unpacked as {kind} ({cause}): it is damaged or "
            "not whole; fetch it again"
        ) from cause
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)
    return plain


def cache_folder() -> Path:
    """Where plain copies lie; may be emptied when no run needs them."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "spade-async" / "corpus"


def _chunks(path: Path, kind: str) -> Iterator[bytes]:
    if kind == "utf-16":
        decoder = codecs.getincrementaldecoder("utf-16")()
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                yield decoder.decode(data).encode("utf-8", "replace")
            yield decoder.decode(b"", final=True).encode("utf-8", "replace")
        return
    if kind == "gzip":
        with gzip.open(path) as file:
            yield from _read(file)
        return
    zstandard = need("zstandard", str(path))
    try:
        with path.open("rb") as file:
            yield from _frames(file, zstandard)
    except zstandard.ZstdError as cause:
        raise ValueError(str(cause)) from cause


def _frames(file: IO[bytes], zstandard: Any) -> Iterator[bytes]:
    """All frames of a zstd file. EOFError in the middle of one: a plain reader would stop there."""
    frame = None
    data = b""
    while data := data or file.read(_ZSTD_CHUNK):
        frame = frame or zstandard.ZstdDecompressor().decompressobj()
        yield frame.decompress(data)
        data = b""
        if frame.eof:
            data, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("compressed file ended before the end of its last frame")


def _read(file: IO[bytes] | Any) -> Iterator[bytes]:
    while data := file.read(_CHUNK):
        yield data
