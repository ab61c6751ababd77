"""One owner per socket, and no pattern that loses in silence: read from the code itself.

A socket that two threads use crashes its process (NeMo RL #2512); PUB/SUB drops what nobody has
subscribed to yet and what a slow reader cannot take (libzmq #2267), PUSH what dies with a pipe.
"""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from spade_async.errors import TransportError
from spade_async.transport.counters import LinkCounters
from spade_async.transport.pump import Pump

PACKAGE = Path(__file__).parents[3] / "spade_async"
TOUCHING = {"send", "send_multipart", "recv", "recv_multipart", "send_string", "recv_string"}
OWNERS = {"pump.py", "gate.py"}
"""They touch a socket from callbacks of its pump only; hub and peer hand over to theirs."""


def trees() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def imports_zmq(tree: ast.AST) -> bool:
    return any(
        (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "zmq" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "zmq")
        for node in ast.walk(tree)
    )


def test_nobody_outside_the_link_knows_zeromq():
    wrong = [str(p) for p, tree in trees() if imports_zmq(tree) and p.parent.name != "transport"]
    assert wrong == []


def test_only_the_owners_touch_a_socket():
    touched = {
        path.name
        for path, tree in trees()
        if path.parent.name == "transport" and imports_zmq(tree)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in TOUCHING
        and "socket" in ast.unparse(node.func.value)
    }
    assert touched == OWNERS


def test_the_only_way_in_from_another_thread_is_post():
    """Nothing of the link starts a thread but the heartbeat's, which has `post` and no socket."""
    starts = {
        path.name
        for path, tree in trees()
        if path.parent.name == "transport"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Thread", "to_thread"))
    }
    assert starts == {"heartbeat.py", "lifeline.py"}
    for name in starts:
        assert not imports_zmq(ast.parse((PACKAGE / "transport" / name).read_text()))


def test_no_pattern_that_drops_in_silence_is_used():
    found = [
        f"{path.name}: {ast.unparse(node)}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) == "zmq"
        and node.attr in {"PUB", "SUB", "XPUB", "XSUB", "PUSH", "PULL", "CONFLATE"}
    ]
    assert found == []


def test_a_socket_used_from_a_second_thread_raises_at_once():
    async def body() -> None:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        pump = Pump(socket, lambda parts: None, lambda: None, lambda: None, LinkCounters())
        raised: list[BaseException] = []

        def elsewhere() -> None:
            try:
                pump.wake()
            except TransportError as fault:
                raised.append(fault)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        pump.wake()
        pump.close(linger_ms=0)
        context.term()
        with pytest.raises(TransportError, match=r"second thread: only Peer\.post"):
            raise raised[0]

    asyncio.run(body())
