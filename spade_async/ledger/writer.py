"""The one writer of a ledger: owned by the coordinator, synchronous, grouped commits.

Guarantees: what a transaction wrote survives kill -9 of the process once the block is left; with
``full=True`` it survives a power cut as well, together with everything committed before it. A block
left by an exception leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from spade_async.errors import LedgerError
from spade_async.ledger.batches import BatchWrites
from spade_async.ledger.checks import Checks
from spade_async.ledger.connection import Connection, create_file, open_file, warn_if_network
from spade_async.ledger.environments import EnvironmentWrites
from spade_async.ledger.groups import GroupWrites
from spade_async.ledger.hints import HintWrites
from spade_async.ledger.history import HistoryWrites
from spade_async.ledger.memory import MemoryWrites
from spade_async.ledger.pays import PayWrites
from spade_async.ledger.prompts import PromptWrites
from spade_async.ledger.regrets import RegretWrites
from spade_async.ledger.samples import SampleWrites
from spade_async.ledger.scores import ScoreWrites
from spade_async.ledger.timings import TimingWrites
from spade_async.ledger.traces import RecentTraces
from spade_async.ledger.versions import VersionWrites


class Ledger(
    VersionWrites,
    GroupWrites,
    PromptWrites,
    MemoryWrites,
    EnvironmentWrites,
    SampleWrites,
    BatchWrites,
    HistoryWrites,
    ScoreWrites,
    TimingWrites,
    RegretWrites,
    HintWrites,
    PayWrites,
    Checks,
):
    """Every query and every change. Changes need ``with ledger.transaction():`` around them."""

    def __init__(self, db: Connection, lock_fd: int) -> None:
        """Use `open`."""
        self._db = db
        self._lock_fd = lock_fd
        self._is_full = False
        self._recent = RecentTraces()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        create: bool,
        config_digest: str,
        same_digests: Collection[str] = (),
    ) -> Self:
        """Open for writing.

        Args:
            path: the file (its folder must exist).
            create: make a new one (an existing one is an error) or open an existing one.
            config_digest: of the configuration; an existing ledger must have the same.
            same_digests: what an earlier version of the program made of the same configuration.

        Raises:
            LedgerError: one clear line: exists, missing, damaged, newer schema, another
                configuration, or another process writes it.
        """
        lock_fd = _lock(path)
        try:
            warn_if_network(path.parent)
            if create:
                create_file(path, config_digest)
            db = open_file(path, read_only=False)
            try:
                found = db.row("SELECT value FROM meta WHERE key = 'config_digest'")
                if found is None or found[0] not in {config_digest, *same_digests}:
                    raise LedgerError(
                        f"ledger {path} belongs to another configuration "
                        f"({found[0] if found else None} is not {config_digest}): resume with the "
                        "configuration of its run folder or choose a new folder"
                    )
            except BaseException:
                db.raw.close()
                raise
        except BaseException:
            os.close(lock_fd)
            raise
        return cls(db, lock_fd)

    def wait_on_full(self, wait: Callable[[], None] | None) -> None:
        """Pause instead of failing when the disk is full; nothing of a transaction is lost.

        Args:
            wait: called each time a write finds no room; returns when it is worth another try.
        """
        self._db.wait_for_room = wait

    @contextmanager
    def transaction(self, *, full: bool = False) -> Iterator[None]:
        """Group changes into one commit; roll all of them back when the block raises.

        Args:
            full: fsync at the commit (what marks consumption); otherwise the operating system
                writes it out soon.
        """
        if self._db.in_transaction:
            raise LedgerError(f"ledger {self._db.path}: transactions do not nest")
        self._db.command(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        self._db.begin()
        self._is_full = full
        try:
            yield
            self._db.commit()
        except BaseException:
            self._recent.clear()
            if self._db.in_transaction:
                self._db.raw.rollback()
            raise
        finally:
            self._is_full = False

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Rows of any SELECT over the tables of `schema.py`."""
        return self._db.rows(sql, values)

    def close(self) -> None:
        """Close; a transaction still open is rolled back. Idempotent."""
        if self._lock_fd < 0:
            return
        try:
            self._db.close()
        finally:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(path: Path) -> int:
    """Hold the writer's lock; the kernel releases it when we die.

    A file of its own, because closing any descriptor of the database would drop SQLite's locks.
    """
    name = path.with_name(path.name + ".writer")
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as cause:
        raise LedgerError(f"ledger {path} cannot be written: {cause}") from cause
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        os.close(fd)
        raise LedgerError(f"ledger {path} is written by another process: stop that run") from cause
    return fd
