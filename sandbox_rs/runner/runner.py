"""Runs inside the jail: loads one environment, calls it, and turns what comes back into a reply.

Compiled into the extension module and executed once in the template; every worker is a fork of it.
It is trusted only until `load`: from then on untrusted code shares the interpreter and can change
anything here, which harms nobody but its own replies. A reply is a tuple
(outcome code, text, reward or None, terminated, truncated, detail); the native loop checks it.

Rules for values, the same on every run:
* observation: `str`, without lone surrogates; `reset` may return it bare or with an info dict.
* reward: bool (as 0 or 1), int, float, Fraction, Decimal, or a real number type (numpy scalars);
  not str, None, complex or arrays. NaN, infinities and what overflows a float are refused;
  -0.0 becomes 0.0.
* terminated, truncated: bool, a numpy bool, or the integers 0 and 1.
* step returns a tuple of exactly five; info is a dict and is not sent out.
"""

import decimal
import dis
import gc
import importlib
import math
import numbers
import os
import random
import sys
import types

FINISHED, EXCEPTION, BAD_VALUE, OVER_MEMORY, REFUSED_CALL = 0, 1, 2, 4, 6
FILE = "<environment>"
SKIPPED = ("Env", "ToolUseBaseEnv")
REFUSED_ERRNOS = (1, 13, 38)  # EPERM, EACCES, ENOSYS
MODULES = (
    "abc", "array", "ast", "base64", "binascii", "bisect", "calendar", "cmath", "codecs",
    "collections", "collections.abc", "contextlib", "copy", "csv", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "fractions", "functools", "gc", "hashlib", "heapq", "html",
    "inspect", "io", "itertools", "json", "keyword", "math", "numbers", "operator", "os",
    "pprint", "queue", "random", "re", "secrets", "shlex", "socket", "statistics", "string",
    "struct", "sys", "textwrap", "threading", "time", "traceback", "types", "typing",
    "unicodedata", "uuid", "warnings", "weakref", "encodings.ascii", "encodings.latin_1",
    "encodings.utf_8", "encodings.idna", "encodings.hex_codec",
)  # fmt: skip
PRELOADED = {
    "collections": "deque defaultdict Counter OrderedDict namedtuple",
    "itertools": "combinations permutations product chain accumulate",
    "functools": "reduce lru_cache",
    "copy": "deepcopy",
    "heapq": "heappush heappop",
    "typing": "Any Callable Dict Generator Iterable Iterator List Optional Sequence Set Tuple "
    "Type Union",
}
PRELOADED_MODULES = (
    "itertools", "math", "random", "re", "json", "collections", "functools", "string", "copy",
    "heapq", "operator", "statistics",
)  # fmt: skip
RAISES = (dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"])
DUMMY = """
class WarmEnv:
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.numbers = [rng.randint(1, 9) for _ in range(3)]
        return f"Sum {self.numbers}", {}
    def step(self, action):
        match = re.search(r"boxed\\\\{(.*?)\\\\}", action)
        try:
            value = int(match.group(1) if match else action)
        except ValueError:
            return "not a number", 0.0, False, False, {}
        return "done", 1.0 if value == sum(self.numbers) else 0.0, True, False, {}
"""


class Sink:
    """Where print goes: nowhere, at no cost in memory."""

    encoding, errors, closed, name = "utf-8", "replace", False, "<sink>"

    def write(self, text):
        """Take and drop."""
        return len(text)

    def writelines(self, lines):
        """Take and drop."""
        for _ in lines:
            pass

    def flush(self):
        """Nothing is held."""
        pass

    def isatty(self):
        """It is no terminal."""
        return False

    def writable(self):
        """It can be written."""
        return True

    def readable(self):
        """It cannot be read."""
        return False

    def fileno(self):
        """There is no descriptor."""
        raise OSError("there is no file here")


class Bad(Exception):
    """The contract forbids this value."""


def prepare(imports, import_paths, max_turns):
    """Import everything, build the namespace, run a trusted environment once, close the doors."""
    for name in ("_hashlib", "_uuid"):
        sys.modules.setdefault(name, None)  # OpenSSL, libuuid: their mappings cost every fork
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: None
    # Workers are single-threaded and seeded by us: the hooks of random, threading and the like
    # would only cost each of them time.
    for name in MODULES:
        importlib.import_module(name)
    for name in ("_hashlib", "_uuid"):
        sys.modules.pop(name, None)
    sys.path[:0] = import_paths
    for name in imports:
        importlib.import_module(name)
    os.register_at_fork = register
    base = {name: sys.modules[name] for name in PRELOADED_MODULES}
    for module, names in PRELOADED.items():
        for name in names.split():
            base[name] = getattr(sys.modules[module], name)
    if "numpy" in sys.modules:
        for name in ("numpy.random", "numpy.linalg", "numpy.fft"):
            importlib.import_module(name)  # numpy 2 imports them at first use, which fails here
        base["numpy"] = base["np"] = sys.modules["numpy"]
    sys.stdin, sys.stdout, sys.stderr = None, Sink(), Sink()
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = None, sys.stdout, sys.stderr
    sys.argv, sys.orig_argv = ["environment"], ["environment"]
    sys.path[:] = []
    sys.path_hooks[:] = []
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [m for m in sys.meta_path if "Path" not in getattr(m, "__name__", "Path")]
    sys.modules.pop("_sandbox_rs", None)
    sys.modules.pop("spade_runner", None)
    sys.modules["__main__"].__dict__.pop("module", None)
    handlers = make_handlers(base, max_turns)
    warm = make_handlers(base, max_turns)
    for reply in (warm[0](DUMMY, "1"), warm[1]("1"), warm[2]("\\boxed{x}"), warm[2]("3")):
        if reply[0] != FINISHED:
            raise RuntimeError(f"the trusted environment failed: {reply}")
    sys.modules.pop("environment", None)
    gc.collect()
    plug_pools()
    gc.freeze()
    return handlers


PLUGS = []


def plug_pools(block=16, largest=512, most=4096, pool_bytes=16384):
    """Fill the half-used pools of the allocator, so that workers start on fresh pages.

    A write into a page shared with the template copies it; into a fresh one it does not.
    """
    for size in range(block * 3, largest + 1, block):
        for _ in range(most):
            plug = bytes(size - 33)  # 33 bytes of header and final zero
            PLUGS.append(plug)
            if id(plug) % pool_bytes < 64:
                break  # the first block of a fresh pool


def seed_all(seed, seed_random=random.seed, modules=sys.modules):
    """Seed the global generators from the call's seed: a fork would share or reseed them."""
    seed_random(seed)
    numpy = modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def make_handlers(base, max_turns):
    """Load, reset, step and hint over one state; everything they need is bound here."""
    environment, stage = None, "empty"

    def guarded(where, function, *arguments):
        try:
            return function(*arguments)
        except Bad as bad:
            return (BAD_VALUE, "", None, False, False, f"in {where}: {bad}")
        except BaseException as error:
            return failed(where, error)

    def load(source, seed_hex):
        def run():
            nonlocal environment, stage
            seed_all(int(seed_hex, 16))
            module = types.ModuleType("environment")
            sys.modules["environment"] = module
            namespace = module.__dict__
            namespace.update(base)
            exec(compile(source, FILE, "exec", dont_inherit=True), namespace)
            found = find_class(namespace, base)
            reply = guarded("constructor", construct, found)
            if isinstance(reply, tuple):
                return reply
            environment, stage = reply[0], "loaded"
            return (FINISHED, "", None, False, False, "")

        return guarded("source", run)

    def construct(found):
        try:
            return [found()]
        except TypeError as error:
            if error.__traceback__.tb_next is not None:
                raise  # raised inside the constructor, not by the call
        return [found(max_turns=max_turns)]

    def reset(seed_hex):
        def run():
            nonlocal stage
            seed = int(seed_hex, 16)
            seed_all(seed)
            value = environment.reset(seed)
            if isinstance(value, tuple):
                if len(value) != 2 or not isinstance(value[1], dict):
                    raise Bad(f"reset must return (str, dict), got {shape(value)}")
                value = value[0]
            text = as_text(value, "observation")
            stage = "running"
            return (FINISHED, text, None, False, False, "")

        return guarded("reset", run)

    def step(action):
        def run():
            nonlocal stage
            if stage != "running":
                when = "after the episode ended" if stage == "done" else "before reset"
                raise Bad(f"order: step {when}; call reset first")
            value = environment.step(action)
            if not isinstance(value, tuple) or len(value) != 5:
                raise Bad("step must return (str, number, bool, bool, dict), got " + shape(value))
            observation, reward, terminated, truncated, info = value
            if not isinstance(info, dict):
                raise Bad(f"info must be a dict, got {type_name(info)}")
            text, number = as_text(observation, "observation"), as_reward(reward)
            end, cut = as_flag(terminated, "terminated"), as_flag(truncated, "truncated")
            if end or cut:
                stage = "done"
            return (FINISHED, text, number, end, cut, "")

        return guarded("step", run)

    def hint():
        def run():
            if stage == "loaded":
                raise Bad("order: hint before reset; call reset first")
            method = getattr(environment, "hint", None)
            if method is None or not callable(method):
                return (FINISHED, "", None, False, False, "no hint")
            return (FINISHED, as_text(method(), "hint"), None, False, False, "")

        return guarded("hint", run)

    return load, reset, step, hint


def find_class(namespace, base):
    """The first class whose name ends in Env, in the order of definition."""
    for name, value in list(namespace.items()):
        if not name.endswith("Env") or name in SKIPPED or name in base:
            continue
        if isinstance(value, type):
            return value
    raise Bad("no class whose name ends in Env")


def type_name(value):
    """Name of a value's type, past whatever its metaclass says."""
    return type.__dict__["__name__"].__get__(type(value))[:80]


def shape(value):
    """A value's type, and the types in it when it is a tuple."""
    if type(value) is tuple:
        return "(" + ", ".join(type_name(item) for item in value[:8]) + ")"
    return type_name(value)


def as_text(value, what):
    """An exact str that can be sent."""
    if not isinstance(value, str):
        raise Bad(f"{what} must be a str, got {type_name(value)}")
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Bad(f"{what} holds a lone surrogate") from None
    return text


def as_reward(value):
    """A finite float by the rule of this module."""
    if not isinstance(value, (numbers.Real, decimal.Decimal)):
        raise Bad(f"reward must be a number, got {type_name(value)}")
    try:
        number = float(value) + 0.0
    except OverflowError:
        raise Bad("reward overflows a float") from None
    if not math.isfinite(number):
        raise Bad(f"reward is {number}")
    return number


def as_flag(value, what):
    """An exact bool by the rule of this module."""
    if value is True or value is False:
        return value
    if type(value) is int and value in (0, 1):
        return value == 1
    if type_name(value) in ("bool_", "bool"):
        return bool(value)
    raise Bad(f"{what} must be a bool, got {type_name(value)}")


def failed(where, error):
    """The reply for whatever escaped: its kind, a bounded message, the environment's own lines."""
    lines, last, depth = [], None, 0
    trace = error.__traceback__
    while trace is not None and depth < 100_000:
        code = trace.tb_frame.f_code
        if code.co_filename == FILE:
            lines.append(f"line {trace.tb_lineno} in {code.co_name[:60]}")
            del lines[:-6]
        last, trace, depth = trace, trace.tb_next, depth + 1
    try:
        text = str(error)
        text = str.__str__(text)[:600] if isinstance(text, str) else ""
        text = text.encode("utf-8", "replace").decode()
    except BaseException:
        text = "<no message>"
    if isinstance(error, SyntaxError) and error.filename == FILE:
        lines = [f"line {error.lineno}"]
        text = str(error.msg)[:200]
    detail = f"in {where}: {type_name(error)}: {text}"
    if lines:
        detail += " (" + ", ".join(lines) + ")"
    return (kind_of(error, last), "", None, False, False, detail)


def kind_of(error, last):
    """A limit or a refused call, if that is what raised; an exception raised by hand is neither."""
    if not isinstance(error, (MemoryError, OSError)):
        return EXCEPTION
    code = last.tb_frame.f_code if last is not None else None
    if code is not None and code.co_filename == FILE and code.co_code[last.tb_lasti] in RAISES:
        return EXCEPTION
    if isinstance(error, MemoryError):
        return OVER_MEMORY
    return REFUSED_CALL if error.errno in REFUSED_ERRNOS else EXCEPTION
