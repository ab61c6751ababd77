"""Give up system calls, then run a command: machines that refuse namespaces, made in a test.

    python narrow.py all -- command...          as a container's default filter does
    python narrow.py but-user -- command...     as a security module does that lets a program make
                                                a user namespace and then takes its rights away

Only the command and what it starts are affected. A program of its own, because a filter cannot be
taken back.
"""

import ctypes
import os
import platform
import struct
import sys

EPERM, ENOSYS = 1, 38
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
_LOAD, _AND, _JUMP_EQUAL, _JUMP_ANY, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NEW_NAMES, _NEW_USER = 0x7E020080, 0x10000000

_NUMBERS = {
    "x86_64": {"clone": 56, "clone3": 435, "unshare": 272, "setns": 308, "mount": 165,
               "umount2": 166, "pivot_root": 155, "chroot": 161},
    "aarch64": {"clone": 220, "clone3": 435, "unshare": 97, "setns": 268, "mount": 40,
                "umount2": 39, "pivot_root": 41, "chroot": 51},
}  # fmt: skip


def filter_program(refused_flags: int) -> bytes:
    """Classic BPF: namespaces of these flags, mounts and roots are refused with EPERM.

    clone3 does not exist (ENOSYS): its flags lie in memory, where no filter can read them.
    """
    numbers = dict(_NUMBERS[platform.machine()])
    by_flags = [numbers.pop("clone"), numbers.pop("unshare")]
    newer = numbers.pop("clone3")
    code: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, 0)]
    code.append((_JUMP_EQUAL, 0, 1, newer))
    code.append((_RETURN, 0, 0, _ERRNO | ENOSYS))
    for number in numbers.values():
        code.append((_JUMP_EQUAL, 0, 1, number))
        code.append((_RETURN, 0, 0, _ERRNO | EPERM))
    for number in by_flags:  # the flags are the first argument of both, low half first
        code.append((_JUMP_EQUAL, 0, 3, number))
        code.append((_LOAD, 0, 0, 16))
        code.append((_JUMP_ANY, 0, 1, refused_flags))
        code.append((_RETURN, 0, 0, _ERRNO | EPERM))
        code.append((_LOAD, 0, 0, 0))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in code)


def install(program: bytes) -> None:
    """Put the filter on this process for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if os.geteuid() != 0 and libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(header), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    which, separator, *command = sys.argv[1:]
    assert separator == "--", __doc__
    assert which in ("all", "but-user"), __doc__
    install(filter_program(_NEW_NAMES & ~_NEW_USER if which == "but-user" else _NEW_NAMES))
    os.execvp(command[0], command)
