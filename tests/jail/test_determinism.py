"""The same source, seed and actions give the same bytes on any worker, after any number of them."""

import concurrent.futures
import importlib.util

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.sandbox_profiles import Profile

pytestmark = pytest.mark.timeout(120)

PROFILES = [
    "compute",
    pytest.param(
        "numpy",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("numpy") is None, reason="numpy is not installed"
        ),
    ),
]

SOURCE = """
import string

LETTERS = set(string.ascii_letters) | {"word%d" % n for n in range(50)}

class ChanceEnv:
    def __init__(self):
        self.own = random.Random()
        self.first = random.random()

    def sample(self):
        parts = [self.first, random.random(), random.sample(range(1000), 5), self.own.random(),
                 random.Random().random(), random.gauss(0, 1), list(LETTERS)[:8], hash("text"),
                 hash((1, "a", 2.5)), {c: hash(c) % 7 for c in "python"}, random.getrandbits(300)]
        random.shuffle(parts[6])
        if "np" in globals():
            parts += [np.random.rand(3).tolist(), np.random.default_rng().integers(1 << 60).item(),
                      np.random.RandomState().randint(1 << 30), np.random.permutation(9).tolist(),
                      float(np.linalg.norm(np.random.rand(60, 60) @ np.random.rand(60, 60)))]
        return repr(parts)

    def reset(self, seed=None):
        return f"{seed} {self.sample()}", {}

    def step(self, action):
        if action == "raise":
            raise ValueError(self.sample())
        return f"{action} {self.sample()}", random.random(), action == "end", False, {}

    def hint(self):
        return self.sample()
"""
ACTIONS = ["a", "raise", "b" * 50, "end"]


def transcript(pool, seed, source=SOURCE):
    """Everything that a session says, without what it costs."""
    with pool.session(source, seed) as session:
        replies = [session.loaded, session.reset(), session.hint()]
        replies += [session.step(action) for action in ACTIONS]
        replies += [session.reset(), session.reset(5), session.step("again")]
    return [(r.outcome, r.observation, r.reward, r.terminated, r.truncated, r.detail)
            for r in replies]  # fmt: skip


def policy(profile, num_workers=4):
    return SandboxPolicy(
        profiles=(profile,), num_workers=num_workers, spares=2, wall_s_per_call=30.0,
        cpu_s_per_call=10.0, load_wall_s=30.0,
    )  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_seed_gives_the_same_bytes_fresh_long_lived_serial_and_16_at_once(profile):
    with SyncPool(policy(profile)) as pool:
        first = transcript(pool, 7)
    assert all(outcome.value == "finished" for outcome, *_ in first[:4])
    assert first[4][0].value == "exception"
    with SyncPool(policy(profile, num_workers=16)) as pool:
        for seed in range(40):  # a pool that has lived
            with pool.session(SOURCE, seed) as session:
                session.reset()
        assert transcript(pool, 7) == first
        assert transcript(pool, 8) != first
        with concurrent.futures.ThreadPoolExecutor(16) as executor:
            at_once = list(executor.map(lambda _: transcript(pool, 7), range(16)))
        assert all(each == first for each in at_once)
        assert transcript(pool, 7) == first


def test_the_same_call_with_another_seed_differs_in_all_that_is_drawn():
    with SyncPool(policy("compute")) as pool:
        one, two = transcript(pool, 1), transcript(pool, 2)
    assert [a[1] == b[1] for a, b in zip(one, two, strict=True)] == [
        True, False, False, False, True, False, False, False, False, False,
    ]  # fmt: skip  # the load and the exception say nothing


MEMORY = """
import functools, os, sys, gc, itertools, string

class Counted:
    number = 0

@functools.lru_cache
def once(name):
    return random.random()

class MemoryEnv:
    def reset(self, seed=None):
        Counted.number += 1
        seen = (
            Counted.number, os.environ.get("MARK"), sys.modules.get("mark"), once.cache_info(),
            getattr(math, "mark", None), hasattr(string, "mark"), sys.getrecursionlimit(),
            "MARK" in globals(), random.getstate()[2], gc.isenabled(), gc.get_threshold(),
            sys.getswitchinterval(),
            sorted(c.__name__ for c in object.__subclasses__()), sorted(sys.modules),
            len(re._cache) if hasattr(re, "_cache") else 0, sys.get_int_max_str_digits(),
            sys.gettrace(), sys.getprofile(), list(sys.path), list(sys.argv), os.getpid(),
            itertools.count, sorted(vars(random)), sorted(vars(math)), sorted(vars(os)),
        )
        once("a")
        os.environ["MARK"] = "1"
        sys.modules["mark"] = sys
        math.mark = string.mark = 1
        globals()["MARK"] = 1
        sys.setrecursionlimit(5000)
        random.seed(1)
        gc.disable()
        gc.set_threshold(7, 7, 7)
        sys.set_int_max_str_digits(9999)
        sys.path.append("/tmp")
        random.random = lambda: 4
        re.compile("mark%d" % len(sys.path))
        return repr(seen), {}
"""


