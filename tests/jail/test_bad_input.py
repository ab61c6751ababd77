"""Bad limits, sources, texts and interpreters: each gives a typed answer that names the thing.

After every one of them a good episode still works. What the machine lacks is in
`test_bad_machine.py`.
"""

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool, SyncSession
from spade_async.types import Outcome

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
DEEP = 100_000
GOOD = (
    "class AEnv:\n def reset(self, seed): return 'ok', {}\n"
    " def step(self, action): return str(len(action)), 1.0, True, False, {}\n"
)
POLICY = SandboxPolicy(
    num_workers=2, spares=1, source_bytes=64 * MIB, action_bytes=64 * MIB, load_wall_s=5.0,
    memory_bytes=384 * MIB,
)  # fmt: skip


@pytest.fixture(scope="module")
def wide() -> Iterator[SyncPool]:
    """A pool that takes sources and actions of 64 MiB."""
    with SyncPool(POLICY) as pool:
        yield pool


def assert_good(pool: SyncPool) -> None:
    with pool.session(GOOD, 1) as session:
        assert session.loaded.ok, session.loaded
        assert session.reset().observation == "ok"
        assert session.step("abc").observation == "3"


def name_of(value: object) -> str:
    """A short id for a parameter that may be too large to print."""
    if isinstance(value, int | float) and abs(value) >= 10**18:
        return f"huge {type(value).__name__}"
    return ascii(value) if isinstance(value, int | float | str) else type(value).__name__


# Limits

POSITIVE = ("num_workers", "queue", "reply_bytes", "source_bytes", "action_bytes", "max_turns",
            "memory_bytes", "branches")  # fmt: skip
COUNTS = (*POSITIVE, "spares", "code_cache_bytes", "rotate_after")
POSITIVE_SECONDS = ("wall_s_per_call", "cpu_s_per_call", "load_wall_s", "start_s")
SECONDS = (*POSITIVE_SECONDS, "rotate_after_s")
NO_NUMBERS = (None, True, "1", b"1", [], (1,), 1j, object())


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(
    "value", [-1, -(10**30), 10**30, 10**5000, 1 << 63, 1.5, math.nan], ids=name_of
)
def test_an_impossible_count_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"^sandbox\.{name}=.*: set ") as caught:
        SandboxPolicy(**{name: value})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", POSITIVE)
def test_a_count_of_zero_is_refused_by_name(name):
    with pytest.raises(ValueError, match=rf"^sandbox\.{name}=0: set .* at least "):
        SandboxPolicy(**{name: 0})


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize(
    "value", [-1, -1e308, 1e308, 5e-324, 10**400, math.nan, math.inf], ids=name_of
)
def test_impossible_seconds_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"^sandbox\.{name}=.*: set 0.001 to 86400 seconds"):
        SandboxPolicy(**{name: value})


@pytest.mark.parametrize("name", POSITIVE_SECONDS)
@pytest.mark.parametrize("value", [0, 0.0, -0.0])
def test_zero_seconds_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"^sandbox\.{name}=.*: set 0.001 to 86400 seconds"):
        SandboxPolicy(**{name: value})


@pytest.mark.parametrize("name", COUNTS + SECONDS)
@pytest.mark.parametrize("value", NO_NUMBERS, ids=name_of)
def test_a_limit_of_another_type_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"^sandbox\.{name}="):
        SandboxPolicy(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("level", None), ("level", "Strict"), ("level", ["auto"]), ("python", ""), ("python", "a\0b"),
     ("python", "\ud800"), ("python", 3), ("python", b"/usr/bin/python3"), ("imports", "numpy"),
     ("imports", ["numpy"]), ("imports", None), ("imports", ("",)), ("imports", ("a b",)),
     ("imports", ("os;x",)), ("imports", ("numpy", 1)), ("imports", ("\ud800",)),
     ("imports", ("a..b",)), ("imports", (".a",)), ("profiles", ()), ("profiles", "compute"),
     ("profiles", ("compute", "compute")), ("profiles", None)],
)  # fmt: skip
def test_a_choice_that_cannot_work_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"^sandbox\.{name}\b.*: (set|choose|name)"):
        SandboxPolicy(**{name: value})


