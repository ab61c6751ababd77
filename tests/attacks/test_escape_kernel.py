"""Escape by the kernel's surface: what untrusted code cannot call, it cannot exploit."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arenas
from tests.attacks.case import CRASHED, FINISHED, Case, params

ALLOWED = {
    0, 1, 3, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 39, 60, 63, 72, 98, 102, 104, 107, 108, 110,
    131, 157, 186, 202, 204, 219, 228, 229, 230, 231, 234, 270, 302, 318,
}  # fmt: skip
"""Numbers a worker of the smallest profile may use; one more is a decision, with its reason."""

CASES = [
    Case("kernel-io-uring", """
        parameters = ctypes.create_string_buffer(256)
        for flags in (0, 1, 2, 0x100, 0x4000):
            parameters[8:12] = flags.to_bytes(4, "little")
            for entries in (1, 8, 4096): refused(425, entries, parameters)
        for fd in (0, 1, -1):
            refused(426, fd, 1, 1, 1, None, 0)
            for operation in range(0, 40): refused(427, fd, operation, None, 0)""", on="ctypes"),
    Case("kernel-old-asynchronous-io", """
        context = ctypes.c_uint64(0)
        refused(206, 8, ctypes.byref(context)); refused(207, 0); refused(208, 0, 0, 1, None, None)
        refused(209, 0, 1, None)
        refused(210, 0, None, None)
        refused(333, 0, 0, 1, None, None, None)""",
        on="ctypes"),
    Case("kernel-userfaultfd",
         "for flags in (0, 1, 0o2000000, 0o4000): refused(323, flags)", on="ctypes"),
    Case("kernel-bpf", """
        attribute = ctypes.create_string_buffer(256)
        for command in range(0, 40): refused(321, command, attribute, 128)""", on="ctypes"),
    Case("kernel-counters", """
        attribute = ctypes.create_string_buffer(b"\\0\\0\\0\\0\\x80", 128)
        for pid, cpu in ((0, -1), (-1, 0), (1, -1)):
            refused(298, attribute, pid, cpu, -1, 0)""", on="ctypes"),
    Case("kernel-modules-and-kernels", """
        refused(175, b"x", 1, b"")
        refused(313, 0, b"", 0)
        refused(176, b"x", 0)
        refused(174, b"x", 1)
        refused(246, 0, 0, None, 0)
        refused(320, 0, 0, 0, b"", 0)
        refused(177, None)
        refused(178, b"x", 0)""",
        on="ctypes"),
    Case("kernel-the-machine", """
        for command in (0, 0x01234567, 0x4321FEDC, 0xCDEF0123):
            refused(169, 0xFEE1DEAD, 0x28121969, command, 0)
        refused(167, b"/dev/vda", 0)
        refused(168, b"/dev/vda")
        refused(163, b"/tmp/x")
        refused(163, None)
        refused(153)
        refused(162)
        refused(306, 0)
        refused(179, 0, None, 0, None)
        refused(443, 0, 0, 0, None)""",
        on="ctypes"),
    Case("kernel-clocks", """
        time = (ctypes.c_int64 * 32)()
        refused(227, 0, time); refused(164, time, None); refused(159, time); refused(305, 0, time)
        for clock in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, -1, 1000):
            call(228, clock, time)""", on="ctypes"),
    Case("kernel-sockets-of-every-family", """
        for family in range(50):
            for kind in (1, 2, 3, 4, 5, 6, 10, 1 | 0o2004000):
                for protocol in (0, 1, 6, 17, 58, 255):
                    refused(41, family, kind, protocol)""", on="ctypes"),
    Case("kernel-locking-memory", """
        page = ctypes.create_string_buffer(1 << 16)
        refused(149, page, 4096); refused(325, page, 4096, 1); refused(150, page, 4096)
        for flags in (1, 2, 3, 4, 7): refused(151, flags)
        refused(152); refused(9, 0, 1 << 20, 3, 0x2022, -1, 0, also=(11, 12))""", on="ctypes"),
    Case("kernel-page-zero-and-huge-pages", """
        for place in (0, 4096, 1 << 16):
            for flags in (0x32, 0x100032):
                result = call(9, place, 4096, 3, flags, -1, 0)
                # From where on is a setting of the machine (vm.mmap_min_addr), page zero is not.
                if place < 4096 and result >= 0: passed.append((place, result))
        for flags in (0x40022, 0x40022 | 21 << 26, 0x40022 | 30 << 26):
            refused(9, 0, 2 << 20, 3, flags, -1, 0, also=(12,))
        for place in (2**47, 2**47 - 4096, 2**63, -4096, 0xFFFFFFFFFF600000 - (1 << 64)):
            if call(9, place, 4096, 3, 0x32, -1, 0) >= 0: passed.append(place)""", on="ctypes"),
    Case("kernel-scheduling", """
        buffer = (ctypes.c_uint64 * 16)(48 | 1 << 32, 0, 99)
        for policy in (0, 1, 2, 3, 5, 6, 1 | 1 << 30): refused(144, 0, policy, buffer)
        refused(314, 0, buffer, 0); refused(203, 0, 128, buffer); refused(142, 0, buffer)
        refused(141, 0, 0, -20)
        refused(251, 1, 0, 0)
        refused(157, 29, 1, 0, 0, 0)
        refused(157, 62, 1, 0, 2, 0)""",
        on="ctypes"),
    Case("kernel-memory-placement", """
        buffer = ctypes.create_string_buffer(128)
        refused(237, buffer, 4096, 1, buffer, 64, 0)
        refused(238, 1, buffer, 64)
        refused(450, 0, 0, 0, 0)
        refused(256, 0, 64, buffer, buffer)
        refused(279, 0, 1, buffer, buffer, buffer, 0)
        refused(324, 8, 0, 0)""",
        on="ctypes"),
    Case("kernel-futexes-with-priority-inheritance", """
        # LOCK_PI, UNLOCK_PI, TRYLOCK_PI, CMP_REQUEUE_PI, LOCK_PI2: bugs of the past.
        words = (ctypes.c_uint32 * 4)()
        for operation in (6, 7, 8, 12, 13, 11):
            for flags in (0, 128, 256, 384):
                if operation | flags not in (11, 11 | 128):  # waits
                    other = ctypes.addressof(words) + 4
                    refused(202, words, operation | flags, 0, None, other, 0)""",
        on="ctypes"),
    Case("kernel-uretprobe", """
        # Newer kernels pass uprobe (336) and uretprobe (335) by every filter. Outside of a probe's
        # own code the first answers ENXIO and the second ends its caller.
        refused(336, also=(6,))
        refused(335)""", (CRASHED, FINISHED), "SIGILL|", on="ctypes"),
    Case("kernel-security-modules", """
        buffer = ctypes.create_string_buffer(256)
        for number in (459, 460, 461): refused(number, 100, buffer, buffer, 0)
        for option in (23, 24, 28, 47, 30, 27, 9, 8, 7, 45, 50, 51, 55, 56, 57, 64, 68, 71, 72, 74):
            refused(157, option, 1, 1, 1, 1)""", on="ctypes"),
    Case("kernel-huge-pointers-and-lengths", """
        # Allowed calls with absurd arguments end in an error, never in a fault of the kernel.
        bad = (-1, -4096, 2**47, 2**63 - 1, 1, 0xFFFF800000000000 - 2**64)
        for place in bad:
            for number, arguments in (
                (228, (0, place)), (229, (0, place)), (230, (0, 0, place, place)),
                (318, (place, 64, 0)),
                (13, (10, place, place, 8)), (14, (0, place, place, 8)), (131, (place, place)),
                (63, (place,)),
                (98, (0, place)), (204, (0, 128, place)), (302, (0, 7, 0, place)),
                (25, (place, 4096, 2**62, 1, 0)),
                (11, (place, 2**62)), (28, (place, 2**62, 4)), (10, (place, 2**62, 1)),
                (270, (64, place, place, place, place, place)),
                (202, (place, 1, 1, 0, 0, 0)), (157, (16, place, 0, 0, 0)), 
                (157, (15, place, 0, 0, 0)), (273, (place, 24))):
                result = call(number, *arguments)
                if result >= 0 and number not in (11, 131, 13, 14, 202, 273, 302, 28):
                    passed.append((number, place, result))""",
        on="ctypes"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_the_kernel(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


@pytest.mark.parametrize("base", [0, 1 << 30, -1 << 32], ids=["native", "x32", "upper-half"])
def test_no_call_outside_the_list_is_served(arenas: Arenas, base: int) -> None:
    """Every number there is and some that are not yet: refused, whatever the kernel would know."""
    body = f"""
        page = ctypes.create_string_buffer(8192)
        served = []
        for number in range(0, 1024):
            if number in (335, 336) or number in ALLOWED and {base} != 1 << 30:
                continue  # uretprobe and uprobe: see their case
            for arguments in ((0,) * 6, (page, 1, 1, 1, 1, 1), (-100, b"/", 0, 0, 0, 0)):
                if -call(number + {base}, *arguments) not in REFUSALS: served.append(number)
        return repr(sorted(set(served))), 0.0, False, False, {{}}"""
    arena = arenas.get("ctypes")
    arena.check()
    source = Case("", body, head=f"ALLOWED = {ALLOWED!r}", on="ctypes").source()
    with arena.session(source) as session:
        assert session.reset().ok
        reply = session.step("go")
    arenas.outcomes[f"kernel-sweep-{base}"] = reply.outcome.value
    assert reply.outcome.value in ("finished", "refused_call"), reply
    assert reply.observation in ("[]", ""), reply
    arena.check_at_rest()
