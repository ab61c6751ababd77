"""One source of documents in a seeded order behind a cursor: each once before any comes twice."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spade_async.errors import ConfigError
from spade_async.grounding.blocks import Blocks
from spade_async.grounding.document import BadRow, Document
from spade_async.grounding.permutation import Permutation
from spade_async.grounding.row_rule import RowRule
from spade_async.seeds import derive

log = logging.getLogger(__name__)

NAMED_ROWS = 5
"""Bad rows that are named one by one; further ones are only counted."""
HOPELESS_ROUNDS = 64
"""So many rounds of bad rows at the start, about 1 GiB, and the source is refused."""


class Source(Protocol):
    """What `Corpus` mixes."""

    name: str
    num_bad: int
    """Rows skipped so far; each counts once, however often its source is gone through."""
    bad_rows: list[BadRow]
    """The first of them."""

    @property
    def epoch(self) -> int:
        """How many times every document has been used."""

    def next(self) -> Document:
        """The document under the cursor, which moves on."""

    def state(self) -> dict[str, Any]:
        """The cursor, JSON-able."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put the cursor back; ConfigError when the documents are not those it was taken from."""


class ListSource:
    """Documents that are in memory."""

    def __init__(self, documents: Sequence[Document], *, name: str, seed: int) -> None:
        """Start at the first document of epoch 0. ConfigError when there is none."""
        if not documents:
            raise ConfigError(f"grounding.corpus={name!r} holds no usable document")
        self.name, self.num_bad = name, 0
        self.bad_rows: list[BadRow] = []
        self._documents, self._seed = tuple(documents), seed
        self._digest = hashlib.sha256(
            "\0".join(f"{d.document_id}\0{d.text}" for d in documents).encode()
        ).hexdigest()[:16]
        self._epoch, self._position = 0, 0
        self._order = self._order_of(0)

    def __len__(self) -> int:
        return len(self._documents)

    @property
    def epoch(self) -> int:
        """See `Source`."""
        return self._epoch

    def next(self) -> Document:
        """See `Source`."""
        document = self._documents[self._order[self._position]]
        self._position += 1
        if self._position == len(self._documents):
            self._epoch, self._position = self._epoch + 1, 0
            self._order = self._order_of(self._epoch)
        return document

    def state(self) -> dict[str, Any]:
        """See `Source`."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "digest": self._digest,
            "num_documents": len(self),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Source`."""
        check_digest(self.name, state, self._digest, num_documents=len(self))
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._order = self._order_of(self._epoch)

    def _order_of(self, epoch: int) -> list[int]:
        order = list(range(len(self._documents)))
        random.Random(derive(self._seed, "corpus", epoch)).shuffle(order)
        return order


