"""The system call table, call by call, from inside a real worker (raw calls through ctypes).

What each call must answer is worked out here from the table's text alone, not from the core.
`sandbox_rs/tests/policy` does the same for every combination of tiers in forked children.
"""

import json
import platform
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.sandbox_profiles import Profile
from spade_async.types import Outcome, Reply

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="runs the table of x86-64"),
]

ROOT = Path(__file__).resolve().parents[2]
TABLE = tomllib.loads((ROOT / "sandbox_rs/policies/x86_64.toml").read_text())
EPERM, ENOSYS = 1, 38
WORD = (1 << 32) - 1
NUM_CALLS = 520
# uretprobe, uprobe: the kernel lets them past every filter; a caller that is no probe gets SIGILL.
UNFILTERED = (335, 336)
# Calls that end or split the worker when they pass.
ENDING = ("exit", "exit_group", "rt_sigreturn", "clone")
# "fork" is no tier of a profile: a forkable worker has it.
TIERS = [
    (),
    ("files",),
    ("asyncio",),
    ("threads",),
    ("fork",),
    ("files", "asyncio", "threads"),
    ("asyncio", "fork"),  # a session with files or threads cannot be forked
]

Call = tuple[int, tuple[int, ...]]
NONSENSE = (-1,) * 6


def bits(values: list[int | str]) -> int:
    """Union of values, which are numbers or names of constants."""
    union = 0
    for value in values:
        union |= number(value)
    return union


def number(value: int | str) -> int:
    return value if isinstance(value, int) else TABLE["constants"][value]


def holds(condition: dict, args: tuple[int, ...]) -> bool:
    """Whether a condition of the table holds, as the table's head explains it."""
    whole = args[condition["index"]]
    word = whole & WORD
    if condition.get("null"):
        return whole == 0
    if "is" in condition:
        return word & ~bits(condition.get("ignoring", [])) in map(number, condition["is"])
    needed = bits(condition.get("all_of", []))
    if "only" in condition and word & ~(bits(condition["only"]) | needed):
        return False
    return word & needed == needed and not word & bits(condition.get("none_of", []))


def refusal(call: Call, tiers: tuple[str, ...]) -> int:
    """Error number of a call in a worker with these tiers; 0 when it passes."""
    nr, args = call
    allowed = [entry for entry in TABLE["allow"] if entry["nr"] == nr]
    denied = [entry for entry in TABLE["deny"] if entry["nr"] == nr]
    for entry in allowed:
        if entry["tier"] in ("compute", *tiers) and all(
            holds(condition, args) for condition in entry.get("args", [])
        ):
            return 0
    if not allowed and not denied:
        return ENOSYS
    return ENOSYS if any(entry.get("errno") == "ENOSYS" for entry in denied) else EPERM


def meeting(entry: dict) -> list[Call]:
    """Calls that meet an entry's conditions, one per listed value, with nonsense for the rest."""
    base = list(NONSENSE)
    for condition in entry.get("args", []):
        first = condition.get("is", [bits(condition.get("all_of", []))])[0]
        base[condition["index"]] = number(first)
    calls = [tuple(base)]
    for condition in entry.get("args", []):
        for value in condition.get("is", []):
            changed = base.copy()
            changed[condition["index"]] = number(value)
            calls.append(tuple(changed))
    return [(entry["nr"], args) for args in dict.fromkeys(calls)]


def near(entry: dict) -> list[Call]:
    """The same with one argument changed: each of its low bits flipped alone, or all bits set."""
    calls = []
    for nr, args in meeting(entry):
        for condition in entry.get("args", []):
            index = condition["index"]
            others = (*(args[index] ^ 1 << bit for bit in range(32)), -1, 1 << 40)
            calls += [(nr, (*args[:index], other, *args[index + 1 :])) for other in others]
    return calls


SOURCE = """
import ctypes
class AEnv:
    def reset(self, seed=None):
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        syscall.argtypes, syscall.restype = [ctypes.c_long] * 7, ctypes.c_long
        answers = []
        for nr, args in json.loads(CALLS):
            ctypes.set_errno(0)
            answers.append(ctypes.get_errno() if syscall(nr, *args) == -1 else 0)
        return json.dumps(answers), {}
"""


@pytest.fixture(scope="module", params=TIERS, ids=lambda tiers: "+".join(("compute", *tiers)))
def raw(request: pytest.FixtureRequest) -> Iterator[tuple[SyncPool, tuple[str, ...]]]:
    tiers = request.param
    has_files = "files" in tiers
    profile = Profile(
        "probe", packages=("ctypes",), tiers=tuple(t for t in tiers if t != "fork"),
        files_bytes=1 << 20 if has_files else 0, files_inodes=16 if has_files else 0,
        pids=4 if "threads" in tiers else 1,
    )  # fmt: skip
    policy = SandboxPolicy(
        num_workers=1, spares=1, profiles=(profile,), source_bytes=1 << 20,
        wall_s_per_call=20, cpu_s_per_call=10,
    )  # fmt: skip
    with SyncPool(policy) as pool:
        yield pool, tiers


