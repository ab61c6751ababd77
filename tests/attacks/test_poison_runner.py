"""Poisoning of the runner: whatever is replaced, rewritten or found, only own replies change."""

import math
from collections.abc import Callable

import pytest

from spade_async.types import Outcome, Reply
from tests.attacks.arena import Arena
from tests.attacks.case import (
    BAD_VALUE,
    CRASHED,
    EXCEPTION,
    FINISHED,
    OVER_MEMORY,
    REFUSED,
    TIMED_OUT,
    VIOLATION,
    Case,
    params,
)  # fmt: skip

ANY = tuple(Outcome)
"""The outcome is the attacker's own affair: what counts is that nobody else notices."""

FRAMES = """
def frames():
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back

def runner_functions():
    import gc, types
    gc.unfreeze()
    return [f for f in gc.get_objects() if isinstance(f, types.FunctionType)
            and f.__code__.co_filename != "<environment>" and "runner" in f.__code__.co_filename]
"""

CASES = [
    Case("runner-modules-replaced", """
        import builtins, json, struct
        json.dumps = json.loads = struct.pack = os.write = os.read = lambda *a, **k: 1 / 0
        sys.stdout = sys.stderr = None
        for name in list(sys.modules):
            if name not in ("sys", "builtins"): sys.modules[name] = None"""),
    Case("runner-builtins-replaced", """
        import builtins
        for name in ("isinstance", "len", "float", "tuple", "type", "str",
                     "getattr", "callable", "list", "int"):
            setattr(builtins, name, lambda *a, **k: True)""", ANY, seen=None),
    Case("runner-builtins-emptied", "import builtins\nbuiltins.__dict__.clear()", ANY, seen=None),
    Case("runner-import-replaced", """
        import builtins
        builtins.__import__ = lambda *a, **k: sys.exit(0)
        import json""", EXCEPTION, "SystemExit"),
    Case("runner-traced-into-another-reply", """
        def trace(frame, event, argument):
            if event == "return" and type(argument) is tuple and len(argument) == 6:
                frame.f_locals["number"] = 1e9
            return trace
        for frame in frames(): frame.f_trace = trace
        sys.settrace(trace)""", ANY, head=FRAMES, seen=None),
    Case("runner-profiled", "sys.setprofile(lambda *a: sys.exit(0))", ANY, seen=None),
    Case("runner-frames-walked-and-emptied", """
        for frame in frames():
            for names in (frame.f_globals, frame.f_builtins):
                for name in list(names):
                    if not name.startswith("__"):
                        names[name] = None""", ANY, head=FRAMES, seen=None),
    Case("runner-handlers-rewritten", """
        # gc reaches the closures of the runner; all of them now answer with a forged reply.
        for function in runner_functions():
            if function.__closure__ is None:
                forged = lambda *a, **k: (0, "forged", 1e9, True, True, "")
                function.__code__ = forged.__code__""",
        ANY, head=FRAMES, seen=None),
    Case("runner-stage-and-environment-rewritten", """
        import ctypes""", EXCEPTION, "ModuleNotFoundError"),
    Case("runner-cells-rewritten", """
        for function in runner_functions():
            for cell in function.__closure__ or ():
                try: cell.cell_contents = lambda *a: (0, "x" * 10**6, float("nan"), 1, 1, "")
                except ValueError: pass""", ANY, head=FRAMES, seen=None),
    Case("runner-code-replaced-by-garbage", """
        for function in runner_functions():
            code = function.__code__.replace(co_code=b"\\xff\\xff" * 8, co_stacksize=0)
            function.__code__ = code""",
        ANY, head=FRAMES, seen=None),
    Case("runner-defaults-replaced", """
        for function in runner_functions():
            function.__defaults__ = (None,) * 8
            function.__kwdefaults__ = {"x": 1}""", ANY, head=FRAMES, seen=None),
    Case("runner-outcomes-renumbered", """
        for function in runner_functions(): function.__globals__["FINISHED"] = 200""",
        ANY, head=FRAMES, seen=None),
    Case("runner-exception-type-renamed", """
        class Nasty(Exception): pass
        Nasty.__name__ = "KeyboardInterrupt: in runner"
        Nasty.__qualname__, Nasty.__module__ = "x" * 10**6, "builtins"
        raise Nasty("boo")""", EXCEPTION, "in step: KeyboardInterrupt: in runner: boo"),
    Case("runner-metaclass-with-a-name", """
        class M(type):
            @property
            def __name__(cls): raise SystemExit
            def __instancecheck__(cls, x): return True
            def __getattribute__(cls, name): raise SystemExit
        class Nasty(Exception, metaclass=M): pass
        raise Nasty("boo")""", EXCEPTION, "Nasty"),
    Case("runner-exception-with-properties", """
        class Nasty(OSError):
            errno = property(lambda self: 1 / 0)
            __traceback__ = property(lambda self: self)
            filename = property(lambda self: 1 / 0)
            tb_frame = property(lambda self: self)
            f_code = property(lambda self: 7)
        raise Nasty("boo")""", EXCEPTION),
    Case("runner-syntax-error-with-properties", """
        class Nasty(SyntaxError):
            msg = lineno = property(lambda self: sys.exit(0))
            filename = "<environment>"
        raise Nasty("boo")""", EXCEPTION),
    Case("runner-refusal-forged", "raise PermissionError(1, 'by hand')", EXCEPTION),
    Case("runner-class-that-says-it-is-a-text", """
        class Liar:
            __class__ = str
            def __str__(self): return 7
            def encode(self, *a): return self
        return Liar(), 0.0, False, False, {}""", (BAD_VALUE, EXCEPTION)),
    Case("runner-text-subclass", """
        class Text(str):
            def encode(self, *a): raise SystemExit
            def __str__(self): return "other"
            def __len__(self): return 0
        return Text("plain"), 0.0, False, False, {}""", seen="plain"),
    Case("runner-number-registered", """
        import numbers
        class N:
            def __float__(self): return float("nan")
        numbers.Real.register(N)
        return "x", N(), False, False, {}""", BAD_VALUE, "nan"),
    Case("runner-number-class-hooked", """
        import numbers
        numbers.Real.__instancecheck__ = lambda *a: True
        type(numbers.Real).__instancecheck__ = lambda *a: True
        return "x", "1.0", False, False, {}""", ANY, seen=None),
    Case("runner-math-replaced", """
        import math
        math.isfinite = lambda x: True
        return "x", float("inf"), False, False, {}""", (BAD_VALUE, VIOLATION)),
    Case("runner-equal-to-everything", """
        class Everything:
            def __eq__(self, other): return True
            def __bool__(self): return True
            def __hash__(self): return 0
        return "x", 0.0, Everything(), False, {}""", BAD_VALUE, "terminated"),
    Case("runner-own-source-rewritten", """
        import linecache
        linecache.cache["<environment>"] = (1, None, ["raise SystemExit"] * 99, "<environment>")
        other = lambda self, action: ("rewritten", 1.0, True, False, {})
        type(self).step.__code__ = other.__code__
        type(self).__name__ = "Env"
        self.__class__ = type("OtherEnv", (), {})""", (FINISHED, EXCEPTION)),
    Case("runner-native-module-found-again", """
        import gc
        gc.unfreeze()
        kinds = "builtin_function_or_method", "type"
        found = [x for x in gc.get_objects() if type(x).__name__ in kinds
                 and "_sandbox_rs" in (getattr(x, "__module__", None) or "")]
        for thing in found + [getattr(x, "__self__", None) for x in found]:
            for arguments in ((), ("",), ("strict = true",)):
                try: thing(*arguments)
                except BaseException: pass""", ANY, seen=None),
    Case("runner-template-started-again", """
        import gc
        gc.unfreeze()
        for x in gc.get_objects():
            if getattr(x, "__name__", "") in ("_template_main", "_broker_main"): x()
        for x in gc.get_objects():
            for y in gc.get_referents(x):
                if getattr(y, "__name__", "") == "_template_main": y()""", ANY, seen=None),
    Case("runner-prepared-again", """
        for function in runner_functions():
            if function.__name__ in ("prepare", "make_handlers", "plug_pools"):
                try: function([], [], 25)
                except BaseException: pass""", ANY, head=FRAMES, seen=None),
    Case("runner-interpreter-finalised", """
        import atexit
        atexit._run_exitfuncs()
        for name in ("_shutdown", "_clear", "_clear_type_cache"):
            getattr(sys, name, lambda: None)()
        sys.modules.clear()""", ANY, seen=None),
    Case("runner-sub-interpreter",
         "import _xxsubinterpreters as s\ns.run_string(s.create(), 'import os; os._exit(0)')",
         (EXCEPTION, CRASHED)),
    Case("runner-small-integers-rewritten", """
        # The same objects serve every fork: a copy of our own is written, not theirs.
        for value in range(-5, 257):
            ctypes.memset(id(value) + 24, 0x5A, 4)
        for thing in (None, True, False, (), "", b""):
            ctypes.memset(id(thing), 0, 8)""", ANY, seen=None, on="ctypes"),
    Case("runner-every-type-torn-open", """
        for kind in (str, float, tuple, dict, type, BaseException, int):
            ctypes.memset(id(kind) + 24, 0xFF, 64)
        str(1.0)""", ANY, seen=None, on="ctypes"),
    Case("runner-native-stack-overwritten", """
        local = ctypes.c_int()
        place = ctypes.c_void_p.in_dll(libc, "environ").value
        ctypes.memset(place - 65536, 0x41, 65536 + 4096)""", ANY, seen=None, on="ctypes"),
    Case("runner-filter-of-warnings", """
        import warnings
        warnings.simplefilter("error")
        class R(float): pass
        class N:
            def __float__(self): return R(0.5)
            def __index__(self): return 1
        import numbers
        numbers.Real.register(N)
        return "x", N(), False, False, {}""", ANY, seen=None),
    Case("runner-gc-freed-under-it", """
        import gc
        gc.unfreeze()
        for thing in gc.get_objects():
            if type(thing) in (dict, list) and thing is not passed:
                try: thing.clear()
                except BaseException: pass
        gc.collect()""", ANY, seen=None),
    Case("runner-recursion-limit",
         "sys.setrecursionlimit(max(30, len([*frames()]) + 6))", ANY, head=FRAMES, seen=None),
    Case("runner-audit-hook", """
        def hook(event, arguments):
            if event in ("exec", "compile", "object.__getattr__"): raise SystemExit
        sys.addaudithook(hook)"""),
    Case("runner-signal-wakeup-on-the-protocol", """
        import _signal
        for fd in (0, 1):
            try: _signal.set_wakeup_fd(fd)
            except (OSError, ValueError): pass"""),
    Case("runner-exit-in-class-creation", "pass", EXCEPTION, "SystemExit", head="""
        class Base:
            def __init_subclass__(cls): sys.exit(0)
        class DerivedEnv(Base): pass"""),
    Case("runner-named-like-the-harness", "pass", EXCEPTION, head="""
        sys.modules["spade_runner"] = sys.modules["_sandbox_rs"] = sys.modules["environment"] = None
        class Bad(Exception): pass
        raise Bad("in runner: protocol")"""),
    Case("runner-environment-module-swapped", """
        sys.modules["environment"].__dict__.clear()
        sys.modules["__main__"].__dict__.clear()""", ANY, seen=None),
    Case("runner-step-deleted", "del type(self).step, type(self).reset"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_poisoning_of_the_runner(attack: Callable[[Case], Reply], case: Case) -> None:
    reply = attack(case)
    if reply.outcome is FINISHED:
        assert reply.reward is not None


def test_a_poisoned_runner_lies_in_every_later_call_of_its_own_session_only(arena: Arena) -> None:
    body = """
        for function in runner_functions():
            if function.__name__ in ("as_reward", "as_text", "as_flag"):
                function.__code__ = (lambda *a: 1e9).__code__
        for function in runner_functions():
            if function.__name__ == "failed":
                never = lambda *a: (0, "never fails", 1.0, True, False, "")
                function.__code__ = never.__code__"""
    with arena.session(Case("", body, head=FRAMES).source()) as session:
        assert session.reset().ok
        replies = [session.step("go") for _ in range(5)]
        arena.check()
    allowed = (FINISHED, EXCEPTION, BAD_VALUE, CRASHED, REFUSED, TIMED_OUT, OVER_MEMORY, VIOLATION)
    assert all(reply.outcome in allowed for reply in replies)


def test_a_reward_can_be_forged_but_not_what_it_is(arena: Arena) -> None:
    """The reward is the environment's own word; whatever it does, it is one finite float."""
    for value in ("1e308", "-1e308", "5e-324", "10**300", "True", "-0.0"):
        with arena.session(Case("", f"return 'x', {value}, True, False, {{}}").source()) as session:
            assert session.reset().ok
            reward = session.step("go").reward
            assert type(reward) is float
            assert math.isfinite(reward)