@pytest.mark.parametrize("which", ["no_such_profile", "", "compute ", "/nonexistent.toml:a", 7])
def test_an_unknown_profile_is_refused_by_name(which, wide):
    with pytest.raises(ValueError, match=r"profile") as caught:
        SandboxPolicy(profiles=(which,))
    assert str(which).split(":")[0] in str(caught.value)
    for name in (which, ["compute"], b"compute"):
        with pytest.raises(ValueError, match=r"is not one of this pool's \(compute\)"):
            wide.session(GOOD, 0, profile=name)


def test_nothing_ready_ahead_of_demand_is_slow_and_works():
    policy = SandboxPolicy(spares=0, num_workers=1, code_cache_bytes=0, rotate_after=0)
    with SyncPool(policy) as pool:
        for _ in range(3):
            assert_good(pool)


def test_the_smallest_limits_give_outcomes_and_not_faults():
    """A millisecond, one byte, one mebibyte: nothing useful runs, and nothing else breaks."""
    policy = SandboxPolicy(
        num_workers=1, spares=1, queue=1, wall_s_per_call=0.001, cpu_s_per_call=0.001,
        load_wall_s=0.001, memory_bytes=MIB, reply_bytes=1, source_bytes=1, action_bytes=1,
        max_turns=1,
    )  # fmt: skip
    with SyncPool(policy) as pool:
        for _ in range(3):
            with pool.session("x", 0) as session:
                assert not session.loaded.ok
                assert session.step("a") == session.loaded
        with pytest.raises(ValueError, match="source of at least 2 bytes"):
            pool.session("xy", 0)


# Sources


def load(pool: SyncPool, source: str) -> tuple[Outcome, str]:
    with pool.session(source, 0) as session:
        loaded = session.loaded
        assert session.step("x").outcome is loaded.outcome or loaded.ok
    assert loaded.ok or loaded.detail
    assert len(loaded.detail) < 1500
    return loaded.outcome, loaded.detail


NESTED = {
    "parentheses": "x = " + "(" * DEEP + ")" * DEEP,
    "open parentheses": "(" * DEEP,
    "lists": "x = " + "[" * DEEP + "]" * DEEP,
    "dicts": "x = " + "{1:" * DEEP + "1" + "}" * DEEP,
    "minus": "x = " + "-" * DEEP + "1",
    "not": "x = " + "not " * DEEP + "1",
    "powers": "x = " + "**".join("1" * DEEP),
    "sums": "x = " + "+".join("1" * DEEP),
    "attributes": "x = a" + ".b" * DEEP,
    "calls": "x = a" + "()" * DEEP,
    "subscripts": "x = a" + "[0]" * DEEP,
    "lambdas": "x = " + "lambda: " * DEEP + "1",
    "conditions": "x = " + "1 if 1 else " * DEEP + "1",
    "elifs": "if 1: pass\n" + "elif 1: pass\n" * DEEP,
    "blocks": "".join(" " * depth + "if 1:\n" for depth in range(2000)),
    "f-strings": "x = " + "f'{" * 500 + "1" + "}'" * 500,
    "format fields": "x = f'" + "{x:" * DEEP + "}" * DEEP + "'",
    "walruses": "x = " + "(y:=" * DEEP + "1" + ")" * DEEP,
    "comprehensions": "x = " + "[i for i in " * 300 + "[]" + "]" * 300,
    "yields": "def f():\n x = " + "(yield " * DEEP + ")" * DEEP,
    "patterns": "match 1:\n case " + "[" * DEEP + "]" * DEEP + ": pass\n",
}


@pytest.mark.parametrize("kind", NESTED)
def test_a_source_nested_too_deep_for_the_parser_is_a_typed_outcome(wide, kind):
    outcome, detail = load(wide, GOOD + NESTED[kind])
    assert outcome in (Outcome.EXCEPTION, Outcome.OVER_MEMORY, Outcome.CRASHED), detail
    assert "in source: " in detail or outcome is Outcome.CRASHED
    assert_good(wide)


