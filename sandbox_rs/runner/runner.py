"""Runs inside the jail: loads one environment, calls it, and turns what comes back into a reply.

Plain Python that needs nothing compiled. The runner is one text, made of hooks.py, breaches.py,
values.py, clock.py, seeding.py, warming.py, forms.py, answers.py and this file, in that order
(`RUNNER_SOURCE` of the extension module). It is executed once in the template, whose forks are the
workers, or in the process of another backend; whoever runs it calls `prepare` and then its
handlers. It is trusted only until a load: from then on untrusted code shares the interpreter and
can change anything here, which harms nobody but its own replies. The caller checks them.
"""

import importlib
import marshal
import math
import os
import sys
import time
import types

if False:  # for readers and linters: these are above in the same text
    from answers import install_answers
    from breaches import name_limits
    from clock import install_clock, install_loop
    from forms import begin, construct, find_class, flag_of
    from hooks import register_at_fork
    from seeding import make_seeding
    from values import FILE, FINISHED, Bad, as_flag, as_reward, as_text, failed, shape, type_name
    from warming import make_ready, make_trial

MODULES = (
    "__future__", "abc", "array", "ast", "base64", "binascii", "bisect", "calendar", "cmath",
    "codecs", "collections", "collections.abc", "contextlib", "copy", "csv", "dataclasses",
    "datetime", "decimal", "difflib", "enum", "fractions", "functools", "gc", "graphlib",
    "hashlib", "heapq", "html", "inspect", "io", "itertools", "json", "keyword", "math",
    "numbers", "operator", "os", "pprint", "queue", "random", "re", "secrets", "shlex",
    "socket", "statistics", "string", "struct", "sys", "textwrap", "threading", "time",
    "traceback", "types", "typing", "unicodedata", "uuid", "warnings", "weakref", "_strptime",
    "encodings.ascii", "encodings.latin_1", "encodings.utf_8", "encodings.idna",
    "encodings.hex_codec", "encodings.rot_13", "encodings.utf_16", "encodings.unicode_escape",
)  # fmt: skip
TIERS = {
    "files": ("tempfile", "shutil", "pathlib", "glob", "fileinput"),
    "asyncio": ("asyncio", "asyncio.taskgroups", "asyncio.timeouts"),
    "threads": ("concurrent.futures.thread", "sched"),
}
OPTIONS = {"profile", "tiers", "virtual_clock", "warm", "limits"}
THREAD_STACK_BYTES = 1 << 20
UNUSED = ("_hashlib", "_uuid", "_ssl", "ssl")  # OpenSSL, libuuid: their mappings cost every fork
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


def prepare(imports, import_paths, max_turns, *, options=None):
    """Import everything, build the namespace, run a trusted environment once, close the doors.

    Args:
        imports: further modules to import, found in `import_paths` (before what `sys.path` has).
        import_paths: folders.
        max_turns: handed to constructors that demand it.
        options: a dict or None: `profile` (str) is named in errors, `tiers` (list) has some of
            TIERS, `virtual_clock` (bool) replaces the clock by that of clock.py, `warm` (True
            unless said) readies the process for forks: False where it serves one episode itself;
            `limits` (dict) has what a breach names, see `name_limits`: nothing else is done by it.

    Returns the handlers as a tuple, in this order; `seed_hex` is an integer in hexadecimal:
        load(source, seed_hex) -> reply: compile_source, then load_code.
        reset(seed_hex) -> reply
        step(action) -> reply
        hint() -> reply
        compile_source(source) -> bytes, or a failed reply. Runs nothing of the source.
        load_code(code, seed_hex) -> reply: seeds, runs what compile_source gave, constructs.
        trial() -> reply: one episode of a trusted environment, so that the process is warm; what
            an environment can see afterwards is as it was. Only before a load.
        branch(seed_hex) -> None: seeds a copy of the process in the midst of an episode.
        parts: what `step` is made of, for callers that call the environment themselves: a list
            that holds it while an episode runs, else None; judge(value) -> reply of what its
            `step` returned; raised(error) -> reply of what it raised.

    Raises:
        ImportError: a package cannot be imported; names package, profile, interpreter and remedy.
        ValueError: an unknown option or tier.
    """
    options, tiers = options or {}, tuple((options or {}).get("tiers", ()))
    for name in {*options} - OPTIONS | {*tiers} - {*TIERS}:
        raise ValueError(f"the runner knows no option or tier {name!r}")
    os.environ["TZ"] = "UTC0"  # else local time is the host's
    time.tzset()
    clock = install_clock() if options.get("virtual_clock") else None
    for name in UNUSED:
        sys.modules.setdefault(name, None)
    for name in (*MODULES, *(name for tier in tiers for name in TIERS[tier])):
        importlib.import_module(name)
    for name in UNUSED:
        sys.modules.pop(name, None)
    import_packages(imports, import_paths, options.get("profile", ""))
    install_answers()
    os.register_at_fork = register_at_fork
    base = {name: sys.modules[name] for name in PRELOADED_MODULES}
    for module, names in PRELOADED.items():
        for name in names.split():
            base[name] = getattr(sys.modules[module], name)
    if "numpy" in sys.modules:
        for name in ("numpy.random", "numpy.linalg", "numpy.fft", "numpy.polynomial"):
            importlib.import_module(name)  # numpy 2 imports them at first use, which fails here
        base["numpy"] = base["np"] = sys.modules["numpy"]
    if "files" in tiers:
        os.environ["TMPDIR"] = "/tmp"
    if "threads" in tiers:
        sys.modules["threading"].stack_size(THREAD_STACK_BYTES)
    if "limits" in options:
        name_limits(stack_bytes=THREAD_STACK_BYTES, **options["limits"])
    if clock is not None and "asyncio" in tiers:
        install_loop(clock)
    seeding = make_seeding(clock)
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
    *handlers, forget = make_handlers(base, max_turns, seeding)
    trial = make_trial(handlers, forget)
    if options.get("warm", True):
        make_ready(trial)
    *handlers, branch, parts = handlers
    return (*handlers, trial, branch, parts)


