"""Host-side parsing: whatever `step`, `reset` and `hint` return or raise becomes a plain reply."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arena
from tests.attacks.case import (
    BAD_VALUE,
    CRASHED,
    EXCEPTION,
    FINISHED,
    OVER_MEMORY,
    OVER_OUTPUT,
    TIMED_OUT,
    Case,
    params,
)  # fmt: skip

DEEP = (EXCEPTION, BAD_VALUE, CRASHED, OVER_MEMORY, TIMED_OUT)


def returns(name: str, value: str, outcomes=BAD_VALUE, says: str = "", head: str = "") -> Case:
    """A case whose step returns this expression."""
    return Case(f"parse-{name}", f"return {value}", outcomes, says, seen=None, head=head)


def raises(name: str, body: str, says: str, outcomes=EXCEPTION) -> Case:
    """A case whose step raises."""
    return Case(f"parse-{name}", body, outcomes, says)


CASES = [
    returns("none", "None", says="NoneType"),
    returns("cyclic-tuple", "(lambda x: (x.append(x), tuple(x))[1])([])", says="tuple|list"),
    returns("four-and-six-items",
            "('x', 0.0, False, False) if len(action) % 2 else ('x', 0.0, False, False, {}, 1)"),
    returns("tuple-subclass", "T(('x', 0.0, False, False, {}))", (FINISHED, BAD_VALUE, EXCEPTION),
            head="class T(tuple):\n def __len__(self): return 5\n def __iter__(self): 1 / 0"),
    returns("named-tuple", "T('x', 0.0, False, False, {})", FINISHED,
            head="import collections\nT = collections.namedtuple('T', 'a b c d e')"),
    returns("generator", "(x for x in range(5))", says="generator"),
    returns("coroutine", "f()", says="coroutine", head="async def f(): pass"),
    returns("type", "type", says="type"),
    returns("module", "sys", says="module"),
    returns("observation-bytes", "(b'x', 0.0, False, False, {})", says="observation.*bytes"),
    returns("observation-surrogate", "('\\ud800', 0.0, False, False, {})", says="surrogate"),
    returns("observation-surrogate-pair-in-two",
            "('\\ud83d' + '\\ude00', 0.0, False, False, {})", says="surrogate"),
    returns("observation-nul-and-controls",
            "('\\0\\x1b[2J\\r\\n\\u202e\\ufeff', 0.0, False, False, {})", FINISHED),
    returns("observation-beyond-the-basic-plane",
            "('\\U0010ffff' * 10, 0.0, False, False, {})", FINISHED),
    returns("reward-nan", "('x', float('nan'), False, False, {})", says="reward"),
    returns("reward-negative-infinity", "('x', float('-inf'), False, False, {})", says="reward"),
    returns("reward-overflow", "('x', 1e308 * 10, False, False, {})", says="reward"),
    returns("reward-huge-integer", "('x', 10**400, False, False, {})", says="overflow"),
    returns("reward-integer-of-a-megabyte",
            "('x', 1 << (1 << 23), False, False, {})", says="overflow"),
    returns("reward-complex", "('x', 1j, False, False, {})", says="complex"),
    returns("reward-text", "('x', '1.0', False, False, {})", says="str"),
    returns("reward-decimal-nan", "('x', D('sNaN'), False, False, {})", (BAD_VALUE, EXCEPTION),
            head="from decimal import Decimal as D"),
    returns("reward-decimal-huge", "('x', D('1e999999'), False, False, {})", says="reward",
            head="from decimal import Decimal as D"),
    returns("reward-fraction-huge", "('x', F(10**400, 3), False, False, {})", says="overflow",
            head="from fractions import Fraction as F"),
    returns("reward-that-raises", "('x', N(), False, False, {})", EXCEPTION, "ZeroDivisionError",
            head="import numbers\nclass N:\n def __float__(self): 1 / 0\nnumbers.Real.register(N)"),
    returns("reward-that-is-no-float", "('x', N(), False, False, {})", EXCEPTION, "TypeError",
            head="import numbers\nclass N: __float__ = lambda self: 'x'\nnumbers.Real.register(N)"),
    returns("reward-in-a-list", "('x', [1.0], False, False, {})", says="list"),
    returns("flag-text", "('x', 0.0, 'yes', False, {})", says="terminated"),
    returns("flag-two", "('x', 0.0, False, 2, {})", says="truncated"),
    returns("flag-with-a-false-name",
            "('x', 0.0, bool_(), False, {})", (FINISHED, BAD_VALUE, EXCEPTION),
            head="class bool_:\n    def __bool__(self): return True"),
    returns("flag-that-raises", "('x', 0.0, bool_(), False, {})", EXCEPTION, "ZeroDivisionError",
            head="class bool_:\n    def __bool__(self): 1 / 0"),
    returns("info-list", "('x', 0.0, False, False, [])", says="info"),
    returns("info-with-hostile-keys", "('x', 0.0, False, False, I())", FINISHED,
            head="def leave(*a): raise SystemExit\n"
                 "class I(dict): __getattribute__ = __iter__ = leave"),
    returns("info-nested", "('x', 0.0, False, False, {1: N})", FINISHED,
            head="N = []\nfor _ in range(10**5): N = [N]"),
    returns("everything-hostile", "(H(), H(), H(), H(), H())", (BAD_VALUE, EXCEPTION),
            head="def leave(*a): raise SystemExit\nclass H: __getattribute__ = __repr__ = leave"),
    returns("type-name-of-a-megabyte", "type('N' * 10**6, (), {})()", says="^.{0,400}$"),
    raises("system-exit", "raise SystemExit(0)", "SystemExit"),
    raises("keyboard-interrupt", "raise KeyboardInterrupt", "KeyboardInterrupt"),
    raises("generator-exit", "raise GeneratorExit", "GeneratorExit"),
    raises("stop-iteration", "raise StopIteration", "StopIteration"),
    raises("base-exception", "raise type('B', (BaseException,), {})('boo')", "B: boo"),
    raises("group",
           "raise BaseExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [KeyError(2)])])",
           "Group"),
    raises("group-nested-deep", """
        e = ValueError()
        for _ in range(5000): e = ExceptionGroup("g", [e])
        raise e""", "", DEEP),
    raises("chained-a-hundred-thousand-deep", """
        e = ValueError("end")
        for n in range(10**5):
            f = ValueError(n); f.__cause__ = e; e = f
        raise e""", "ValueError|SIG", DEEP),
    raises("context-a-hundred-thousand-deep", """
        e = ValueError("end")
        for n in range(10**5):
            f = ValueError(n); f.__context__ = e; e = f
        raise e""", "ValueError|SIG", DEEP),
    raises("chained-in-a-circle", """
        a, b = ValueError("a"), ValueError("b")
        a.__cause__, b.__cause__ = b, a
        a.__context__, b.__context__ = b, a
        raise a from b""", "ValueError: a"),
    raises("traceback-in-a-circle", """
        try: 1 / 0
        except ZeroDivisionError as e: error = e
        import types
        trace = None
        for _ in range(10**5): trace = types.TracebackType(trace, sys._getframe(), 0, 1)
        raise error.with_traceback(trace)""", "", DEEP),
    raises("text-of-surrogates", "raise ValueError('\\ud800' * 1000)", "ValueError"),
    raises("text-of-controls", "raise ValueError('\\0\\x1b]0;x\\x07\\r\\n' * 50)", "ValueError"),
    raises("text-that-raises",
           "raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})", "no message"),
    raises("text-that-is-no-text", "raise type('E', (Exception,), {'__str__': lambda s: 7})", "E"),
    raises("text-that-leaves",
           "raise type('E', (Exception,), {'__str__': lambda s: sys.exit(0)})", "E"),
    raises("text-subclass", """
        class T(str):
            def __getitem__(self, i): raise SystemExit
            def encode(self, *a): raise SystemExit
        raise type("E", (Exception,), {"__str__": lambda s: T("boo")})""", "E: boo"),
    raises("notes", """
        e = ValueError("boo")
        for _ in range(1000): e.add_note("x" * 10_000)
        raise e""", "ValueError: boo"),
    raises("recursion", "def f(): f()\nf()", "RecursionError"),
    raises("deep-repr", """
        x = []
        for _ in range(10**6): x = [x]
        repr(x)""", "", DEEP),
    raises("deep-deallocation", """
        class N:
            def __init__(self, n): self.n = n
        x = None
        for _ in range(10**5): x = N(x)
        del x
        raise ValueError("still here")""", "", DEEP),
    raises("deep-json",
           "import json\nx = []\nfor _ in range(10**5): x = [x]\njson.dumps(x)", "", DEEP),
    raises("deep-compile", "compile('-' * 10**6 + '1', 'x', 'eval')", "", DEEP),
    raises("deep-parentheses", "compile('(' * 10**6, 'x', 'eval')", "", DEEP),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_host_side_parsing(attack: Callable[[Case], Reply], case: Case) -> None:
    reply = attack(case)
    assert type(reply.observation) is str
    assert type(reply.detail) is str
    assert type(reply.terminated) is bool
    assert reply.reward is None or type(reply.reward) is float


SOURCES = {
    "nul-bytes": "x = 1\0",
    "byte-order-mark": "\ufeffclass AEnv:\n def reset(self, s): return 'x', {}\n",
    "tabs-and-spaces": "if 1:\n\tx = 1\n        y = 2\n",
    "coding-cookie": "# -*- coding: utf-7 -*-\nx = '+AGE-'\n",
    "late-future": "x = 1\nfrom __future__ import annotations\n",
    "deep-parentheses": "(" * 100_000,
    "deep-unary": "-" * 100_000 + "1",
    "deep-attributes": "x" + ".x" * 50_000,
    "deep-blocks": "".join(" " * n + "if 1:\n" for n in range(200)),
    "long-line": "x = [" + "1," * 60_000 + "]",
    "many-constants": "\n".join(f"x{n} = {n}" for n in range(10_000)),
    "huge-constant-folding": "x = " + " * ".join(["(1 << 100)"] * 5000),
    "huge-repetition": "x = 'a' * 10**10",
    "huge-integer-literal": "x = " + "9" * 100_000,
    "f-string-nest": "x = " + "f'{" * 200 + "1" + "}'" * 200,
    "star-assignments": "(" + "*a, " * 1000 + ") = 1",
    "unicode-names": "ｘ = 1\nclass ＡEnv: pass",
    "class-with-hostile-metaclass": (
        "class M(type):\n def __call__(cls, *a): raise SystemExit\n"
        " def __instancecheck__(cls, x): raise SystemExit\nclass AEnv(metaclass=M): pass"
    ),
    "name-that-is-no-class": "AEnv = lambda: 1",
    "namespace-that-raises": "globals().clear()",
    "namespace-with-odd-keys": "globals()[1] = 2\nglobals()[None] = 3",
    "constructor-that-wants-more": "class AEnv:\n def __init__(self, a, b, c): pass",
    "constructor-that-returns": "class AEnv:\n def __new__(cls): return 7",
    "constructor-that-hangs-in-eq": "class AEnv:\n def __eq__(self, o):\n  while True: pass",
}


@pytest.mark.parametrize("name", SOURCES)
def test_hostile_sources_end_at_load_or_not_at_all(arena: Arena, name: str) -> None:
    with arena.session(SOURCES[name]) as session:
        loaded = session.loaded
        assert loaded.outcome in (*DEEP, FINISHED), loaded
        assert len(loaded.detail) <= 4096
        if loaded.ok:
            assert session.reset().outcome is not None
        else:
            assert session.reset() == session.step("x") == loaded


def test_resets_and_hints_of_every_shape(arena: Arena) -> None:
    values = {
        "None": BAD_VALUE, "('x',)": BAD_VALUE, "('x', [])": BAD_VALUE, "b'x'": BAD_VALUE,
        "('x', {}, 1)": BAD_VALUE, "(x for x in ())": BAD_VALUE, "'\\ud800'": BAD_VALUE,
        "'x' * (1 << 20)": OVER_OUTPUT, "'x'": FINISHED, "('x', {})": FINISHED, "1 / 0": EXCEPTION,
    }  # fmt: skip
    for value, outcome in values.items():
        source = f"class AEnv:\n def reset(self, seed): return {value}\n def hint(self): return 7\n"
        with arena.session(source) as session:
            assert session.reset().outcome is outcome, value
            assert session.hint().outcome is BAD_VALUE


def test_actions_arrive_exactly_or_not_at_all(arena: Arena) -> None:
    actions = ["", "\0", "\n", "\x1b", "\u2028", "\U0010ffff", "a" * (64 << 10), "é" * (32 << 10)]
    body = "return str(len(action)), 0.0, False, False, {}"
    with arena.session(Case("", body).source()) as one:
        assert one.reset().ok
        said = [one.step(action) for action in actions]
    assert all(reply.ok for reply in said)
    assert [int(reply.observation) for reply in said] == [len(action) for action in actions]
    with arena.session(Case("", "pass").source()) as session:
        assert session.reset().ok
        for bad in ("\ud800", "a" * ((64 << 10) + 1), "é" * (33 << 10)):
            with pytest.raises(ValueError, match="action"):
                session.step(bad)
        assert session.step("still here").ok