def test_a_source_of_50_mb_loads_or_is_over_a_limit(wide):
    source = GOOD + "#" * (50 * 10**6)
    assert load(wide, source)[0] in (Outcome.FINISHED, Outcome.OVER_MEMORY)
    outcome, detail = load(wide, GOOD + "x = 1\n" * (50 * 10**6 // 6))
    assert outcome in (Outcome.OVER_MEMORY, Outcome.TIMED_OUT), detail
    assert_good(wide)


def test_a_source_or_an_action_of_100_mb_is_refused_before_it_is_copied(wide):
    text = "x" * 100 * 10**6
    with pytest.raises(ValueError, match=r"source of at least 100000000 bytes: at most 67108864"):
        wide.session(text, 0)
    with wide.session(GOOD, 0) as session:
        session.reset()
        with pytest.raises(ValueError, match=r"action of at least .*raise sandbox.action_bytes"):
            session.step(text)
        reply = session.step("x" * (60 * 10**6))
        assert reply.observation == "60000000" or not reply.ok
    assert_good(wide)


FINISHED, EXCEPTION, BAD_VALUE = Outcome.FINISHED, Outcome.EXCEPTION, Outcome.BAD_VALUE
SOURCES = {
    "a NUL": (GOOD + "\0", EXCEPTION, "null"),
    "NULs": ("\0" * MIB, EXCEPTION, "null"),
    "a line of 1e6 characters": (GOOD + "x = '" + "a" * 10**6 + "'\n", FINISHED, ""),
    "a name of 1e6 characters": (GOOD + "x" * 10**6 + " = 1\n", FINISHED, ""),
    "a number of 1e6 digits": (GOOD + "x = " + "9" * 10**6 + "\n", EXCEPTION, "digits"),
    "a syntax error at 1e6": (GOOD + "x = '" + "a" * 10**6 + "' '", EXCEPTION, "SyntaxError"),
    "a BOM": ("\ufeff" + GOOD, EXCEPTION, "U+FEFF"),
    "a cookie of UTF-7": ("# -*- coding: utf-7 -*-\n" + GOOD + "# +AAA-", FINISHED, ""),
    "a cookie of Latin-1": ("# coding: latin-1\n" + GOOD + "x = 'ä'", FINISHED, ""),
    "a cookie of no codec": ("# coding: nonsense\n" + GOOD, FINISHED, ""),
    "a cookie of ROT13": ("# coding: rot13\n" + GOOD, FINISHED, ""),
    "CR LF": (GOOD.replace("\n", "\r\n"), FINISHED, ""),
    "CR alone": (GOOD.replace("\n", "\r"), FINISHED, ""),
    "tabs": (GOOD.replace(" def", "\tdef"), FINISHED, ""),
    "tabs and spaces": ("if 1:\n        x = 1\n\ty = 1\n", EXCEPTION, "TabError"),
    "a form feed": ("\f" + GOOD, FINISHED, ""),
    "control Z": (GOOD + "\x1a", EXCEPTION, "U+001A"),
    "nothing": ("", BAD_VALUE, "ends in Env"),
    "a million empty lines": ("\n" * 10**6, BAD_VALUE, "ends in Env"),
    "a backslash at the end": (GOOD + "x = 1 \\", EXCEPTION, "SyntaxError"),
    "a late future": (GOOD + "from __future__ import annotations\n", EXCEPTION, "__future__"),
    "an escaped surrogate": (GOOD + "x = '\\ud800'\n", FINISHED, ""),
    "a huge folded constant": (GOOD + "x = 'a' * 10**12", Outcome.OVER_MEMORY, "MemoryError"),
    "a huge shift": (GOOD + "x = 1 << 10**12", Outcome.OVER_MEMORY, "MemoryError"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_an_odd_source_has_its_defined_outcome(wide, kind):
    source, expected, word = SOURCES[kind]
    outcome, detail = load(wide, source)
    assert (outcome, word in detail) == (expected, True), detail
    assert_good(wide)


def test_a_source_that_keeps_the_compiler_busy_is_stopped():
    policy = SandboxPolicy(num_workers=1, spares=1, load_wall_s=0.5, source_bytes=4 * MIB)
    names = ",".join(f"a{index}=1" for index in range(DEEP))  # each is compared with all before
    with SyncPool(policy) as pool:
        outcome, detail = load(pool, f"f({names})")
        assert outcome is Outcome.TIMED_OUT, detail
        assert_good(pool)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\udcff" * 10], ids=name_of)
def test_a_lone_surrogate_is_refused_before_sending(wide, text):
    with pytest.raises(ValueError, match=r"source holds a lone surrogate at "):
        wide.session(GOOD + text, 0)
    with wide.session(GOOD, 0) as session:
        session.reset()
        with pytest.raises(ValueError, match=r"action holds a lone surrogate at "):
            session.step(text)
        assert session.step("x").ok


@pytest.mark.parametrize("value", [None, 1, b"x", ["x"], object()], ids=name_of)
def test_a_text_of_another_type_is_refused_by_name(wide, value):
    with pytest.raises(ValueError, match="source is "):
        wide.session(value, 0)
    with wide.session(GOOD, 0) as session:
        session.reset()
        with pytest.raises(ValueError, match="action is "):
            session.step(value)


@pytest.mark.parametrize(
    "seed", [-1, 1.5, None, True, "1", -(10**5000), 1 << (1 << 21)], ids=name_of
)
def test_a_seed_that_cannot_be_sent_is_refused_by_name(wide, seed):
    calls: list[Callable[[SyncSession], object]] = [lambda session: wide.session(GOOD, seed)]
    if seed is not None:  # the session's own
        calls.append(lambda session: session.reset(seed))
    with wide.session(GOOD, 0) as session:
        for call in calls:
            with pytest.raises(ValueError, match="seed") as caught:
                call(session)
            assert len(str(caught.value)) < 200
        assert session.reset().ok


# Interpreters and packages


def start(policy: SandboxPolicy) -> str:
    """Text of the fault that a start gives."""
    with pytest.raises(SandboxError) as caught:
        SyncPool(policy).start()
    text = str(caught.value)
    assert len(text) < 1000
    return text


@pytest.mark.parametrize("kind", ["missing", "a folder", "not executable", "no program", "a loop"])
def test_an_interpreter_that_cannot_be_run_is_a_fault_that_names_it(tmp_path, kind):
    path = tmp_path / "python"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a loop":
        path.symlink_to(path)
    elif kind != "missing":
        path.write_text("neither binary nor script")
        path.chmod(0o755 if kind == "no program" else 0o644)
    assert str(path) in start(SandboxPolicy(python=str(path)))


SCRIPTS = {
    "leaves at once": "exit 0",
    "fails": "exit 3",
    "talks": "head -c 9999 /dev/zero >&0; echo garbage >&0",
    "answers H": "printf H >&0",
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_an_interpreter_that_is_no_python_is_a_fault(tmp_path, kind):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{SCRIPTS[kind]}\n")
    path.chmod(0o755)
    assert start(SandboxPolicy(python=str(path))).startswith("sandbox ")


def test_an_interpreter_that_is_too_old_is_a_fault_that_names_it():
    old = sorted(Path("~/.pyenv/versions").expanduser().glob("3.10.*/bin/python"))
    if not old:
        pytest.skip("no Python 3.10 below ~/.pyenv/versions")
    text = start(SandboxPolicy(python=str(old[0])))
    assert f"{old[0]} is Python 3.10: at least 3.11 is needed" in text


PACKAGES = {
    "raises": "1 / 0",
    "leaves": "import os; os._exit(3)",
    "exits": "raise SystemExit('enough')",
    "aborts": "import os; os.abort()",
    "has no syntax": "def",
    "shouts": "raise ValueError('x' * 10**6 + '\\ud800')",
    "recurses": "def f(): f()\nf()",
}


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_template_package_that_cannot_be_imported_is_a_fault(tmp_path, monkeypatch, kind):
    (tmp_path / "bad_package.py").write_text(PACKAGES[kind])
    monkeypatch.syspath_prepend(str(tmp_path))
    text = start(SandboxPolicy(imports=("bad_package",), num_workers=1, spares=1))
    assert "profile compute" in text or "profile 'compute'" in text
    assert "bad_package" in text
    assert not [pid for pid in children() if "_template_main" in command_of(pid)]
    with SyncPool(SandboxPolicy(num_workers=1, spares=1)) as pool:
        assert_good(pool)


def children() -> list[int]:
    """Processes that this one has started, and that still run."""
    return [
        int(pid)
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except FileNotFoundError:
        return ""


@pytest.fixture(scope="module", autouse=True)
def here_before() -> set[int]:
    """Children that other files have left: whole runs, for one, give theirs to this process."""
    return set(children())


def test_nothing_of_ours_is_left_after_all_this(here_before):
    left = {pid: command_of(pid) for pid in children() if pid not in here_before}
    assert not {pid: text for pid, text in left.items() if sys.executable not in text}
