"""Opening the SQLite file: checks with one clear line, durability settings, errors made ours."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from spade_async.disk.room import is_full
from spade_async.errors import LedgerError, LedgerUnusable
from spade_async.ledger.schema import APPLICATION_ID, SCHEMA_VERSION, TABLES, UPGRADES

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

Values = Sequence[Any] | Mapping[str, Any]
"""In the order of the ``?``, or by the names of the ``:name`` of a statement."""

_NETWORK_TYPES = frozenset(
    (
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs",
        "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb2", "smb3",
        "smbfs",
    )
)  # fmt: skip
_LOCAL_FUSE = frozenset(("fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.ntfs", "fuse.ntfs-3g"))
"""Of programs that show this machine's own disks; most others show another machine's."""
_BUSY_S = 10.0


@contextmanager
def ledger_errors(path: Path, what: str) -> Iterator[None]:
    """Turn SQLite's exceptions into one `LedgerError` line with the next move."""
    try:
        yield
    except sqlite3.OperationalError as cause:
        raise LedgerError(
            f"ledger {path}: {what}: {_one_line(cause)}; check free space and permissions of its "
            "folder"
        ) from cause
    except (sqlite3.DatabaseError, UnicodeDecodeError) as cause:
        # Of a damaged file even the text of an error may be no text.
        raise LedgerUnusable(
            f"ledger {path}: {what}: {_one_line(cause)}; restore it from a copy or start a new run "
            "folder"
        ) from cause
    except (sqlite3.Error, OverflowError) as cause:
        raise LedgerError(f"ledger {path}: {what}: {_one_line(cause)}") from cause


def _one_line(cause: BaseException) -> str:
    """What SQLite says; of a damaged file it quotes bytes as they come, new lines too."""
    return " ".join(str(cause).split())


def plain_text(text: str) -> str:
    """Text that SQLite can store: lone surrogates (hostile output) become backslash escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


class Connection:
    """One SQLite connection; every statement goes through here."""

    def __init__(self, path: Path, raw: sqlite3.Connection) -> None:
        self.path = path
        self.raw = raw
        self.wait_for_room: Callable[[], None] | None = None
        """Called when the disk is full, returns when it is worth another try; None: that is an
        error like any other."""
        self._journal: list[tuple[str, Sequence[Any], bool]] = []
        """Changes of the open transaction, to be repeated after a wait for room."""
        self.schema = SCHEMA_VERSION
        """Of the file; older than ours only when it is read."""

    def rows(self, sql: str, values: Values = ()) -> list[sqlite3.Row]:
        """All rows of a SELECT."""
        with ledger_errors(self.path, "reading"):
            return self.raw.execute(sql, values).fetchall()

    def row(self, sql: str, values: Values = ()) -> sqlite3.Row | None:
        """First row of a SELECT, or None."""
        with ledger_errors(self.path, "reading"):
            found: sqlite3.Row | None = self.raw.execute(sql, values).fetchone()
            return found

    def number(self, sql: str, values: Sequence[Any] = ()) -> int:
        """The one integer of a SELECT."""
        row = self.row(sql, values)
        return 0 if row is None or row[0] is None else int(row[0])

    def command(self, sql: str) -> None:
        """Run a statement that is no change of rows (PRAGMA, BEGIN, COMMIT)."""
        with ledger_errors(self.path, "writing"):
            self.raw.execute(sql)

    def begin(self) -> None:
        """Open a transaction."""
        self._journal.clear()
        self._despite_full(lambda: self.command("BEGIN IMMEDIATE"), is_begun=False)

    def commit(self) -> None:
        """Commit; on a full disk wait, make all changes of the transaction again, and commit."""
        self._despite_full(lambda: self.command("COMMIT"))
        self._journal.clear()

    def _despite_full(self, work: Callable[[], T], *, is_begun: bool = True) -> T:
        """Do `work`; when the disk is full wait, restore the transaction, and do it again.

        SQLite undoes the whole transaction when it cannot write, and what the callers hold in
        memory has gone on: so the same changes are made again, from our list of them.
        """
        restore = False
        while True:
            try:
                if restore:
                    self._restore()
                return work()
            except LedgerError as fault:
                if self.wait_for_room is None or not is_full(fault):
                    raise
                if self.in_transaction:
                    self.raw.rollback()
                self.wait_for_room()
                restore = is_begun

    def _restore(self) -> None:
        self.command("BEGIN IMMEDIATE")
        for sql, values, many in self._journal:
            self._run(sql, values, many)

    def _change(self, sql: str, values: Sequence[Any], many: bool) -> int:
        self._need_transaction()
        count = self._despite_full(lambda: self._run(sql, values, many))
        self._journal.append((sql, values, many))
        return count

    def _run(self, sql: str, values: Sequence[Any], many: bool) -> int:
        with ledger_errors(self.path, "writing"):
            cursor = self.raw.executemany(sql, values) if many else self.raw.execute(sql, values)
            return cursor.rowcount

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; False once closed."""
        try:
            return self.raw.in_transaction
        except sqlite3.ProgrammingError:
            return False

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a change inside a transaction; number of changed rows."""
        return self._change(sql, [_plain(value) for value in values], False)

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a change per row inside a transaction; number of changed rows."""
        return self._change(sql, [[_plain(value) for value in row] for row in rows], True)

    def _need_transaction(self) -> None:
        # Alone, each statement would be a commit of its own: slow, and half of a fact.
        if not self.in_transaction:
            raise LedgerError(f"ledger {self.path}: changes need `with ledger.transaction():`")

    def close(self) -> None:
        """Close; the last connection folds the write-ahead log into the file."""
        with ledger_errors(self.path, "closing"):
            self.raw.close()


