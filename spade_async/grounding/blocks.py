"""Files of a corpus as numbered blocks of rows, so that any part is read without the rest.

A block of a text file is a range of bytes and holds the rows that begin in it. No index is made and
nothing is read ahead: a file of any size opens at once, and holes of a sparse file are passed over.
"""

from __future__ import annotations

import bisect
import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spade_async.grounding.document import BadRow
from spade_async.grounding.row_rule import Bad, Content

BLOCK_BYTES = 64 << 10
MAX_ROW_BYTES = 4 << 20
"""A longer row is a bad row; it is not read."""
ROUND_BYTES = 16 << 20
"""Rows that are shuffled together are about so much."""
MIN_PASSAGE_WORDS = 12
"""A shorter rest of a text is left out; a text that is no longer in all is not."""
_COUNTED_BYTES = 1 << 30
"""Lines are counted up to here, to name one; further on its byte is named."""
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Row:
    """One row as read."""

    row_id: str
    """Unique in its corpus and stable: NAME@BYTE, or NAME#ROW where rows are numbered."""
    content: Content


class Blocks(Protocol):
    """A file, or several, in blocks."""

    num_blocks: int
    blocks_per_round: int
    digest: str
    """Changes when the content does, as far as samples of it show."""
    skipped: Sequence[BadRow]
    """Whole files that could not be read."""

    def rows(self, block: int) -> Iterator[Row]:
        """Rows that begin in this block.

        Raises:
            OSError: it cannot be read any more.
        """

    def place(self, row_id: str) -> str:
        """Where a row is, in words for a person."""


class LineFile:
    """A UTF-8 file with a row on each line; blank lines are none."""

    blocks_per_round = ROUND_BYTES // BLOCK_BYTES
    skipped: Sequence[BadRow] = ()

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name
        self._size = path.stat().st_size
        self.num_blocks = -(-self._size // BLOCK_BYTES)
        self.digest = sampled_digest(path)

    def rows(self, block: int) -> Iterator[Row]:
        """See `Blocks`."""
        for offset, line in self.lines(block):
            if isinstance(line, Bad) or line.strip():
                yield Row(f"{self._name}@{offset}", line)

    def lines(self, block: int) -> Iterator[tuple[int, bytes | Bad]]:
        """(byte, line) of the lines that begin in a block."""
        start = block * BLOCK_BYTES
        end = min(start + BLOCK_BYTES, self._size)
        with self._path.open("rb") as file:
            if start and _is_hole(file.fileno(), start - 1, end):
                return
            file.seek(max(0, start - 1))
            # What the block before has begun: its end is here, or no row begins here at all.
            if start and not file.readline(end - start).endswith(b"\n"):
                return
            at = file.tell()
            while at < end:
                line = file.readline(MAX_ROW_BYTES + 1)
                if not line:
                    return
                here, at = at, at + len(line)
                if len(line) <= MAX_ROW_BYTES:
                    yield here, line.removeprefix(b"\xef\xbb\xbf") if here == 0 else line
                    continue
                yield here, Bad(f"row of more than {MAX_ROW_BYTES} bytes")
                if at >= end or not file.readline(end - at).endswith(b"\n"):
                    return
                at = file.tell()

    def place(self, row_id: str) -> str:
        """See `Blocks`."""
        offset = int(row_id.rpartition("@")[2])
        if offset > _COUNTED_BYTES:
            return f"byte {offset}"
        number, left = 1, offset
        with self._path.open("rb") as file:
            while left > 0 and (data := file.read(min(left, 1 << 20))):
                number += data.count(b"\n")
                left -= len(data)
        return f"line {number}"


class TextFile(LineFile):
    """A UTF-8 text: its rows are passages of so many words, one after the other."""

    def __init__(self, path: Path, name: str, passage_words: int) -> None:
        super().__init__(path, name)
        self._words = passage_words

    def rows(self, block: int) -> Iterator[Row]:
        """See `Blocks`."""
        first, parts = None, []
        for offset, line in self.lines(block):
            if isinstance(line, Bad):
                yield Row(f"{self._name}@{offset}", line)
                continue
            first = offset if first is None else first
            parts.append(line)
        data = b"".join(parts)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"not UTF-8: byte 0x{data[error.start]:02x}"
            yield Row(f"{self._name}@{(first or 0) + error.start}", Bad(found))
            return
        words = list(_WORD.finditer(text))
        counted, num_bytes = 0, 0
        for at in range(0, len(words), self._words):
            some = words[at : at + self._words]
            if at and len(some) < min(MIN_PASSAGE_WORDS, self._words):
                return
            begin = 0 if at == 0 else some[0].start()
            # Counted on from the passage before: a line may have 4 MiB, in many passages.
            num_bytes, counted = num_bytes + len(text[counted:begin].encode()), begin
            offset = (first or 0) + num_bytes
            yield Row(f"{self._name}@{offset}", text[begin : some[-1].end()])


class Shards:
    """Several files as one."""

    def __init__(self, files: Mapping[str, Blocks], skipped: Sequence[BadRow] = ()) -> None:
        """Blocks of each, in the order given, which has to be stable.

        Args:
            files: by the name that begins its rows' ids.
            skipped: files that were left out, with the reason.
        """
        self.skipped = skipped
        self._files, self._list = files, list(files.values())
        self._ends: list[int] = []
        total = 0
        for file in files.values():
            total += file.num_blocks
            self._ends.append(total)
        self.num_blocks = total
        self.blocks_per_round = min(file.blocks_per_round for file in files.values())
        facts = [f"{name}\0{file.digest}" for name, file in files.items()]
        self.digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]

    def rows(self, block: int) -> Iterator[Row]:
        """See `Blocks`."""
        index = bisect.bisect_right(self._ends, block)
        return self._list[index].rows(block - (self._ends[index - 1] if index else 0))

    def place(self, row_id: str) -> str:
        """See `Blocks`."""
        name = row_id[: max(row_id.rfind("@"), row_id.rfind("#"))]
        return f"{name}: {self._files[name].place(row_id)}"


def sampled_digest(path: Path) -> str:
    """First 16 hex digits of sha256 over the size and 18 places of a file."""
    size, length = path.stat().st_size, 4 << 10
    digest = hashlib.sha256(f"{size}".encode())
    with path.open("rb") as file:
        for i in range(18):
            file.seek(max(0, (size - length) * i // 17))
            digest.update(file.read(length))
    return digest.hexdigest()[:16]


def _is_hole(fd: int, start: int, end: int) -> bool:
    """Whether these bytes of a sparse file are nowhere on disk: they read as zeros."""
    try:
        return os.lseek(fd, start, os.SEEK_DATA) >= end
    except OSError as error:
        return error.errno == errno.ENXIO  # any other: this file system does not say