class BlockSource:
    """Documents in files of any size: blocks in a seeded order, shuffled some at a time.

    A round is the rows of some blocks from all over the files, in a seeded order of their own. Only
    the texts of one round are in memory. A source of one round is shuffled as a whole.
    """

    def __init__(
        self, blocks: Blocks, rule: RowRule, *, name: str, seed: int, is_quiet: bool = False
    ) -> None:
        """Start at the first document of epoch 0.

        Args:
            blocks: its files.
            rule: how a row is read.
            name: of the source, for messages.
            seed: of the order.
            is_quiet: bad rows are counted and not logged.

        Raises:
            ConfigError: there is no usable document.
        """
        self.name, self.num_bad = name, 0
        self.bad_rows: list[BadRow] = []
        self._is_quiet = is_quiet
        self._blocks, self._rule, self._seed = blocks, rule, seed
        self._epoch, self._round, self._position = 0, 0, 0
        self._documents: list[Document] = []
        for place in blocks.skipped:
            self._skip(place)
        self._load(count=True)
        self._advance()

    @property
    def epoch(self) -> int:
        """See `Source`."""
        is_last = self._round + 1 == self._num_rounds
        return self._epoch + (is_last and self._position == len(self._documents))

    def next(self) -> Document:
        """See `Source`. Raises ConfigError when its files cannot be read any more."""
        self._advance()
        self._position += 1
        return self._documents[self._position - 1]

    def state(self) -> dict[str, Any]:
        """See `Source`."""
        return {
            "epoch": self._epoch,
            "round": self._round,
            "position": self._position,
            "digest": self._blocks.digest,
            "num_bad": self.num_bad,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Source`."""
        check_digest(self.name, state, self._blocks.digest)
        self._epoch, self._round = int(state["epoch"]), int(state["round"])
        self.num_bad, self._position = int(state["num_bad"]), int(state["position"])
        self._load(count=False)
        if self._position > len(self._documents):
            raise ConfigError(f"grounding.corpus={self.name!r} changed since this run began")

    @property
    def _num_rounds(self) -> int:
        return -(-self._blocks.num_blocks // self._blocks.blocks_per_round)

    def _advance(self) -> None:
        """Leave the cursor on a document: begin new rounds while the present one is used up."""
        tried = hopeless = 0
        while self._position == len(self._documents):
            tried += 1
            if tried > self._num_rounds or hopeless >= HOPELESS_ROUNDS:
                first = f", first {self._shown(0)}" if self.bad_rows else ""
                raise ConfigError(
                    f"grounding.corpus={self.name!r} holds no usable document ({self.num_bad} bad "
                    f"rows{first}): give JSON lines with `text` or `orig_doc`, in UTF-8"
                )
            self._round, self._position = self._round + 1, 0
            if self._round == self._num_rounds:
                self._epoch, self._round = self._epoch + 1, 0
            num_rows = self._load(count=self._epoch == 0)
            hopeless += num_rows > 0 and not self._documents

    def _load(self, *, count: bool) -> int:
        """Read the documents of the present round; bad rows are told and counted the first time.

        Returns the number of rows, bad ones included.
        """
        order = Permutation(self._blocks.num_blocks, derive(self._seed, "blocks", self._epoch))
        begin = self._round * self._blocks.blocks_per_round
        end = min(begin + self._blocks.blocks_per_round, len(order))
        self._documents, num_rows = [], 0
        try:
            for block in sorted(order[i] for i in range(begin, end)):
                for row in self._blocks.rows(block):
                    num_rows += 1
                    text = self._rule.text(row.content)
                    if isinstance(text, str):
                        self._documents.append(Document(row.row_id, text))
                    elif count:
                        named = self.num_bad < NAMED_ROWS
                        place = self._blocks.place(row.row_id) if named else row.row_id
                        self._skip(BadRow(place, text.reason))
        except OSError as cause:
            raise ConfigError(f"grounding.corpus={self.name!r} cannot be read: {cause}") from cause
        seed = derive(self._seed, "round", self._epoch, self._round)
        random.Random(seed).shuffle(self._documents)
        return num_rows

    def _skip(self, row: BadRow) -> None:
        self.num_bad += 1
        if self.num_bad <= NAMED_ROWS:
            self.bad_rows.append(row)
        if self._is_quiet:
            return
        if self.num_bad <= NAMED_ROWS:
            log.warning("corpus %s: %s; it is skipped", self.name, self._shown(-1))
        elif str(self.num_bad).strip("0") == "1":
            log.warning("corpus %s: %d rows skipped so far", self.name, self.num_bad)

    def _shown(self, index: int) -> str:
        row = self.bad_rows[index]
        return f"{row.place}: {row.reason}"


def check_digest(name: str, state: Mapping[str, Any], digest: str, **now: int) -> None:
    """Refuse a cursor of other documents.

    Raises:
        ConfigError: with both digests, and what else is known of then and `now`.
    """
    if state.get("digest") == digest:
        return
    sizes = "".join(
        f"{state[key]} {key.removeprefix('num_')} then, {value} now, "
        for key, value in now.items()
        if key in state
    )
    raise ConfigError(
        f"grounding.corpus={name!r} changed since this run began ({sizes}digest "
        f"{state.get('digest')} then, {digest} now): put the old one back (for "
        '"stdlib-docstrings": the same Python) or start a new run'
    )
