"""Tokens that people may look at long after they were trained, and what the learner said of them.

A trace leaves the ledger when no fall-back can need it. Before it goes, the traces of what people
look at move aside: valid designs, and unhinted episodes whose words are kept. Nothing of the run
itself reads these tables.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spade_async.errors import LedgerError
from spade_async.ledger.connection import Connection
from spade_async.ledger.traces import unpack_trace
from spade_async.types import TokenTrace

log = logging.getLogger(__name__)

FIRST_SCHEMA = 3
"""Ledgers of an older schema hold neither."""
MOST_WORDS_BYTES = 4096
"""Words of one play group up to which those of all its episodes are kept."""
_HEAD = struct.Struct("<4sII")
"""Magic, number of tokens [N], CRC-32 of the two arrays."""
_MAGIC = b"LRN1"


@dataclass(frozen=True, slots=True)
class Learned:
    """What the learner said of the sampled tokens of one sample, in their order."""

    logprobs: NDArray[np.float32]
    """[N] under the weights that the step began with, at the sampling temperature."""
    weights: NDArray[np.float32]
    """[N] importance weight that multiplied the advantage; 0 where the token was masked."""


@dataclass(frozen=True, slots=True)
class Look:
    """Tokens of one sample with what is known of them."""

    trace: TokenTrace
    learned: Learned | None
    """None: not trained yet, nothing computed (no advantage), or an older ledger."""


class LookReads:
    """Queries about tokens that people look at."""

    _db: Connection

    def look(self, sample_id: str) -> Look | None:
        """Tokens of a sample, wherever they are; None when they are gone.

        Raises:
            LedgerError: the stored bytes are damaged.
        """
        is_new = self._db.schema >= FIRST_SCHEMA
        row = self._db.row("SELECT block FROM traces WHERE sample_id = ?", (sample_id,))
        learned = None
        if row is not None:
            trace = row[0]
            if is_new:
                found = self._db.row("SELECT block FROM learned WHERE sample_id = ?", (sample_id,))
                learned = None if found is None else found[0]
        else:
            row = (
                self._db.row("SELECT trace, learned FROM looks WHERE sample_id = ?", (sample_id,))
                if is_new
                else None
            )
            if row is None:
                return None
            trace, learned = row
        try:
            return Look(unpack_trace(trace), None if learned is None else unpack_learned(learned))
        except ValueError as cause:
            raise LedgerError(
                f"ledger {self._db.path}: tokens of {sample_id!r}: {cause}"
            ) from cause


class LookWrites(LookReads):
    """Changes; inside a transaction."""

    def add_learned(
        self, ordinal: int, logprobs: NDArray[np.float32], weights: NDArray[np.float32]
    ) -> int:
        """Note what the learner said of the samples of a batch; how many it said something of.

        Args:
            ordinal: of the batch.
            logprobs: [N] trained tokens of the batch in its order; NaN where nothing was computed.
            weights: [N]
        """
        rows = self._db.rows(
            "SELECT r.sample_id, s.num_trained_tokens FROM batch_samples r"
            " JOIN samples s USING (sample_id) WHERE r.ordinal = ? ORDER BY r.position",
            (ordinal,),
        )
        ends = np.cumsum([row[1] for row in rows])
        if not len(ends) or not ends[-1] == len(logprobs) == len(weights):
            if len(logprobs):
                # Nothing of the run depends on it, so it is no reason to stop.
                log.warning("batch %d: %d figures for other tokens", ordinal, len(logprobs))
            return 0
        learned = [
            (row[0], Learned(logprobs[end - row[1] : end], weights[end - row[1] : end]))
            for row, end in zip(rows, ends.tolist(), strict=True)
        ]
        return self._db.execute_many(
            "INSERT OR REPLACE INTO learned VALUES (?, ?)",
            [
                (sample_id, pack_learned(said))
                for sample_id, said in learned
                if np.isfinite(said.weights).any()
            ],
        )

    def thin_words(self, group_id: str, kept: Iterable[int]) -> int:
        """Forget the words of a play group, but for some positions, when they are many; how many.

        Up to `MOST_WORDS_BYTES` nothing is forgotten. Counts of behaviour, a few numbers, stay.
        """
        positions = sorted(set(kept))
        marks = ", ".join("?" * len(positions))
        return self._db.execute(
            "UPDATE samples SET extra_json ="
            " CASE WHEN json_extract(extra_json, '$.behaviour') IS NULL THEN '{}'"
            " ELSE json_object('behaviour', json_extract(extra_json, '$.behaviour')) END"
            " WHERE group_id = ?"
            f" AND position NOT IN ({marks}) AND extra_json != '{{}}'"
            " AND (SELECT SUM(LENGTH(extra_json)) FROM samples WHERE group_id = ?) > ?",
            (group_id, *positions, group_id, MOST_WORDS_BYTES),
        )

    def keep_looks(self, droppable: str, before_ordinal: int) -> None:
        """Move aside what people look at of the traces that are about to be dropped.

        Args:
            droppable: SELECT of the sample ids whose traces go, with one "?".
            before_ordinal: its value.
        """
        self._db.execute(
            "INSERT OR IGNORE INTO looks SELECT t.sample_id, t.block, l.block FROM traces t"
            " JOIN samples s USING (sample_id) LEFT JOIN learned l USING (sample_id)"
            f" WHERE t.sample_id IN ({droppable})"
            " AND CASE s.role WHEN 'designer'"
            "  THEN s.environment_id IS NOT NULL AND s.rejection_stage IS NULL"
            "  ELSE s.extra_json != '{}' END",
            (before_ordinal,),
        )
        self._db.execute(f"DELETE FROM learned WHERE sample_id IN ({droppable})", (before_ordinal,))


def pack_learned(learned: Learned) -> bytes:
    """Bytes of the two arrays.

    Raises:
        ValueError: they have unequal lengths.
    """
    if learned.logprobs.shape != learned.weights.shape:
        raise ValueError(f"{learned.logprobs.shape} log-probabilities, {learned.weights.shape}")
    block = learned.logprobs.astype("<f4").tobytes() + learned.weights.astype("<f4").tobytes()
    return _HEAD.pack(_MAGIC, len(learned.weights), zlib.crc32(block)) + zlib.compress(block, 1)


def unpack_learned(stored: bytes) -> Learned:
    """Inverse of `pack_learned`.

    Raises:
        ValueError: damaged bytes.
    """
    if len(stored) < _HEAD.size:
        raise ValueError(f"{len(stored)} bytes are too few")
    magic, length, checksum = _HEAD.unpack_from(stored)
    if magic != _MAGIC:
        raise ValueError("wrong magic")
    try:
        block = zlib.decompress(memoryview(stored)[_HEAD.size :])
    except zlib.error as cause:
        raise ValueError(str(cause)) from cause
    if zlib.crc32(block) != checksum or len(block) != 8 * length:
        raise ValueError("wrong checksum or length")
    both = np.frombuffer(block, "<f4")
    return Learned(both[:length], both[length:])
