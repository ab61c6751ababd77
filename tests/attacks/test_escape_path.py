"""Escape by path: no file of the host can be read, written, listed or named."""

import os
import socket
from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import MARK, Arenas
from tests.attacks.case import EXCEPTION, REFUSED, Case, params

CASES = [
    Case("path-read-etc-passwd", "open('/etc/passwd').read()", REFUSED),
    Case("path-read-a-canary", "open(action).read()", REFUSED),
    Case("path-write-a-canary", "open(action, 'w').write('owned')", REFUSED),
    Case("path-append-exclusive-and-truncate", """
        for mode in ("a", "x", "r+", "wb", "ab"):
            attempt(open, action, mode)
        attempt(os.truncate, action, 0)"""),
    Case("path-every-way-to-open", """
        import codecs, io
        for opener in (io.open, io.FileIO, io.open_code, codecs.open):
            attempt(opener, action)
        attempt(os.open, action, os.O_RDONLY)
        attempt(os.open, action, os.O_PATH)
        attempt(os.open, os.path.dirname(action), os.O_TMPFILE | os.O_RDWR)
        attempt(os.open, action, os.O_RDWR | os.O_NOFOLLOW | os.O_DIRECT)"""),
    Case("path-linecache-and-tokenize-read-nothing", """
        import linecache
        if linecache.getlines(action):
            passed.append("linecache")
        import tokenize
        attempt(tokenize.open, action)"""),
    Case("path-dot-dot-walks", """
        for depth in (1, 8, 64):
            attempt(open, "../" * depth + action.lstrip("/"))
            attempt(open, "/proc/self/cwd/" + "../" * depth + "etc/passwd")"""),
    Case("path-proc-roots", """
        for who in ("self", "1", "thread-self", str(os.getpid())):
            for link in ("root", "cwd"):
                attempt(open, f"/proc/{who}/{link}{action}")
            attempt(os.readlink, f"/proc/{who}/exe")"""),
    Case("path-dir-fd-of-every-descriptor", """
        for fd in range(32):
            attempt(os.open, action, 0, dir_fd=fd)
            attempt(os.open, "..", os.O_DIRECTORY, dir_fd=fd)
            attempt(os.stat, "etc/passwd", dir_fd=fd)
            attempt(os.fchdir, fd)"""),
    Case("path-names-of-devices", """
        for name in ("tty", "null", "zero", "mem", "kmsg", "fd/0", "fd/1", "stdin", "kvm", "fuse",
                     "console", "ptmx", "shm", "mqueue", "loop-control", "net/tun"):
            attempt(open, "/dev/" + name, "r+b", buffering=0)"""),
    Case("path-kernel-settings", """
        for name in ("proc/sys/kernel/core_pattern", "proc/sysrq-trigger",
                     "proc/self/oom_score_adj",
                     "sys/kernel/uevent_helper", "sys/fs/cgroup/memory/release_agent",
                     "sys/fs/cgroup/cgroup.procs", "proc/sys/vm/overcommit_memory"):
            attempt(open, "/" + name, "w")
            attempt(open, "/" + name)"""),
    Case("path-list-and-stat", """
        attempt(os.listdir, "/")
        attempt(os.scandir, os.path.dirname(action))
        attempt(os.stat, action)
        attempt(os.lstat, action)
        attempt(os.access, action, os.R_OK) if os.access(action, os.R_OK) else None
        attempt(os.getcwd)
        attempt(os.statvfs, "/")
        if os.path.exists(action): passed.append("exists")"""),
    Case("path-links-and-renames", """
        folder = os.path.dirname(action)
        attempt(os.symlink, "/etc/shadow", folder + "/link")
        attempt(os.link, action, folder + "/hard")
        attempt(os.rename, action, folder + "/renamed")
        attempt(os.replace, action, "/etc/passwd")
        attempt(os.unlink, action)
        attempt(os.rmdir, folder)
        attempt(os.mkdir, folder + "/made")"""),
    Case("path-modes-owners-times-attributes", """
        attempt(os.chmod, action, 0o4777)
        attempt(os.chown, action, 0, 0)
        attempt(os.lchown, action, 0, 0)
        attempt(os.utime, action, (0, 0))
        attempt(os.setxattr, action, "user.x", b"1")
        attempt(os.removexattr, action, "user.x")
        attempt(os.listxattr, action)
        for fd in (0, 1):
            attempt(os.fchmod, fd, 0o777)
            attempt(os.fchown, fd, 0, 0)"""),
    Case("path-devices-and-fifos", """
        folder = os.path.dirname(action)
        attempt(os.mkfifo, folder + "/fifo")
        attempt(os.mknod, folder + "/disk", 0o60666, os.makedev(8, 0))"""),
    Case("path-beside-the-interpreter", """
        home = os.path.dirname(os.__file__)
        for name in ("json.py", "site-packages/evil.pth", "__pycache__/os.cpython-311.pyc"):
            attempt(open, os.path.join(home, name), "w")
        attempt(open, sys.executable or "/usr/bin/python3", "r+b")"""),
    Case("path-scratch-places", f"""
        for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run/lock", "/run/user/0", "/", ".", ""):
            attempt(open, os.path.join(folder, "{MARK}"), "w")
        import tempfile""", EXCEPTION, "ModuleNotFoundError"),
    Case("path-imports-with-the-finder-put-back", """
        import importlib
        bootstrap = sys.modules["_frozen_importlib_external"]
        sys.path[:] = ["/usr/lib/python3.11", os.path.dirname(os.__file__), "."]
        sys.path_hooks[:] = [bootstrap.FileFinder.path_hook(
            (bootstrap.SourceFileLoader, [".py"]), (bootstrap.ExtensionFileLoader, [".so"]))]
        sys.meta_path.append(bootstrap.PathFinder)
        importlib.invalidate_caches()
        import wave""", EXCEPTION, "ModuleNotFoundError"),
    Case("path-loaders-by-hand", """
        bootstrap = sys.modules["_frozen_importlib_external"]
        attempt(bootstrap.SourceFileLoader("x", action).get_data, action)
        bootstrap.SourceFileLoader("x", action).set_data(action, b"owned")  # swallows refusals
        import _imp
        class Spec: name, origin = "evil", action
        try:
            _imp.create_dynamic(Spec)
            passed.append("create_dynamic")
        except ImportError:
            pass"""),
    Case("path-raw-opens", """
        name = ctypes.c_char_p(action.encode())
        for flags in (0, 1, 2, 0o100, 0o1000, 0o2000000, 0o10000000, 0o20200000):
            refused(2, name, flags, 0o666)          # open
            refused(257, -100, name, flags, 0o666)  # openat
        how = (ctypes.c_uint64 * 3)(0, 0, 0)
        refused(437, -100, name, how, 24)           # openat2
        refused(85, name, 0o666)                    # creat
        refused(134, name)                          # uselib""", on="ctypes"),
    Case("path-empty-path-on-descriptors", """
        buffer = ctypes.create_string_buffer(512)
        for fd in (0, 1, 2, -100):
            refused(262, fd, b"", buffer, 0x1000)             # newfstatat AT_EMPTY_PATH
            refused(332, fd, b"", 0x1000, 0xfff, buffer)      # statx
            refused(257, fd, b"", 0, 0)
            refused(265, fd, b"", -100, b"/tmp/x", 0x1000)    # linkat
            refused(260, fd, b"", 0, 0, 0x1000)               # fchownat
            refused(439, fd, b"", 4, 0x1000)                  # faccessat2
            refused(5, fd, buffer)                            # fstat""", on="ctypes"),
    Case("path-file-handles", """
        handle = (ctypes.c_uint32 * 40)(128, 1)
        mount = ctypes.c_int()
        refused(303, -100, b"/", handle, ctypes.byref(mount), 0)
        for fd in (0, 1, -100):
            refused(304, fd, handle, 0)
            refused(304, fd, handle, 0o10000000)""", on="ctypes"),
    Case("path-libraries-and-loaders-of-c", """
        for name in (b"/lib/x86_64-linux-gnu/libm.so.6", b"libm.so.6", b"libutil.so.1"):
            try:
                ctypes.CDLL(name.decode(), mode=2)
                libc.dlopen.restype = ctypes.c_void_p
                passed.append(name) if name.startswith(b"libutil") else None
            except OSError:
                pass
        libc.setenv(b"GCONV_PATH", b"/tmp", 1)
        libc.setenv(b"LOCPATH", b"/tmp", 1)
        libc.iconv_open.restype = ctypes.c_void_p
        if libc.iconv_open(b"UTF-16", b"ISO-2022-JP") != 2**64 - 1: passed.append("iconv")
        libc.setlocale.restype = ctypes.c_void_p
        if libc.setlocale(6, b"de_DE.ISO-8859-1"): passed.append("setlocale")
        libc.getpwnam.restype = ctypes.c_void_p
        if libc.getpwnam(b"root"): passed.append("getpwnam")
        libc.fopen.restype = ctypes.c_void_p
        if libc.fopen(action.encode(), b"r"): passed.append("fopen")
        libc.opendir.restype = ctypes.c_void_p
        if libc.opendir(b"/"): passed.append("opendir")""", on="ctypes"),
    Case("path-watches", """
        refused(253); refused(294, 0); refused(300, 0, 0)
        for fd in (0, 1):
            refused(254, fd, b"/tmp", 0xfff)
            refused(301, fd, 1, 0xfff, -100, b"/")""", on="ctypes"),
    Case("path-copies-between-descriptors", """
        for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            refused(40, a, b, None, 4096)            # sendfile
            refused(326, a, None, b, None, 4096, 0)  # copy_file_range
            refused(275, a, None, b, None, 4096, 0)  # splice
            refused(276, a, b, 4096, 0)              # tee""", on="ctypes"),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_by_path(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def test_a_listening_socket_of_the_host_is_out_of_reach(arenas: Arenas) -> None:
    """A socket that a trainer, an engine or a container daemon would leave in a folder."""
    path = arenas.canary.folder / "service"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(path))
        path.chmod(0o777)
        service.listen()
        service.setblocking(False)
        try:
            before, arenas.canary.before = arenas.canary.before, None  # type: ignore[assignment]
            body = f"import socket\nsocket.socket(socket.AF_UNIX).connect({str(path)!r})"
            with arenas.get("plain").session(Case("", body).source()) as session:
                assert session.reset().ok
                assert session.step("go").outcome is REFUSED
            body = f"""
                fd = call(41, 1, 1, 0)
                address = b"\\x01\\x00" + {str(path).encode()!r}
                for number in range(32):
                    refused(42, number, address, len(address), also=(9, 88))"""
            with arenas.get("ctypes").session(Case("", body, on="ctypes").source()) as session:
                assert session.reset().ok
                assert session.step("go").observation == "held"
            with pytest.raises(BlockingIOError):
                service.accept()
        finally:
            os.unlink(path)
            arenas.canary.before = before
    arenas.canary.before = arenas.canary.look()