def test_an_episode_finds_nothing_of_earlier_ones():
    with SyncPool(policy("compute", num_workers=1)) as pool:
        seen = []
        for seed in (3, 3, 4, 3):
            with pool.session(MEMORY, seed) as session:
                reply = session.reset()
                assert reply.ok, reply
                seen.append(reply.observation)
                assert session.reset().observation != reply.observation, "it does leave marks"
    assert seen[0] == seen[1] == seen[3]
    assert seen[0].startswith("(1, None, None, CacheInfo(hits=0, misses=0")


CLOCK = """
import datetime, time

class ClockEnv:
    def __init__(self):
        self.begun = time.monotonic()
    def now(self):
        return repr((
            time.time(), time.time_ns(), time.monotonic(), time.perf_counter_ns(),
            time.process_time(), time.thread_time_ns(), time.gmtime()[:6], time.localtime()[:6],
            time.strftime("%H:%M:%S"), time.ctime(), time.asctime(), datetime.datetime.now(),
            datetime.datetime.utcnow(), datetime.datetime.today(), datetime.date.today(),
            datetime.datetime.now(datetime.timezone.utc), time.clock_gettime(time.CLOCK_REALTIME),
        ))
    def reset(self, seed=None):
        return self.now(), {}
    def step(self, action):
        before = time.monotonic()
        time.sleep(1000)
        slept = time.monotonic() - before
        rounds = 0
        end = time.time() + 1
        while time.time() < end: rounds += 1
        today = datetime.datetime.now()
        checks = (
            isinstance(today, datetime.date), type(today) is datetime.datetime,
            issubclass(datetime.datetime, datetime.date), today - today,
            isinstance(datetime.datetime.strptime("2024-02-29", "%Y-%m-%d"), datetime.datetime),
            repr(datetime.datetime(2024, 2, 29)), repr(datetime.date(2024, 2, 29)),
            not isinstance(datetime.date(2024, 2, 29), datetime.datetime),
        )
        return repr((slept, rounds, checks, self.now())), 0.0, True, False, {}
"""


def test_the_virtual_clock_reads_the_same_everywhere_and_sleeping_costs_nothing():
    profile = Profile("clock", virtual_clock=True)
    seen = []
    for _ in range(2):
        with SyncPool(policy(profile)) as pool:
            for seed in (1, 2):
                with pool.session(CLOCK, seed) as session:
                    first, step = session.reset(), session.step("x")
                    assert step.ok, step
                    assert step.report.wall_s < 20
                    seen.append((first.observation, step.observation))
    assert len(set(seen)) == 1
    first, step = seen[0]
    # One tick in the constructor, then one per reading.
    assert first.startswith("(1735689600.002, 1735689600003000000, 0.004, 5000000, 0.006, 7000000,")
    assert "datetime.datetime(2025, 1, 1, 0, 0, 0, 13000)" in first
    assert step.startswith("(1000.001, 999, (True, True, True, datetime.timedelta(0), True, ")
    assert "'datetime.datetime(2024, 2, 29, 0, 0)', 'datetime.date(2024, 2, 29)', True)" in step
    assert "2025, 1, 1, 0, 16, 41" in step


def test_without_the_virtual_clock_time_is_the_machines_and_local_time_is_utc():
    body = (
        "class AEnv:\n def reset(self, seed):\n"
        "  import time\n  return repr((time.time(), time.timezone, time.tzname)), {}\n"
    )
    import time

    with SyncPool(policy("compute")) as pool, pool.session(body, 0) as session:
        begun = time.time()
        moment, zone, names = eval(session.reset().observation)
    assert begun - 60 < moment < time.time() + 60
    assert (zone, names[0]) == (0, "UTC")


def test_what_is_not_fixed_by_the_seed_differs():
    """docs/profiles.md lists these: an environment that uses them cannot be replayed."""
    body = (
        "class AEnv:\n def reset(self, seed):\n  import os, secrets, uuid\n"
        "  return repr((os.urandom(8), uuid.uuid4(), secrets.token_hex(8),\n"
        "   random.SystemRandom().random())), {}\n"
    )
    texts = []
    with SyncPool(policy("compute")) as pool:
        for _ in range(2):
            with pool.session(body, 0) as session:
                texts.append(session.reset().observation)
    assert texts[0] != texts[1]


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="numpy is not installed")
def test_linear_algebra_runs_on_one_thread():
    body = (
        "class AEnv:\n def reset(self, seed):\n  import os, threading\n"
        "  a = np.random.rand(400, 400)\n  (a @ a).sum()\n  np.linalg.svd(a)\n"
        "  return repr((os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS'],\n"
        "   os.environ['PYTHONHASHSEED'], threading.active_count())), {}\n"
    )
    with SyncPool(policy("numpy")) as pool, pool.session(body, 0) as session:
        assert session.reset().observation == "('1', '1', '0', 1)"
