from __future__ import annotations

import os
import stat

import pytest

from spade_async.errors import TransportError
from spade_async.transport.endpoint import check_endpoint, make_endpoint, remove_endpoint, sweep


def test_the_socket_folder_is_private_and_short():
    folder, endpoint = make_endpoint()
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert endpoint.startswith("ipc://")
        assert len(endpoint.removeprefix("ipc://")) < 100
        check_endpoint(endpoint)
    finally:
        remove_endpoint(folder)
    assert not folder.exists()


def test_only_folders_of_dead_owners_are_swept(tmp_path):
    alive, _ = make_endpoint(tmp_path) if len(str(tmp_path)) < 70 else (None, None)
    dead = tmp_path / "spade-dead"
    dead.mkdir()
    # Our own pid with another start time: the number was used again.
    (dead / "owner.pid").write_text(f"{os.getpid()} 1\n")
    foreign = tmp_path / "spade-foreign"
    foreign.mkdir()
    assert sweep(tmp_path) == 1
    assert not dead.exists()
    assert foreign.exists()
    assert alive is None or alive.exists()


def test_a_path_too_long_for_a_socket_is_refused_and_removed(tmp_path):
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    with pytest.raises(TransportError, match="longer than 100 bytes"):
        make_endpoint(deep)
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://10.0.0.1:5000",
        "tcp://*:5000",
        "tcp://0.0.0.0:1",
        "tcp://example.org:1",
        "inproc://x",
        "x",
    ],
)
def test_addresses_that_others_could_reach_are_refused(endpoint):
    with pytest.raises(TransportError, match="CURVE"):
        check_endpoint(endpoint)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:5000", "tcp://[::1]:5"])
def test_loopback_is_allowed(endpoint):
    check_endpoint(endpoint)


def test_a_folder_open_to_others_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(TransportError, match="chmod 700"):
        check_endpoint(f"ipc://{folder}/s")
    with pytest.raises(TransportError, match="make the socket folder first"):
        check_endpoint(f"ipc://{folder}/none/s")
