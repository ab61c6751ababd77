# mypy: ignore-errors
# Untyped: it is read as text and runs in the jail, under the names a program finds there.
"""Appended to a program in the jail: its hint() then tells of its state and of its solution.

Validation uses it where observations alone do not tell whether seeds differ or actions matter, and
to read `solution()`, which no call of the jail's protocol asks for. It shares the interpreter with
the program, so what it says is untrusted text. `harness.py` is its other side.
"""


def _spade_harness(space):
    import hashlib
    import json
    import random
    import types

    plain = (str, bytes, int, float, complex, bool, type(None))
    opaque = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)

    def fold(value, depth, seen):
        if len(seen) > 20_000 or depth > 12:
            return "..."
        if isinstance(value, plain):
            return repr(value)
        if isinstance(value, opaque) or id(value) in seen:
            return type(value).__name__
        seen[id(value)] = value
        inner = depth + 1
        if isinstance(value, random.Random):
            return fold(value.getstate(), inner, seen)
        if isinstance(value, dict):
            items = [(repr(key)[:200], fold(item, inner, seen)) for key, item in value.items()]
            return sorted(items)
        if isinstance(value, (set, frozenset)):
            return sorted(str(fold(item, inner, seen)) for item in value)
        if hasattr(value, "tolist"):
            return fold(value.tolist(), inner, seen)
        if hasattr(value, "__dict__"):
            return [type(value).__name__, fold(vars(value), inner, seen)]
        try:
            return [type(value).__name__, *(fold(item, inner, seen) for item in value)]
        except Exception:
            return type(value).__name__

    def hint(self):
        told = {"solution": None}
        state = str(fold(getattr(self, "__dict__", self), 0, {}))
        told["state"] = hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()[:16]
        method = getattr(self, "solution", None)
        if callable(method):
            try:
                answer = method()
                if isinstance(answer, (list, tuple)):
                    answer = json.dumps([str(item) for item in answer])
                told["solution"] = str(answer)[:4000]
            except Exception:
                told["solution"] = None
        return json.dumps(told)

    def attached(make):
        def made(*values, **named):
            one = make(*values, **named)
            one.hint = types.MethodType(hint, one)
            return one

        return made

    for name, found in list(space.items()):
        if type(name) is str and name.endswith("Env") and callable(found):
            if isinstance(found, type):
                found.hint = hint
            else:
                space[name] = attached(found)


_spade_harness(globals())
