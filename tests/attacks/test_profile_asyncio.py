"""The asyncio profile: an event loop of one's own, and no way from it to anybody else."""

from collections.abc import Callable

import pytest

from spade_async.types import Reply
from tests.attacks.arena import MARK, Arenas
from tests.attacks.case import CRASHED, EXCEPTION, FINISHED, HELD, REFUSED, TIMED_OUT, Case, params


def loop(name: str, body: str, outcomes=FINISHED, says="", **more) -> Case:
    """A case on the asyncio profile."""
    body = "import asyncio\n" + _flat(body)
    return Case(f"asyncio-{name}", body, outcomes, says, on="asyncio", **more)


def _flat(body: str) -> str:
    lines = body.strip("\n").splitlines()
    indent = min((len(x) - len(x.lstrip()) for x in lines if x.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


CASES = [
    loop("it-works-at-all", """
        async def f(): await asyncio.sleep(0); return 1
        if asyncio.run(f()) != 1: passed.append("broken")"""),
    loop("connections", """
        async def f():
            for make in (lambda: asyncio.open_connection("127.0.0.1", 22),
                         lambda: asyncio.open_unix_connection("/tmp/x"),
                         lambda: asyncio.start_server(print, "127.0.0.1", 0),
                         lambda: asyncio.start_unix_server(print, "/tmp/x")):
                try:
                    made = await make()
                    if getattr(made, "sockets", True): passed.append(made)
                except OSError: pass
        asyncio.run(f())"""),
    loop("processes", """
        async def f():
            await asyncio.create_subprocess_exec("/bin/id")
        asyncio.run(f())""", (EXCEPTION, REFUSED)),
    loop("sockets-of-every-family", """
        import socket
        for family in range(46):
            for kind in (1, 2, 3, 5, 1 | 0o4000): attempt(socket.socket, family, kind)"""),
    loop("pairs-of-every-family", """
        pair = (ctypes.c_int * 2)()
        for family in (0, 2, 10, 16, 17, 38, 40):
            for kind in (1, 2, 3, 5): refused(53, family, kind, 0, pair)
        for kind in (2, 3, 5): refused(53, 1, kind, 0, pair)"""),
    loop("naming-one-end", f"""
        import socket
        one, two = socket.socketpair()
        for name in ("\\0{MARK}", "/tmp/{MARK}", b"\\0" * 10):
            attempt(one.bind, name); attempt(one.connect, name)
            attempt(one.sendto, b"x", name)
        attempt(one.listen); attempt(one.accept); attempt(one.getpeername)"""),
    loop("passing-descriptors", """
        import socket
        one, two = socket.socketpair()
        attempt(one.sendmsg, [b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, bytes(4))])
        attempt(two.recvmsg, 1, 100); attempt(two.recvmsg_into, [bytearray(1)])
        attempt(lambda: socket.send_fds(one, [b"x"], [0]))
        for option in (16, 34, 17, 77): attempt(one.setsockopt, socket.SOL_SOCKET, option, 1)
        refused(307, one.fileno(), None, 0, 0); refused(299, one.fileno(), None, 0, 0, None)"""),
    loop("urgent-and-odd-flags", """
        import socket
        one, two = socket.socketpair()
        for flags in (1, 4, 0x10, 0x8000, 0x2000, 0x4000000, 0x20000000):
            attempt(one.send, b"x", flags)
        for flags in (1, 0x2000, 0x40000000): attempt(two.recv, 1, flags)"""),
    loop("descriptor-bomb", """
        import socket
        kept = []
        try:
            while True: kept.append(socket.socketpair())
        except OSError as error:
            if error.errno != errno.EMFILE: passed.append(error)
        if len(kept) > 16: passed.append(len(kept))"""),
    loop("kernel-buffers-filled", """
        import socket
        kept = []
        try:
            while True: kept.append(socket.socketpair())
        except OSError: pass
        sent = 0
        for pair in kept:
            for end in pair:
                end.setblocking(False)
                try:
                    while True: sent += end.send(bytes(1 << 16))
                except OSError: pass
        if sent > 64 << 20: passed.append(sent)""", (FINISHED, "over_memory")),
    loop("selectors-in-a-circle", """
        import select
        pollers = [select.epoll() for _ in range(8)]
        for one in pollers:
            for two in pollers:
                try: one.register(two.fileno())
                except OSError: pass
        for one in pollers:
            try: one.poll(0)
            except OSError: pass"""),
    loop("watching-the-protocol", """
        import select
        poller = select.epoll()
        for fd in (0, 1):
            try: poller.register(fd)
            except OSError: pass
        poller.poll(0.01)"""),
    loop("the-protocol-without-waiting", """
        for fd in (0, 1): os.set_blocking(fd, False)""", (FINISHED, CRASHED, "protocol_violation")),
    loop("threads-of-an-executor", """
        async def f(): await asyncio.get_running_loop().run_in_executor(None, print)
        asyncio.run(f())""", (EXCEPTION, REFUSED)),
    loop("a-loop-without-end", """
        async def f():
            while True: await asyncio.sleep(0)
        asyncio.run(f())""", TIMED_OUT),
    loop("a-sleep-without-end", """
        async def f():
            try: await asyncio.sleep(10**9)
            finally: await asyncio.sleep(10**9)
        asyncio.run(f())""", TIMED_OUT, "wall", ends=True),
    loop("tasks-that-outlive-the-step", """
        global kept
        kept = asyncio.new_event_loop()
        async def f():
            while True:
                send(b"late"); await asyncio.sleep(0)
        kept.create_task(f())"""),
    loop("signals-of-the-loop", """
        import _signal
        async def f():
            asyncio.get_running_loop().add_signal_handler(_signal.SIGTERM, print)
        try: asyncio.run(f())
        except (RuntimeError, ImportError): pass
        for name in ("kill", "killpg"):
            attempt(getattr(os, name), 0 if name == "killpg" else 1, 15)"""),
    loop("files-all-the-same", """
        attempt(open, action)
        attempt(open, "/tmp/x", "w")
        attempt(os.pipe)
        attempt(os.eventfd, 0)
        refused(59, b"/bin/sh", None, None)
        refused(57)
        refused(425, 8, ctypes.create_string_buffer(128))"""),
]  # fmt: skip


@pytest.mark.parametrize("case", params(CASES))
def test_escape_from_the_loop(attack: Callable[[Case], Reply], case: Case) -> None:
    attack(case)


def test_two_workers_with_sockets_do_not_find_each_other(arenas: Arenas) -> None:
    """Both have every number of socket open; what one sends, only its own other end gets."""
    arena = arenas.get("asyncio")
    body = """
        import socket
        self.pairs = getattr(self, "pairs", None) or [socket.socketpair() for _ in range(5)]
        for one, two in self.pairs:
            one.setblocking(False); two.setblocking(False)
            for end in (one, two):
                try:
                    got = end.recv(100)
                    if got != (os.environ.get("WHO") or "").encode(): passed.append(got)
                except BlockingIOError: pass
        os.environ["WHO"] = WHO
        for one, two in self.pairs: one.send(WHO.encode())"""
    with (
        arena.session(Case("", body, on="asyncio", head="WHO = 'one'").source()) as one,
        arena.session(Case("", body, on="asyncio", head="WHO = 'two'").source()) as two,
    ):
        for session in (one, two):
            assert session.reset().ok
        for _ in range(3):
            assert [s.step("go").observation for s in (one, two)] == [HELD, HELD]
    arena.check_at_rest()