def make(raw: tuple[SyncPool, tuple[str, ...]], calls: list[Call]) -> Reply:
    """Make the calls in a fresh worker; the observation lists their error numbers."""
    pool, tiers = raw
    source = f"CALLS = {json.dumps(calls)!r}\n{SOURCE}"
    with pool.session(source, 0, forkable="fork" in tiers) as session:
        assert session.loaded.ok, session.loaded
        return session.reset()


def answers(raw: tuple[SyncPool, tuple[str, ...]], calls: list[Call]) -> list[int]:
    reply = make(raw, calls)
    assert reply.ok, reply
    return json.loads(reply.observation)


def test_every_refused_call_answers_its_error_number(raw):
    _, tiers = raw
    calls = [(nr, NONSENSE) for nr in range(NUM_CALLS) if nr not in UNFILTERED]
    calls += [call for entry in TABLE["allow"] for call in near(entry)]
    calls = [call for call in dict.fromkeys(calls) if refusal(call, tiers)]
    assert len(calls) > 1000
    found = answers(raw, calls)
    wrong = {
        call: errno
        for call, errno in zip(calls, found, strict=True)
        if errno != refusal(call, tiers)
    }
    assert not wrong


def test_every_listed_call_that_no_tier_has_is_refused(raw):
    calls = [(entry["nr"], args) for entry in TABLE["deny"] for args in (NONSENSE, (0,) * 6)]
    expected = [ENOSYS if "errno" in entry else EPERM for entry in TABLE["deny"] for _ in range(2)]
    assert answers(raw, calls) == expected


def test_every_allowed_call_reaches_the_kernel(raw):
    _, tiers = raw
    entries = [
        entry
        for entry in TABLE["allow"]
        if entry["tier"] in ("compute", *tiers) and entry["name"] not in ENDING
    ]
    assert len({entry["name"] for entry in entries}) >= 30
    calls = [(entry["name"], call) for entry in entries for call in meeting(entry)]
    found = answers(raw, [call for _, call in calls])
    refused = [
        (name, call, errno)
        for (name, call), errno in zip(calls, found, strict=True)
        if errno in (EPERM, ENOSYS)
    ]
    assert not refused


@pytest.mark.parametrize("nr", [0, 39, 59, 257, 511])
def test_a_number_of_the_x32_convention_ends_the_worker(raw, nr):
    reply = make(raw, [(nr | 1 << 30, (0,) * 6)])
    assert reply.outcome is Outcome.REFUSED_CALL
    assert "SIGSYS" in reply.detail


@pytest.mark.parametrize("name", ["exit", "exit_group"])
def test_a_call_that_ends_the_worker_passes(raw, name):
    nr = next(entry["nr"] for entry in TABLE["allow"] if entry["name"] == name)
    reply = make(raw, [(nr, (3, 0, 0, 0, 0, 0))])
    assert reply.outcome is Outcome.CRASHED, reply
    assert "3" in reply.detail


def test_no_signal_can_be_sent_also_without_a_pid_namespace():
    """There, siblings, template, broker and host may be processes of the same user."""
    body = "\n        pids = [os.getpid(), os.getppid(), *range(1, 300)]"
    for name in ("kill", "tkill", "tgkill"):
        nr = next(entry["nr"] for entry in TABLE["deny"] if entry["name"] == name)
        first = "pid, pid" if name == "tgkill" else "pid"
        body += f"\n        calls += [({nr}, ({first}, s)) for pid in pids for s in (0, 6, 9)]"
    source = (
        "import ctypes, os\nclass AEnv:\n    def reset(self, seed=None):\n        calls = []"
        + body
        + "\n        libc = ctypes.CDLL(None, use_errno=True)\n        found = set()"
        "\n        for nr, args in calls:"
        "\n            found.add((libc.syscall(nr, *args), ctypes.get_errno()))"
        "\n        return repr(found), {}\n"
    )
    policy = SandboxPolicy(num_workers=1, spares=1, imports=("ctypes",))
    with SyncPool(policy, _without=frozenset({"worker_pid_namespace"})) as pool:
        with pool.session(source, 0) as session:
            assert session.reset().observation == "{(-1, 1)}"
        with pool.session("import os\nclass AEnv:\n def reset(self, s): os.abort()", 0) as session:
            assert session.reset().outcome is Outcome.CRASHED
