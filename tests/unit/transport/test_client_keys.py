"""Keys for further machines: each its own, listed by name, never over what is there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from spade_async.commands.keys import names
from spade_async.errors import TransportError
from spade_async.transport.client_keys import add_clients
from spade_async.transport.keys import (
    check_keys,
    load_client_keys,
    load_server_keys,
    write_keys,
)


def test_each_client_has_a_key_of_its_own_and_is_listed_by_name(tmp_path: Path) -> None:
    write_keys(tmp_path)
    paths = add_clients(tmp_path, ["gpu-a", "gpu-b"])
    paths += add_clients(tmp_path, ["late"])
    assert [p.relative_to(tmp_path).as_posix() for p in paths] == [
        "gpu-a/client.key", "gpu-b/client.key", "late/client.key",
    ]  # fmt: skip
    server = load_server_keys(tmp_path)
    clients = [load_client_keys(path.parent) for path in [tmp_path / "client.key", *paths]]
    assert server.clients == {client.public for client in clients}
    assert len(server.clients) == 4
    assert {client.server for client in clients} == {server.public}
    check_keys(tmp_path)
    for path in [tmp_path / "server.key", *paths]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = (tmp_path / "server.key").read_text()
    assert all(f"# {name}\n" in text for name in ("gpu-a", "gpu-b", "late"))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "client.key", "gpu-a", "gpu-b", "late", "server.key",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["a", "a"], "client a is named twice"),
        (["there"], "there is there already: take another name"),
        (["ok", "../up"], r"'\.\./up' cannot name a client"),
        ([""], "'' cannot name a client"),
        (["server.key"], "server.key is there already"),
    ],
)
def test_a_name_that_cannot_be_one_changes_nothing(
    tmp_path: Path, asked: list[str], says: str
) -> None:
    write_keys(tmp_path)
    (tmp_path / "there").mkdir()
    before = (tmp_path / "server.key").read_bytes()
    with pytest.raises(TransportError, match=says):
        add_clients(tmp_path, asked)
    assert (tmp_path / "server.key").read_bytes() == before
    assert not (tmp_path / "ok").exists()


def test_a_list_that_was_written_in_another_way_is_named(tmp_path: Path) -> None:
    server, _ = write_keys(tmp_path)
    server.write_text(server.read_text().replace("clients = [\n", "clients = ["))
    with pytest.raises(TransportError, match=r"put `clients = \[` on a line of its own"):
        add_clients(tmp_path, ["a"])
    assert not (tmp_path / "a").exists()


def test_what_the_option_means() -> None:
    assert names("") == []
    assert names("2") == ["machine-1", "machine-2"]
    assert names("gpu-a, gpu-b") == ["gpu-a", "gpu-b"]
    with pytest.raises(TransportError, match="--clients 0: 1 to 1000"):
        names("0")