def import_packages(imports, import_paths, profile):
    """Import what the profile asks for; say what to do when that fails."""
    sys.path[:0] = import_paths
    for name in imports:
        try:
            importlib.import_module(name)
        except BaseException as error:
            place = f"profile {profile!r}: " if profile else ""
            raise ImportError(
                f"{place}package {name!r} cannot be imported by {sys.executable}: "
                f"{type(error).__name__}: {error}; install it for that interpreter or take it out "
                "of the profile's packages"
            ) from None


def make_handlers(base, max_turns, seeding):
    """Load, reset, step and hint over one state; everything they need is bound here."""
    environment, stage, live = None, "empty", [None]
    module = types.ModuleType("environment")
    namespace = module.__dict__
    # Filled here and not at a load: each name and value that is touched is a page to be copied.
    namespace.update(base, __builtins__=sys.modules["builtins"].__dict__)
    seed_all, seed_load = seeding
    loads, dumps, infinity = marshal.loads, marshal.dumps, math.inf

    def load(source, seed_hex):
        code = compile_source(source)
        return code if type(code) is tuple else load_code(code, seed_hex)

    def compile_source(source):
        try:
            return dumps(compile(source, FILE, "exec", dont_inherit=True))
        except BaseException as error:
            return failed("source", error)

    def load_code(code, seed_hex):
        nonlocal environment, stage
        where = "source"
        try:
            seed_load(int(seed_hex, 16))
            if "environment" in sys.modules:
                forget()
            sys.modules["environment"] = module
            exec(loads(code), namespace)
            found = find_class(namespace, Bad)
            where = "constructor"
            environment, stage, live[0] = construct(found, max_turns), "loaded", None
            return (FINISHED, "", None, False, False, "")
        except BaseException as error:
            return failed(where, error)

    def reset(seed_hex):
        nonlocal stage
        try:
            if seed_hex:
                seed = int(seed_hex, 16)
                seed_all(seed)
                value = begin(environment, seed)
            else:
                value = environment.reset()
            if isinstance(value, tuple):
                if len(value) != 2 or not isinstance(value[1], dict):
                    raise Bad(f"reset must return (str, dict), got {shape(value)}")
                value = value[0]
            text = as_text(value, "observation")
            stage, live[0] = "running", environment
            return (FINISHED, text, None, False, False, "")
        except BaseException as error:
            return failed("reset", error)

    def step(action):
        try:
            if stage != "running":
                when = "after the episode ended" if stage == "done" else "before reset"
                raise Bad(f"order: step {when}; call reset first")
            value = environment.step(action)
        except BaseException as error:
            return failed("step", error)
        return judge(value)

    def judge(value):
        nonlocal stage
        try:
            if not isinstance(value, tuple) or len(value) != 5:
                raise Bad("step must return (str, number, bool, bool, dict), got " + shape(value))
            text, reward, end, cut, info = value
            if not isinstance(info, dict):
                raise Bad(f"info must be a dict, got {type_name(info)}")
            # What nearly every reply is made of passes by a short way; the rules are the same.
            if type(text) is not str or not text.isascii():
                text = as_text(text, "observation")
            if type(reward) is not float or not -infinity < reward < infinity:
                reward = as_reward(reward)
            if end is not False:
                end = as_flag(end, "terminated")
            if cut is not False:
                cut = as_flag(cut, "truncated")
            if end or cut:
                stage, live[0] = "done", None
                return (FINISHED, text, reward + 0.0, end, cut, flag_of(info))
            return (FINISHED, text, reward + 0.0, end, cut, "")
        except BaseException as error:
            return failed("step", error)

    def raised(error):
        return failed("step", error)

    def hint():
        try:
            if stage == "loaded":
                raise Bad("order: hint before reset; call reset first")
            method = getattr(environment, "hint", None)
            if method is None or not callable(method):
                return (FINISHED, "", None, False, False, "no hint")
            return (FINISHED, as_text(method(), "hint"), None, False, False, "")
        except BaseException as error:
            return failed("hint", error)

    def branch(seed_hex):
        seed_all(int(seed_hex, 16))

    def forget():
        nonlocal environment, stage
        environment, stage, live[0] = None, "empty", None
        del sys.modules["environment"]
        while (name := next(reversed(namespace))) != "__builtins__":
            del namespace[name]

    parts = (live, judge, raised)
    return load, reset, step, hint, compile_source, load_code, branch, parts, forget
