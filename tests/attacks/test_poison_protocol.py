"""Poisoning of the protocol: a forged frame says at most something about its own episode."""

import time
from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arena
from tests.attacks.case import (
    CRASHED,
    FINISHED,
    OVER_OUTPUT,
    PRELUDE,
    TIMED_OUT,
    VIOLATION,
    Case,
    params,
)  # fmt: skip

FORGE = """
import struct

def frame(sequence, text=b"forged", reward=0.5, *, outcome=0, flags=4, detail=b"", say=None):
    say = len(text) if say is None else say
    body = struct.pack("<IBBdI", sequence, outcome, flags, reward, say)
    body += text + detail
    return struct.pack("<I", len(body)) + body

def end():
    os._exit(0)
"""
"""Writers of frames. In these tests the load is call 1, the reset 2, the step 3."""

BROKEN = (VIOLATION, OVER_OUTPUT)

CASES = [
    Case("protocol-garbage", "send(b'garbage garbage ' * 64); end()", BROKEN, ends=True),
    Case("protocol-zeros", "send(bytes(64)); end()", VIOLATION, ends=True),
    Case("protocol-empty-frame", "send(bytes(4)); end()", VIOLATION, ends=True),
    Case("protocol-largest-length", "send(b'\\xff' * 4); end()", VIOLATION, ends=True),
    Case("protocol-largest-signed-length",
         "send(struct.pack('<i', 2**31 - 1)); end()", VIOLATION, ends=True),
    Case("protocol-length-above-the-cap",
         "send(struct.pack('<I', 1 << 20)); end()", OVER_OUTPUT, ends=True),
    Case("protocol-half-a-header", "send(b'\\x20\\0'); end()", (CRASHED, VIOLATION), ends=True),
    Case("protocol-half-a-frame", "send(frame(3)[:-4]); end()", (CRASHED, VIOLATION), ends=True),
    Case("protocol-half-a-frame-then-the-real-one",
         "send(frame(3)[:10])", (VIOLATION, OVER_OUTPUT, TIMED_OUT)),
    Case("protocol-forged-and-gone", "send(frame(3)); end()", FINISHED, seen="forged"),
    Case("protocol-forged-in-single-bytes",
         "[send(bytes([b])) for b in frame(3)]; end()", FINISHED, seen="forged"),
    Case("protocol-forged-then-the-real-one",
         "send(frame(3))", (FINISHED, VIOLATION), seen="forged"),
    Case("protocol-two-at-once",
         "send(frame(3) * 2); time.sleep(1000)", (FINISHED, VIOLATION), seen="forged"),
    Case("protocol-ten-thousand-at-once",
         "send(frame(3) * 10_000); time.sleep(1000)", (FINISHED, VIOLATION), seen="forged"),
    Case("protocol-earlier-call", "send(frame(2)); end()", VIOLATION, "call 2", ends=True),
    Case("protocol-later-call", "send(frame(4)); end()", VIOLATION, "call 4", ends=True),
    Case("protocol-call-zero-and-last",
         "send(frame(0)); send(frame(2**32 - 1)); end()", VIOLATION, ends=True),
    Case("protocol-impossible-outcome", "send(frame(3, outcome=9)); end()", VIOLATION, ends=True),
    Case("protocol-every-impossible-outcome",
         "send(frame(3, outcome=255)); end()", VIOLATION, ends=True),
    Case("protocol-impossible-flags", "send(frame(3, flags=0xFC)); end()", VIOLATION, ends=True),
    Case("protocol-reward-nan", "send(frame(3, reward=float('nan'))); end()", VIOLATION, ends=True),
    Case("protocol-reward-signalling-nan",
         "send(frame(3)[:10] + b'\\1\\0\\0\\0\\0\\0\\xf0\\x7f' + frame(3)[18:]); end()",
         VIOLATION, ends=True),
    Case("protocol-reward-infinite",
         "send(frame(3, reward=float('-inf'))); end()", VIOLATION, ends=True),
    Case("protocol-step-without-reward", "send(frame(3, flags=0)); end()", VIOLATION, ends=True),
    Case("protocol-text-longer-than-the-frame",
         "send(frame(3, say=10**6)); end()", VIOLATION, ends=True),
    Case("protocol-text-length-wraps",
         "send(frame(3, say=2**32 - 1)); end()", VIOLATION, ends=True),
    Case("protocol-text-not-utf8",
         "send(frame(3, b'\\xff\\xfe\\x80')); end()", VIOLATION, ends=True),
    Case("protocol-text-surrogates",
         "send(frame(3, b'\\xed\\xa0\\x80')); end()", VIOLATION, ends=True),
    Case("protocol-text-overlong",
         "send(frame(3, b'\\xc0\\x80\\xf5\\x80\\x80\\x80')); end()", VIOLATION, ends=True),
    Case("protocol-detail-not-utf8",
         "send(frame(3, detail=b'\\xff')); end()", VIOLATION, ends=True),
    Case("protocol-detail-too-long",
         "send(frame(3, detail=b'x' * 4097)); end()", VIOLATION, ends=True),
    Case("protocol-frame-of-seventeen-bytes",
         "send(struct.pack('<I', 17) + bytes(17)); end()", VIOLATION, ends=True),
    Case("protocol-text-over-the-cap-by-frame",
         "send(frame(3, b'x' * (65 << 10))); end()", (OVER_OUTPUT, CRASHED)),
    Case("protocol-a-fault-of-ours-claimed",
         "send(frame(3, b'', 0.0, outcome=8, flags=0, detail=b'broker: gone')); end()",
         VIOLATION, ends=True),
    Case("protocol-a-limit-claimed",
         "send(frame(3, b'', 0.0, outcome=3, flags=0, detail=b'wall')); time.sleep(1000)",
         TIMED_OUT),
    Case("protocol-text-beside-a-failure",
         "send(frame(3, b'gold', 1.0, outcome=1, flags=7, detail=b'x')); time.sleep(1000)",
         VIOLATION, "carries values"),
    Case("protocol-request-echoed",
         "send(struct.pack('<IIB', 5, 3, 2)); end()", VIOLATION, ends=True),
    Case("protocol-packet-of-the-broker",
         "send(b'X' + struct.pack('<Ii', 1, -9)); end()", (*BROKEN, CRASHED), ends=True),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_poisoning_of_the_protocol(attack: Callable[[Case], Reply], case: Case) -> None:
    head = FORGE + case.head
    attack(Case(**{**case.__dict__, "head": head}))


def _source(body: str, head: str = "") -> str:
    return Case("", body, head=FORGE + head).source()


def test_a_forged_load_is_only_ones_own(arena: Arena) -> None:
    """A module that answers its own load and goes on: the class it promised never appears."""
    with arena.session(_source("pass", "send(frame(1, b'', 0.0, flags=0)); time.sleep(1000)")) as s:
        assert s.loaded.outcome in (FINISHED, VIOLATION)
        assert s.reset().outcome in (TIMED_OUT, VIOLATION)


def test_a_reset_cannot_carry_a_reward(arena: Arena) -> None:
    source = (
        FORGE
        + "class AEnv:\n def reset(self, seed):\n  send(frame(2, reward=9.0)); time.sleep(1000)\n"
    )
    with arena.session(PRELUDE + source) as session:
        assert session.loaded.ok, session.loaded
        assert session.reset().outcome is VIOLATION


def test_an_answer_in_advance_ends_the_session(arena: Arena) -> None:
    """The next call is answered before it is made: bytes that nobody asked for."""
    with arena.session(_source("send(frame(3) + frame(4, reward=100.0)); time.sleep(1000)")) as s:
        assert s.reset().ok
        first = s.step("a")
        time.sleep(0.1)
        second = s.step("b")
    assert first.outcome in (FINISHED, VIOLATION)
    assert second.outcome is VIOLATION
    assert second.reward is None


def test_the_next_request_can_be_read_but_not_the_siblings(arena: Arena) -> None:
    """A worker that plays the native loop itself sees its own requests and nobody else's."""
    body = """
        send(frame(3, b"one"))
        request = b""
        while len(request) < 9: request += os.read(0, 65536)
        send(frame(4, repr(request[9:]).encode(), 1.0))
        end()"""
    with arena.session(_source(body)) as session:
        assert session.reset().ok
        assert session.step("first").observation == "one"
        for _ in range(5):
            arena.check()
        reply = session.step("second")
        assert (reply.outcome, reply.observation) == (FINISHED, "b'second'")
        assert session.step("third").outcome in (CRASHED, VIOLATION)


def test_a_request_nobody_reads_does_not_block_the_host(arena: Arena) -> None:
    """After a forged reply the worker reads no more: a long action only fills the channel."""
    with arena.session(_source("send(frame(3)); time.sleep(1000)")) as session:
        assert session.reset().ok
        assert session.step("x" * 60_000).observation == "forged"
        begun = time.monotonic()
        replies = [session.step("x" * 64_000) for _ in range(3)]
        assert replies[0].outcome is TIMED_OUT
        assert replies[1:] == replies[:1] * 2
        assert time.monotonic() - begun < 30
    with arena.session(_source("send(frame(3)); end()")) as session:
        assert session.reset().ok
        assert session.step("x").observation == "forged"
        assert session.step("x" * 64_000).outcome in (CRASHED, VIOLATION)


def test_a_closed_request_end_does_not_hurt_the_host(arena: Arena) -> None:
    with arena.session(_source("send(frame(3)); os.close(0); time.sleep(1000)")) as session:
        assert session.reset().ok
        assert session.step("x").observation == "forged"
        assert session.step("x" * 64_000).outcome in (CRASHED, VIOLATION, TIMED_OUT)


def test_frames_for_siblings_reach_nobody(arena: Arena) -> None:
    """Every small number at once: sequence numbers are no addresses."""
    body = "send(b''.join(frame(n, b'stolen', 1e9) for n in range(500))); time.sleep(1000)"
    with arena.session(_source(body)) as session:
        assert session.reset().ok
        assert session.step("x").outcome is VIOLATION
    for _ in range(10):
        arena.check()
