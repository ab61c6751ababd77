"""The files profile: one small folder of the episode's own, and nothing beyond it."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import MARK, Arenas
from tests.attacks.case import (
    CRASHED,
    EXCEPTION,
    FINISHED,
    OVER_MEMORY,
    TIMED_OUT,
    VIOLATION,
    Case,
    params,
)  # fmt: skip

GONE = "REFUSALS += (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EROFS, errno.EBUSY)\n"
"""Outside of the folder there is nothing to be found: that is no success either."""


def files(name: str, body: str, outcomes=FINISHED, says="", **more) -> Case:
    """A case on the files profile."""
    head = GONE + more.pop("head", "")
    return Case(f"files-{name}", body, outcomes, says, on="files", head=head, **more)


CASES = [
    files("it-works-at-all", """
        with open("/tmp/a", "w") as file: file.write("text")
        os.mkdir("/tmp/folder"); os.rename("/tmp/a", "/tmp/folder/b")
        if open("/tmp/folder/b").read() != "text" or os.listdir("/tmp") != ["folder"]:
            passed.append("broken")"""),
    files("read-outside", """
        for path in (action, "/etc/passwd", "/proc/self/environ", "/proc/1/root/etc/passwd",
                     "/dev/null",
                     "/sys/kernel/notes", "/root", os.__file__):
            attempt(open, path)"""),
    files("write-outside", """
        for path in (action, "/x", "/../x", "/etc/x", "/dev/shm/x", "/var/tmp/x", "x/../../x"):
            attempt(open, path, "w"); attempt(os.mkdir, path); attempt(os.unlink, path)"""),
    files("dot-dot-walks", """
        os.mkdir("/tmp/a"); os.mkdir("/tmp/a/b")
        for depth in (1, 2, 3, 8, 50):
            for start in ("/tmp/a/b/", "/tmp/", ""):
                for end in ("etc/passwd", action.lstrip("/"), "proc/self/mem"):
                    attempt(open, start + "../" * depth + end)
                if depth > 2: attempt(open, start + "../" * depth + "x", "w")"""),
    files("walks-from-a-descriptor", """
        folder = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)
        for path in ("..", "../..", "../etc/passwd", "../" + action.lstrip("/"), "/etc/passwd"):
            attempt(os.open, path, os.O_RDONLY, dir_fd=folder)
        attempt(os.mkdir, "../x", dir_fd=folder)
        attempt(os.rename, "../tmp", "x", src_dir_fd=folder)
        refused(437, folder, b"..", (ctypes.c_uint64 * 3)(), 24); refused(81, folder)"""),
    files("a-folder-moved-from-under-a-walk", """
        os.makedirs("/tmp/a/b/c")
        folder = os.open("/tmp/a/b/c", os.O_RDONLY)
        os.rename("/tmp/a/b/c", "/tmp/c")
        for depth in (2, 3, 4):
            attempt(os.open, "../" * depth + "etc/passwd", os.O_RDONLY, dir_fd=folder)
            attempt(os.open, "../" * depth + "y", os.O_CREAT | os.O_WRONLY, dir_fd=folder)"""),
    files("links", """
        open("/tmp/a", "w").close()
        attempt(os.symlink, "/etc/shadow", "/tmp/link"); attempt(os.symlink, action, "/tmp/link2")
        attempt(os.link, "/tmp/a", "/tmp/b"); attempt(os.link, action, "/tmp/b")
        refused(265, -100, b"/tmp/a", -100, b"/tmp/b", 0x400)
        refused(266, b"/", -100, b"/tmp/s")"""),
    files("devices-pipes-and-sockets", """
        attempt(os.mkfifo, "/tmp/fifo"); attempt(os.mknod, "/tmp/disk", 0o60666, os.makedev(8, 0))
        attempt(os.mknod, "/tmp/null", 0o20666, os.makedev(1, 3))
        attempt(os.mknod, "/tmp/s", 0o140666)
        import socket
        attempt(lambda: socket.socket(socket.AF_UNIX).bind("/tmp/socket"))"""),
    files("modes-owners-attributes", """
        open("/tmp/a", "w").close()
        attempt(os.chmod, "/tmp/a", 0o4777)
        attempt(os.chown, "/tmp/a", 0, 0)
        attempt(os.chmod, "/tmp", 0o777)
        attempt(os.setxattr, "/tmp/a", "user.x", b"1"); attempt(os.utime, "/tmp/a", (0, 0))
        for fd in range(3): attempt(os.fchmod, fd, 0o777)
        attempt(os.setxattr, "/tmp/a", "security.capability", bytes(20))"""),
    files("sparse-file-of-a-terabyte", """
        file = open("/tmp/a", "w+b")
        for size in (1 << 40, 1 << 62, 17 << 20):
            try:
                file.truncate(size)
                passed.append(size)
            except OSError as error:
                if error.errno not in (errno.EFBIG, errno.EINVAL): passed.append(error)"""),
    files("seek-far-and-write", """
        file = os.open("/tmp/a", os.O_CREAT | os.O_RDWR)
        for offset in (1 << 40, (1 << 62), 32 << 20):
            try:
                os.lseek(file, offset, 0); os.write(file, b"x"); passed.append(offset)
            except OSError as error:
                if error.errno not in (errno.EFBIG, errno.EINVAL): passed.append(error)"""),
    files("full", """
        written = 0
        try:
            for number in range(100):
                with open(f"/tmp/{number}", "wb", buffering=0) as file:
                    for _ in range(16): written += file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC: passed.append(error)
        if written > 17 << 20: passed.append(written)""", (FINISHED, OVER_MEMORY)),
    files("inode-bomb", """
        made = 0
        try:
            for number in range(5000):
                os.mkdir(f"/tmp/{number}") if number % 2 else open(f"/tmp/{number}", "w").close()
                made += 1
        except OSError as error:
            if error.errno != errno.ENOSPC: passed.append(error)
        if made > 1024: passed.append(made)"""),
    files("deep-folders-and-long-names", """
        path, depth = "/tmp", 0
        try:
            while depth < 2000:
                path += "/d"; os.mkdir(path); depth += 1
        except OSError: pass
        for name in ("n" * 256, "n" * 5000, "\\n\\x1b", "\\udcff"):
            try: open("/tmp/" + name, "w").close()
            except (OSError, ValueError): pass"""),
    files("allocation-and-copies", """
        file = os.open("/tmp/a", os.O_CREAT | os.O_RDWR)
        refused(285, file, 0, 0, 1 << 30); refused(326, file, None, file, None, 100, 0)
        refused(40, file, file, None, 100); refused(275, file, None, 0, None, 100, 0)
        refused(16, file, 0x40049409, file)
        refused(187, file, 0, 100)
        refused(221, file, 0, 0, 4)"""),
    files("every-odd-way-to-open", """
        for flags in (os.O_PATH, os.O_TMPFILE | os.O_RDWR, os.O_DIRECT | os.O_CREAT, os.O_ASYNC,
                      0o4010000 | 2):
            attempt(os.open, "/tmp", flags) if flags != os.O_ASYNC else None
            refused(257, -100, b"/tmp/x", flags | 0o100, 0o666, also=(22, 20, 21))
        refused(303, -100, b"/tmp", (ctypes.c_uint32 * 40)(128), ctypes.byref(ctypes.c_int()), 0)
        refused(304, 0, (ctypes.c_uint32 * 40)(128), 0); refused(319, b"x", 0)"""),
    files("running-what-was-written", """
        open("/tmp/a", "wb").write(b"#!/bin/sh\\nid\\n"); os.sync if False else None
        attempt(os.execv, "/tmp/a", ["a"]); attempt(os.posix_spawn, "/tmp/a", ["a"], {})
        refused(322, os.open("/tmp/a", 0), b"", None, None, 0x1000)
        file = os.open("/tmp/a", os.O_RDWR)
        for protection, flags in ((5, 2), (7, 2), (4, 2), (3, 1), (1, 1), (3, 3)):
            refused(9, 0, 4096, protection, flags, file, 0)"""),
    files("a-library-of-ones-own", """
        elf = b"\\x7fELF\\x02\\x01\\x01" + bytes(9) + b"\\x03\\0\\x3e\\0\\x01\\0\\0\\0"
        open("/tmp/lib.so", "wb").write(elf + bytes(40) + bytes(8192))
        try: ctypes.CDLL("/tmp/lib.so"); passed.append("loaded")
        except OSError: pass
        os.environ["LD_PRELOAD"] = "/tmp/lib.so"; libc.setenv(b"GCONV_PATH", b"/tmp", 1)
        open("/tmp/gconv-modules", "w").write("module EVIL// INTERNAL /tmp/lib 1\\n")
        libc.iconv_open.restype = ctypes.c_void_p
        if libc.iconv_open(b"EVIL", b"UTF-8") != 2**64 - 1: passed.append("iconv")"""),
    files("modules-of-ones-own", """
        open("/tmp/wave.py", "w").write("x = 1"); open("/tmp/json.py", "w").write("1 / 0")
        sys.path[:] = ["/tmp", ""]
        import wave""", EXCEPTION, "ModuleNotFoundError"),
    files("too-many-descriptors", """
        kept = []
        try:
            for _ in range(5000): kept.append(os.open("/tmp", os.O_RDONLY))
        except OSError as error:
            if error.errno != errno.EMFILE: passed.append(error)
        if len(kept) > 128: passed.append(len(kept))"""),
    files("a-file-in-the-place-of-the-protocol", """
        file = os.open("/tmp/a", os.O_CREAT | os.O_RDWR)
        for fd in (0, 1): os.dup2(file, fd)""", (VIOLATION, CRASHED, TIMED_OUT), ends=True),
    files("the-protocol-made-to-wait-for-nobody", """
        for fd in (0, 1):
            try: os.set_blocking(fd, False)
            except OSError: pass""", (FINISHED, CRASHED, VIOLATION)),
    files("the-protocol-duplicated", """
        copies = [os.dup(0), os.dup(1)]
        os.close(1)
        os.write(copies[1], b"garbage garbage garbage ")""", (VIOLATION, "over_output"), ends=True),
    files("locks-leases-and-watches", """
        file = os.open("/tmp/a", os.O_CREAT | os.O_RDWR)
        for command in (5, 6, 7, 8, 10, 36, 37, 38, 1024, 1026, 1031, 1033, 1036):
            refused(72, file, command, 1)
        refused(73, file, 2); refused(253); refused(300, 0, 0); refused(254, 0, b"/tmp", 1)"""),
    files("mounts-and-roots", """
        for kind in (b"tmpfs", b"proc", b"overlay"): refused(165, kind, b"/tmp", kind, 0, None)
        refused(165, b"/", b"/tmp", None, 0x1000, None)
        refused(166, b"/tmp", 2)
        refused(155, b"/tmp", b"/tmp")
        refused(161, b"/tmp")
        refused(428, -100, b"/tmp", 1)
        refused(430, b"tmpfs", 0)
        refused(272, 0x20000)
        refused(165, None, b"/tmp", None, 0x20 | 0x20000, b"size=100g")"""),
    files("rewriting-without-end", """
        file = os.open("/tmp/a", os.O_CREAT | os.O_RDWR)
        while True: os.lseek(file, 0, 0); os.write(file, bytes(1 << 20))""", TIMED_OUT, ends=True),
    files("syncing-without-end", """
        file = os.open("/tmp/a", os.O_CREAT | os.O_RDWR)
        refused(162); refused(306, file)
        while True: os.write(file, b"x"); os.fsync(file)""", (TIMED_OUT, EXCEPTION)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def needs_files(arenas: Arenas) -> None:
    layers = arenas.get("files").pool.capabilities["layers"]
    missing = [name for name in layers if name.endswith("files") and not layers[name]["ok"]]
    if missing:
        pytest.skip(f"this machine has no {missing}")


@pytest.mark.parametrize("case", params(CASES))
def test_escape_from_the_folder(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def test_files_are_seen_by_their_own_episode_alone(arenas: Arenas) -> None:
    arena = arenas.get("files")
    write = Case("", f"open('/tmp/{MARK}', 'w').write('x' * (8 << 20))", on="files").source()
    look = Case("", "return repr(os.listdir('/tmp')), 0, False, False, {}", on="files").source()
    with arena.session(write) as one, arena.session(look) as two:
        assert one.reset().ok
        assert two.reset().ok
        assert one.step("go").ok
        assert two.step("go").observation == "[]"
        arena.check()
    with arena.session(look) as later:
        assert later.reset().ok
        assert later.step("go").observation == "[]"
    arena.check_at_rest()


def test_a_full_folder_is_not_the_next_workers_debt(arenas: Arenas) -> None:
    """Pages of the file system are charged to its worker: they must be gone with it."""
    arena = arenas.get("files")
    body = "open('/tmp/a', 'wb').write(bytes(15 << 20)); self.kept = bytearray(20 << 20)"
    for _ in range(25):
        with arena.session(Case("", body, on="files").source()) as session:
            assert session.reset().ok
            assert session.step("go").outcome is FINISHED
    arena.fresh()
    arena.check_at_rest()
