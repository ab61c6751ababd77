"""`train` with a link that cannot be: one clear line in seconds, and nothing is lost."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.whole_run import CONFIG, WholeRun, sets, spade, whole_run


@pytest.fixture
def taken() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def refused(tmp_path: Path, **values: str) -> str:
    keys = {key.replace("__", "."): value for key, value in values.items()}
    ended = spade("train", CONFIG, *sets(keys), "--run-dir", tmp_path / "run")
    assert ended.code == 2, ended.out
    assert not (tmp_path / "run").exists()
    return ended.line()


def test_a_port_that_is_taken(tmp_path, taken):
    endpoint = f"tcp://127.0.0.1:{taken}"
    line = refused(tmp_path, link__endpoint=endpoint)
    assert f"link.endpoint={endpoint}: port {taken} is taken: stop what listens there" in line


def test_an_address_that_is_not_ours(tmp_path):
    keys = tmp_path / "keys"
    assert spade("keys", keys).code == 0
    line = refused(tmp_path, link__endpoint="tcp://192.0.2.1:7711", link__keys=str(keys))
    assert "link.endpoint=tcp://192.0.2.1:7711: cannot listen there" in line


def test_keys_that_are_missing_or_not_asked_for(tmp_path):
    line = refused(tmp_path, link__endpoint="tcp://0.0.0.0:7711")
    assert "link.endpoint" in line
    assert "link.keys" in line
    assert "spade-async keys DIR" in line
    line = refused(tmp_path, link__endpoint="tcp://0.0.0.0:7711", link__keys=str(tmp_path / "no"))
    assert "no/server.key: No such file" in line


def test_a_credit_of_zero(tmp_path):
    assert "generator.concurrent_tasks=0: must be" in refused(
        tmp_path, generator__concurrent_tasks="0"
    )


def test_keys_are_made_once_and_say_who_needs_what(tmp_path):
    made = spade("keys", tmp_path / "k")
    assert (made.code, made.err) == (0, "")
    assert "server.key  secret of the coordinator" in made.out
    assert "client.key  secret of generators and learner" in made.out
    again = spade("keys", tmp_path / "k")
    assert again.code == 2
    assert "server.key is there already" in again.line()


@pytest.mark.timeout(420)  # the model is made here when no other test made it
def test_a_run_over_tcp_with_keys_is_a_run_as_any_other(tmp_path, nano_model):
    assert spade("keys", tmp_path / "keys").code == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    values = {"link__endpoint": f"tcp://*:{port}", "link__keys": str(tmp_path / "keys")}
    with whole_run(tmp_path / "run", nano_model, train__steps=2, **values) as run:
        check(run)


def check(run: WholeRun) -> None:
    run.finish(180.0)
    metrics = run.status().metrics
    for name in ("lost", "refused", "failed_handshakes", "duplicates"):
        assert metrics[f"link/{name}"] == 0.0, name
    assert metrics["link/busy_s"] > 0.0
    assert metrics["link/credit"] == 32.0
    assert 0.0 <= metrics["link/oldest_unacknowledged_s"] < 60.0
