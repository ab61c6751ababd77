"""Key files: made once, private, and every fault of theirs is one line that says what to do."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spade_async.config.load import resolve
from spade_async.errors import ConfigError, TransportError
from spade_async.transport.keys import (
    check_keys,
    load_client_keys,
    load_server_keys,
    write_keys,
)

CONFIG = Path(__file__).parents[3] / "configs" / "nano.toml"


def test_both_files_are_private_and_know_each_other(tmp_path):
    server, client = write_keys(tmp_path / "a" / "keys")
    assert stat.S_IMODE(server.stat().st_mode) == stat.S_IMODE(client.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.parent.stat().st_mode) == 0o700
    check_keys(server.parent)
    ours, theirs = load_server_keys(server.parent), load_client_keys(server.parent)
    assert theirs.server == ours.public
    assert ours.clients == {theirs.public}
    assert len({ours.secret, ours.public, theirs.secret, theirs.public}) == 4


def test_a_loose_umask_does_not_open_them(tmp_path):
    before = os.umask(0)
    try:
        server, client = write_keys(tmp_path)
    finally:
        os.umask(before)
    assert (server.stat().st_mode | client.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("name", ["server.key", "client.key"])
def test_nothing_is_overwritten(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(TransportError, match=f"{name} is there already: move it away"):
        write_keys(tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    assert os.listdir(tmp_path) == [name]


def edit(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("server.key", Path.unlink, "server.key: No such file.*make keys with `spade-async keys"),
        ("client.key", Path.unlink, "client.key: No such file"),
        ("client.key", lambda p: p.chmod(0o644), r"read by others \(mode 644\): chmod 600"),
        ("server.key", lambda p: p.write_text("]"), "is not a key file"),
        ("server.key", lambda p: p.write_bytes(b"\xff\xfe"), "is not a key file"),
        ("client.key", lambda p: edit(p, '"client"', '"server"'), "is not a client key"),
        ("client.key", lambda p: edit(p, "secret", "sekret"), "secret is not a key of 40"),
        ("server.key", lambda p: edit(p, 'public = "', 'public = "~'), "public is not a key of 40"),
        ("server.key", lambda p: edit(p, "clients", "friends"), "clients must list"),
    ],
)
def test_a_fault_is_named_with_the_file(tmp_path, name, spoil, says):
    write_keys(tmp_path)
    spoil(tmp_path / name)
    with pytest.raises(TransportError, match=says):
        check_keys(tmp_path)


def test_files_of_two_pairs_are_told_apart(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_keys(one)
    write_keys(two)
    (one / "client.key").write_bytes((two / "client.key").read_bytes())
    with pytest.raises(TransportError, match="must come from one `spade-async keys`"):
        check_keys(one)
    own = load_client_keys(one)
    edit(one / "client.key", own.server.decode(), load_server_keys(one).public.decode())
    with pytest.raises(TransportError, match="clients does not list the public key"):
        check_keys(one)


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["link.endpoint=tcp://10.0.0.1:7711"], r"link\.endpoint=.*needs link\.keys.*spade-async"),
        (["link.endpoint=tcp://*:7711"], r"can be reached from other machines"),
        (["link.keys=k"], r'link\.keys="k" is for tcp, but link\.endpoint="ipc"'),
        (["link.endpoint=tcp://localhost:7711"], r"'localhost' is a name"),
        (["link.endpoint=tcp://127.0.0.1:0"], r"a port from 1 to 65535"),
        (["link.endpoint=tcp://127.0.0.1:70000"], r"a port from 1 to 65535"),
        (["link.endpoint=udp://127.0.0.1:7"], r'must be "ipc" or tcp://ADDRESS:PORT'),
    ],
)
def test_endpoint_and_keys_that_clash_are_one_line_with_both_names(sets, says):
    with pytest.raises(ConfigError, match=says) as caught:
        resolve(CONFIG, sets)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "sets",
    [
        ["link.endpoint=tcp://127.0.0.1:7711"],
        ["link.endpoint=tcp://[::1]:7711"],
        ["link.endpoint=tcp://10.0.0.1:7711", "link.keys=k"],
        ["link.endpoint=tcp://*:7711", "link.keys=k"],
    ],
)
def test_loopback_alone_or_any_address_with_keys_is_fine(sets):
    assert resolve(CONFIG, sets).link.endpoint == sets[0].partition("=")[2]
