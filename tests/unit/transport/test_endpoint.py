from __future__ import annotations

import os
import socket
import stat

import pytest

from spade_async.config.schema import LinkConfig
from spade_async.errors import TransportError
from spade_async.transport.endpoint import (
    check_endpoint,
    check_free,
    make_endpoint,
    remove_endpoint,
    sweep,
)


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


def listens_on(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        taken.bind((host, 0))
    except OSError as cause:
        taken.close()
        pytest.skip(f"{host} is no address here: {cause}")
    taken.listen(1)
    return taken


@pytest.mark.parametrize(("host", "named"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_a_port_that_is_taken_is_one_line_with_the_remedy(host, named):
    with listens_on(host) as taken:
        port = taken.getsockname()[1]
        config = LinkConfig(endpoint=f"tcp://{named}:{port}")
        with pytest.raises(TransportError) as caught:
            check_free(config)
    said = str(caught.value)
    assert f"link.endpoint=tcp://{named}:{port}: port {port} is taken" in said
    assert f"ss -ltnp 'sport = :{port}'" in said
    assert "choose another port" in said
    assert "\n" not in said
    check_free(config)  # free again


def test_a_port_taken_on_one_address_is_taken_for_all_of_them(tmp_path):
    with listens_on("127.0.0.1") as taken:
        port = taken.getsockname()[1]
        config = LinkConfig(endpoint=f"tcp://*:{port}", keys=str(tmp_path))
        with pytest.raises(TransportError, match=f"port {port} is taken"):
            check_free(config)


def test_an_address_of_another_machine_is_refused(tmp_path):
    # 203.0.113.0/24 is for documentation: nobody has it.
    config = LinkConfig(endpoint="tcp://203.0.113.7:5000", keys=str(tmp_path))
    with pytest.raises(
        TransportError, match=r"cannot listen there: .*use tcp://\*:5000|address of"
    ):
        check_free(config)


def test_a_private_socket_has_no_port_to_be_taken():
    check_free(LinkConfig())
