"""Parts that live and say nothing: a stopped template, a stopped broker, an import that never ends.

A dead part is seen at once (`test_life`); a silent one is given up after `start_s`, and only while
it owes somebody a worker.
"""

import os
import signal
import time

import pytest

from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.sandbox_profiles import Profile
from tests.support.family import Family, until

pytestmark = pytest.mark.timeout(200)

SOURCE = "class AEnv:\n def reset(self, seed):\n  return str(seed), {}\n"
POLICY = SandboxPolicy(num_workers=8, spares=1, start_s=3.0)


def family() -> Family:
    seen = until(Family, lambda f: bool(f.brokers and f.templates and f.workers), 10)
    if not (seen.brokers and seen.templates and seen.workers):
        pytest.skip("no PID namespaces here: templates and workers look alike")
    return seen


def kinds(pool: SyncPool) -> list[str]:
    return [event.kind for event in pool.events()]


def play(pool: SyncPool, seed: int) -> str:
    with pool.session(SOURCE, seed) as session:
        return session.reset().observation


@pytest.mark.parametrize(
    ("part", "told"), [("templates", "template_died"), ("brokers", "broker_died")]
)
def test_who_waits_for_a_stopped_part_is_served_by_its_successor(part, told):
    with SyncPool(POLICY) as pool, pool.session(SOURCE, 1) as before:
        assert before.reset().ok
        stopped = getattr(family(), part)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        assert [play(pool, seed) for seed in range(4)] == ["0", "1", "2", "3"]
        assert told in kinds(pool)
        left = until(lambda: set(stopped) & Family().all, lambda left: not left, 10)
        assert not left, "the silent part is ended, not left behind"


def test_a_stopped_template_that_owes_nothing_is_left_alone():
    with SyncPool(POLICY) as pool, pool.session(SOURCE, 1) as live:
        templates = family().templates
        until(lambda: pool.stats()["spare"], lambda spare: spare == 1, 10)
        for pid in templates:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5 * POLICY.start_s)
        assert not {"template_died", "broker_died"} & set(kinds(pool))
        assert live.reset().observation == "1"
        assert set(templates) <= Family().all
        for pid in templates:
            os.kill(pid, signal.SIGCONT)
        assert play(pool, 5) == "5"


def test_a_successor_that_never_gets_ready_is_replaced(tmp_path, monkeypatch):
    package = tmp_path / "slow_package.py"
    package.write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    policy = SandboxPolicy(num_workers=4, spares=1, start_s=5.0, imports=("slow_package",))
    with SyncPool(policy) as pool:
        assert play(pool, 1) == "1"
        package.write_text("import time\ntime.sleep(10**6)\n")
        for pid in family().templates:
            os.kill(pid, signal.SIGKILL)
        seen: list[str] = []

        def deaths() -> int:
            seen.extend(kinds(pool))
            return seen.count("template_died")

        assert until(deaths, lambda count: count >= 2, 30) >= 2, "the killed one, and the slow one"
        package.write_text("x = 1\n")
        assert [play(pool, seed) for seed in range(3)] == ["0", "1", "2"]


@pytest.mark.parametrize("body", ["import time; time.sleep(10**6)", "while True: pass"])
def test_an_import_that_never_ends_is_a_fault_that_names_profile_and_packages(
    body, tmp_path, monkeypatch
):
    (tmp_path / "endless_package.py").write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    bad = Profile("bad", packages=("json", "endless_package"))
    policy = SandboxPolicy(num_workers=1, spares=1, start_s=2.0, profiles=("compute", bad))
    with pytest.raises(SandboxError) as caught:
        SyncPool(policy).start()
    for word in ("profile bad", "endless_package", "not ready within 2 s", "raise start_s"):
        assert word in str(caught.value)
    with SyncPool(POLICY) as pool:
        assert play(pool, 1) == "1"