def _plain(value: Any) -> Any:
    return plain_text(value) if isinstance(value, str) else value


def create_file(path: Path, config_digest: str) -> None:
    """Make an empty ledger; it appears under its name only when complete.

    Raises:
        LedgerError: there is one already, or the folder cannot be written.
    """
    if path.exists():
        raise LedgerError(f"ledger {path} exists already: resume the run or choose another folder")
    draft = path.with_name(path.name + ".new")
    with ledger_errors(path, "creating"):
        try:
            for leftover in (draft, draft.with_name(draft.name + "-wal")):
                leftover.unlink(missing_ok=True)
        except OSError as cause:
            raise LedgerError(f"ledger {path} cannot be created: {cause}") from cause
        raw = sqlite3.connect(draft, isolation_level=None)
        try:
            raw.executescript(
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA journal_mode = WAL;"
                f"PRAGMA synchronous = FULL; BEGIN; {TABLES} COMMIT;"
            )
            facts = [("schema", str(SCHEMA_VERSION)), ("config_digest", config_digest)]
            raw.executemany("INSERT INTO meta VALUES (?, ?)", facts)
        finally:
            raw.close()
    os.replace(draft, path)
    _sync_folder(path.parent)


def open_file(path: Path, *, read_only: bool, alone: bool = False) -> Connection:
    """Open and check an existing ledger.

    Args:
        path: the file.
        read_only: whether nothing will be written.
        alone: no writer has it open: a reader then leaves no files beside it.

    Raises:
        LedgerError: no such file, not a ledger, damaged, or written by a newer program.
    """
    if not path.is_file():
        raise LedgerError(f"ledger {path} does not exist: is this a run folder?")
    with ledger_errors(path, "opening"):
        connection = Connection(path, _connect(path, read_only=read_only, alone=alone))
    try:
        _check(connection, thorough=not read_only)
        if not read_only and connection.schema < SCHEMA_VERSION:
            _upgrade(connection)
    except BaseException:
        connection.raw.close()
        raise
    return connection


