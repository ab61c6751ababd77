"""What the attacks reach where layers are missing, as in a container without user namespaces."""

from dataclasses import replace

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from tests.attacks.arena import SEED, SIBLING, policy_for
from tests.attacks.case import FINISHED, HELD, REFUSED, Case

NO_NAMESPACES = (
    "pid_namespace", "worker_pid_namespace", "network_namespace", "ipc_namespace", "empty_root",
    "clone3",
)  # fmt: skip

ATTACKS = {
    "paths": "attempt(open, '/etc/passwd'); attempt(os.listdir, '/'); attempt(os.stat, '/')",
    "processes": """
        for number in (57, 58): refused(number)
        for flags in (17, 0x10000000, 0x3D0F00): refused(56, flags, 0, 0, 0, 0)
        refused(435, (ctypes.c_uint64 * 11)(17), 88); refused(59, b"/bin/sh", None, None)""",
    "signals": """
        for pid in (-1, 0, 1, os.getppid(), *range(2, 200)):
            refused(62, pid, 9); refused(200, pid, 9); refused(234, pid, pid, 9, also=(3,))
        refused(424, 0, 9, None, 0); refused(434, os.getppid(), 0)""",
    "tracing": """
        for pid in (1, os.getppid()):
            refused(101, 16, pid, 0, 0)
            refused(310, pid, None, 0, None, 0, 0)
            refused(312, pid, 1, 0, 0, 0)""",
    "network": "for family in range(46): refused(41, family, 1, 0); refused(41, family, 3, 0)",
    "shared": """
        refused(29, 1, 4096, 0o1666)
        refused(240, b"x", 0o102, 0o666, None)
        refused(9, 0, 4096, 3, 0x21, -1, 0)""",
    "namespaces": """
        refused(272, 0x10000000)
        refused(308, 0, 0)
        refused(165, b"x", b"/", b"tmpfs", 0, None)""",
}  # fmt: skip


def degraded(*without: str) -> SyncPool:
    """A pool of one sibling and one attacker without these layers."""
    policy = replace(policy_for("ctypes"), num_workers=3, spares=1)
    return SyncPool(policy, _without=frozenset(without))


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize(
    "without",
    [NO_NAMESPACES, ("landlock",), (*NO_NAMESPACES, "landlock", "rlimits", "identity")],
    ids=["no-namespaces", "no-landlock", "nothing-but-the-filter"],
)
def test_the_filter_alone_still_refuses(without: tuple[str, ...], kind: str) -> None:
    with degraded(*without) as pool:
        assert pool.capabilities["level"] != "full"
        with pool.session(SIBLING, SEED) as sibling:
            before = sibling.reset().observation
            with pool.session(Case("", ATTACKS[kind], on="ctypes").source(), 1) as session:
                assert session.reset().ok
                reply = session.step("go")
                assert reply.outcome in (FINISHED, REFUSED), reply
                assert reply.observation in (HELD, ""), reply
            assert sibling.step("on").ok
        with pool.session(SIBLING, SEED) as again:
            assert again.reset().observation == before


def test_an_abort_is_for_oneself_alone_also_without_a_pid_namespace() -> None:
    """Processes of the same user are all there to be seen: siblings, template, broker, host."""
    body = """
        me = os.getpid()
        for pid in range(max(2, me - 40), me + 40):
            if pid not in (me, os.getppid()): refused(234, pid, pid, 6, also=(3,))
        refused(234, 1, 1, 6)"""
    with degraded("worker_pid_namespace") as pool:
        with pool.session(SIBLING, SEED) as sibling:
            assert sibling.reset().ok
            with pool.session(Case("", body, on="ctypes").source(), 1) as session:
                assert session.reset().ok
                reply = session.step("go")
                assert reply.observation == HELD, reply
            assert sibling.step("on").ok
        with pool.session(SIBLING, SEED) as again:
            assert again.reset().ok


def test_a_pool_without_namespaces_still_names_every_limit() -> None:
    policy: SandboxPolicy = replace(policy_for("plain"), num_workers=2, spares=1)
    with SyncPool(policy, _without=frozenset(NO_NAMESPACES)) as pool:
        for body, outcome in (
            ("while True: pass", "timed_out"),
            ("time.sleep(1000)", "timed_out"),
            ("a = []\nwhile True: a.append(bytearray(1 << 20))", "over_memory"),
            ("os._exit(1)", "crashed"),
            ("os.abort()", "crashed"),
            ("return 'x' * (1 << 20), 0.0, False, False, {}", "over_output"),
        ):
            with pool.session(Case("", body).source(), 1) as session:
                assert session.reset().ok
                assert session.step("go").outcome == outcome, body
