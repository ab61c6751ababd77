from __future__ import annotations

import logging
import sqlite3
from functools import partial

import pytest

from spade_async.errors import EXIT_REFUSED, LedgerError, LedgerUnusable, exit_status
from spade_async.ledger import Ledger, LedgerReader
from spade_async.ledger import connection as connection_module
from tests.support.ledger_rows import sample, trace


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "ledger.sqlite"
    with Ledger.open(where, create=True, config_digest="c") as ledger, ledger.transaction():
        for number in range(200):
            ledger.add_sample(sample(f"s{number}", "g"), trace(300))
    return where


def line_of(path, opener=LedgerReader.open, **more) -> str:
    with pytest.raises(LedgerError) as caught:
        opener(path, **more)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def write(path):
    return line_of(path, Ledger.open, create=False, config_digest="c")


def test_garbage_is_one_line(path):
    path.write_bytes(b"not a database at all" * 500)
    assert "not a database" in line_of(path)
    write(path)


def test_an_empty_file_is_one_line(path):
    path.write_bytes(b"")
    assert "not a ledger" in line_of(path)
    write(path)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_one_line_for_the_writer(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    write(path)


def test_a_file_with_a_hole_is_one_line_for_the_writer(path):
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 60] = b"\x7f" * (4096 * 57)
    path.write_bytes(data)
    write(path)


def test_another_database_is_refused(tmp_path):
    other = tmp_path / "other.sqlite"
    raw = sqlite3.connect(other)
    raw.execute("CREATE TABLE t (x)")
    raw.commit()
    raw.close()
    assert "not a ledger of this program" in line_of(other)


def test_what_no_restart_mends_is_told_from_what_one_may(path):
    data = path.read_bytes()
    with Ledger.open(path, create=False, config_digest="c"), pytest.raises(LedgerError) as caught:
        Ledger.open(path, create=False, config_digest="c")
    assert not isinstance(caught.value, LedgerUnusable)
    path.write_bytes(data[: len(data) // 2])
    for opener in (LedgerReader.open, partial(Ledger.open, create=False, config_digest="c")):
        with pytest.raises(LedgerUnusable):
            opener(path)
    assert exit_status(LedgerUnusable("")) == EXIT_REFUSED


def test_a_newer_schema_is_refused(path):
    raw = sqlite3.connect(path)
    raw.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    raw.commit()
    raw.close()
    assert "schema 99, written by a newer program" in line_of(path)
    assert "newer" in write(path)


def test_another_configuration_is_refused_and_the_lock_is_free_again(path):
    text = line_of(path, Ledger.open, create=False, config_digest="other")
    assert "another configuration" in text
    Ledger.open(path, create=False, config_digest="other", same_digests={"b", "c"}).close()
    Ledger.open(path, create=False, config_digest="c").close()


def test_a_second_writer_is_refused(path):
    with Ledger.open(path, create=False, config_digest="c"):
        assert "another process" in write(path)
    Ledger.open(path, create=False, config_digest="c").close()


def test_create_does_not_overwrite_and_open_does_not_create(path, tmp_path):
    assert "exists already" in line_of(path, Ledger.open, create=True, config_digest="c")
    none = tmp_path / "none.sqlite"
    assert "does not exist" in line_of(none)
    line_of(none, Ledger.open, create=False, config_digest="c")
    line_of(tmp_path / "no" / "folder.sqlite", Ledger.open, create=True, config_digest="c")


def test_a_network_file_system_is_named(path, monkeypatch, caplog):
    monkeypatch.setattr(connection_module, "_file_system", lambda _: "nfs4")
    with caplog.at_level(logging.WARNING):
        Ledger.open(path, create=False, config_digest="c").close()
    assert "network file system (nfs4)" in caplog.text


@pytest.mark.parametrize(
    ("kind", "is_network"),
    [
        ("nfs", True), ("smb3", True), ("9p", True), ("fuse.sshfs", True), ("fuse.juicefs", True),
        ("fuse.gcsfuse", True), ("ext4", False), ("overlay", False), ("tmpfs", False),
        ("fuse.fuse-overlayfs", False), ("fuseblk", False), ("", False),
    ],
)  # fmt: skip
def test_which_file_systems_are_of_another_machine(path, monkeypatch, kind, is_network):
    monkeypatch.setattr(connection_module, "_file_system", lambda _: kind)
    assert connection_module.network_type(path) == (kind if is_network else None)


def test_the_local_file_system_has_a_type(path):
    assert connection_module._file_system(path) not in ("", "nfs")


def test_closing_twice_is_allowed_and_then_writing_is_not(path):
    ledger = Ledger.open(path, create=False, config_digest="c")
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError), ledger.transaction():
        pass


def test_a_change_outside_a_transaction_is_refused(path):
    with Ledger.open(path, create=False, config_digest="c") as ledger:
        with pytest.raises(LedgerError, match=r"with ledger\.transaction"):
            ledger.put_state("a", 1)
        assert ledger.get_state("a") is None