def _connect(path: Path, *, read_only: bool, alone: bool) -> sqlite3.Connection:
    # A file that is no database opens all the same: only the first statement fails.
    uri = path.resolve().as_uri()
    raw = sqlite3.connect(
        uri + ("?mode=ro" if read_only else "?mode=rw"),
        uri=True,
        isolation_level=None,
        timeout=_BUSY_S,
    )
    try:
        if not read_only:
            raw.execute("PRAGMA journal_mode = WAL").fetchone()
            raw.execute("PRAGMA synchronous = NORMAL")
            raw.execute(f"PRAGMA journal_size_limit = {64 << 20}")
        elif _is_immutable(path, alone=alone):
            raw.close()
            raw = sqlite3.connect(uri + "?mode=ro&immutable=1", uri=True, isolation_level=None)
        raw.row_factory = sqlite3.Row
        raw.execute("PRAGMA cache_size = -16384")
    except BaseException:
        raw.close()
        raise
    return raw


def _is_immutable(path: Path, *, alone: bool) -> bool:
    """Whether no index of a log is made: no log, and a read-only folder or no writer."""
    log = path.with_name(path.name + "-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return not has_log and (alone or not os.access(path.parent, os.W_OK))


def _check(connection: Connection, *, thorough: bool) -> None:
    path = connection.path
    if connection.number("PRAGMA application_id") != APPLICATION_ID:
        raise LedgerUnusable(f"ledger {path} is not a ledger of this program: check the path")
    if thorough:
        found = connection.row("PRAGMA quick_check(1)")
        if found is None or found[0] != "ok":
            detail = "no answer" if found is None else str(found[0])[:200].replace("\n", " ")
            raise LedgerUnusable(
                f"ledger {path} is damaged ({detail}): restore it from a copy or start a new run"
            )
    row = connection.row("SELECT value FROM meta WHERE key = 'schema'")
    schema = None if row is None else row[0]
    if schema is None or not str(schema).isdigit():
        raise LedgerUnusable(
            f"ledger {path} is damaged (schema {schema!r}): start a new run folder"
        )
    connection.schema = int(schema)
    if not 1 <= connection.schema <= SCHEMA_VERSION:
        raise LedgerUnusable(
            f"ledger {path} has schema {schema}, written by a newer program; this one reads up to "
            f"{SCHEMA_VERSION}: use the version that wrote it"
        )


def _upgrade(connection: Connection) -> None:
    """Add what newer schemas have, all or nothing."""
    missing = range(connection.schema + 1, SCHEMA_VERSION + 1)
    added = "".join(UPGRADES[version] for version in missing)
    with ledger_errors(connection.path, "upgrading"):
        try:
            connection.raw.executescript(
                f"BEGIN IMMEDIATE; {added}"
                f"UPDATE meta SET value = '{SCHEMA_VERSION}' WHERE key = 'schema'; COMMIT;"
            )
        except BaseException:
            if connection.in_transaction:
                connection.raw.rollback()
            raise
    _LOG.info("ledger %s: schema %d is now %d", connection.path, missing[0] - 1, SCHEMA_VERSION)
    connection.schema = SCHEMA_VERSION


def warn_if_network(path: Path) -> str | None:
    """Log once when the ledger stands on a network file system; its type, or None.

    SQLite's locks and fsync promises do not hold there, so a kill may lose committed samples.
    """
    kind = network_type(path)
    if kind is None:
        return None
    _LOG.warning(
        "ledger %s is on a network file system (%s): commits may not survive a crash; "
        "keep the run folder on a local disk", path, kind,
    )  # fmt: skip
    return kind


def network_type(path: Path) -> str | None:
    """Type of the network file system that holds `path`, e.g. "nfs4"; None when it is local."""
    kind = _file_system(path.resolve())
    is_remote_fuse = kind.startswith("fuse.") and kind not in _LOCAL_FUSE
    return kind if kind in _NETWORK_TYPES or is_remote_fuse else None


def _file_system(path: Path) -> str:
    """Type of the file system that holds `path`, "" when unknown (not Linux)."""
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        mount = fields[4].replace("\\040", " ")
        is_above = path.is_relative_to(mount)
        if is_above and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
