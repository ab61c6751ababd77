"""Exhaustion of output: the host reads no more than the cap, and says so."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arenas
from tests.attacks.case import (
    EXCEPTION,
    FINISHED,
    OVER_MEMORY,
    OVER_OUTPUT,
    TIMED_OUT,
    VIOLATION,
    Case,
    params,
)

KIB = 1 << 10

CASES = [
    Case("output-ten-megabytes", "return 'x' * (10 << 20), 0.0, False, False, {}", OVER_OUTPUT),
    Case("output-one-byte-too-many",
         f"return 'x' * ({64 * KIB} + 1), 0.0, False, False, {{}}", OVER_OUTPUT),
    Case("output-just-at-the-cap",
         f"return 'x' * {64 * KIB}, 0.0, False, False, {{}}", seen="x" * 64 * KIB),
    Case("output-characters-of-four-bytes",
         f"return '\\U0001F600' * {32 * KIB}, 0.0, False, False, {{}}", OVER_OUTPUT),
    Case("output-huge-info",
         "return 'x', 0.0, False, False, {i: 'x' for i in range(10**5)}", seen="x"),
    Case("output-exception-of-a-gigabyte", """
        class E(Exception):
            def __str__(self): return "x" * 10**9
        raise E""", (EXCEPTION, OVER_MEMORY)),
    Case("output-exception-of-ten-megabytes",
         "raise ValueError('x' * 10**7)", EXCEPTION, "ValueError: x{100}"),
    Case("output-exception-name-of-a-megabyte",
         "raise type('N' * 10**6, (Exception,), {})('boo')", EXCEPTION, "N{80}: boo"),
    Case("output-function-names-of-a-megabyte", """
        def f(): raise ValueError
        f.__code__ = f.__code__.replace(co_name="n" * 10**6)
        f()""", EXCEPTION, "n{60}"),
    Case("output-print-without-end", "while True: print('x' * 10**6)", TIMED_OUT),
    Case("output-raw-flood", "while True: send(b'x' * 65536)", (VIOLATION, OVER_OUTPUT), ends=True),
    Case("output-raw-flood-of-zeros",
         "while True: send(bytes(65536))", (VIOLATION, OVER_OUTPUT), ends=True),
    Case("output-raw-flood-of-single-bytes",
         "while True: send(b'\\xff')", (VIOLATION, OVER_OUTPUT), ends=True),
    Case("output-promised-gigabyte", """
        send((1 << 30).to_bytes(4, "little"))
        while True: send(bytes(65536))""", (VIOLATION, OVER_OUTPUT), ends=True),
    Case("output-promised-megabyte", """
        send((1 << 20).to_bytes(4, "little"))
        while True: send(bytes(65536))""", OVER_OUTPUT, "limit", ends=True),
    Case("output-promised-and-never-sent", """
        send((1000).to_bytes(4, "little"))
        time.sleep(1000)""", TIMED_OUT, "wall", ends=True),
    Case("output-one-byte-at-a-time", """
        send((1000).to_bytes(4, "little"))
        while True:
            send(b"x")
            time.sleep(0.01)""", (TIMED_OUT, VIOLATION), ends=True),
    Case("output-frames-of-nothing", "while True: send(bytes(4) * 1000)", VIOLATION, ends=True),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_exhaustion_of_output(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def test_a_hint_has_the_same_cap(arenas: Arenas) -> None:
    arena = arenas.get("plain")
    source = (
        "class AEnv:\n"
        " def reset(self, seed): return 'x' * (1 << 20), {}\n"
        " def hint(self): return 'x' * (1 << 20)\n"
    )
    with arena.session(source) as session:
        assert session.reset().outcome is OVER_OUTPUT
        reply = session.hint()
        assert reply.outcome is not FINISHED
        assert reply.observation == ""
    arena.check_at_rest()
