"""What the two jails keep from the untrusted code: files, network, processes of the host."""

import os
import socket
import threading

import pytest

from spade_async.types import Outcome
from tests.backends.policies import JAILED
from tests.support.jail_steps import OPEN_DESCRIPTORS

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("backend", JAILED, indirect=True),
]

REFUSED = (Outcome.REFUSED_CALL, Outcome.EXCEPTION)


def test_no_file_of_the_host_is_readable(step, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("canary-51c0")
    canary.chmod(0o644)
    for path in (canary, "/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/1/environ"):
        reply = step(f"return open({str(path)!r}).read(), 1, True, False, {{}}")
        assert reply.outcome in REFUSED, reply
        assert "canary-51c0" not in reply.detail
    reply = step(f"import os\nreturn repr(os.listdir({str(tmp_path)!r})), 1, True, False, {{}}")
    assert reply.outcome in REFUSED


def test_a_walk_finds_no_file_to_open(step):
    body = """
    import os
    opened = []
    for root in ("/", "/proc/self/root", "/proc/1/cwd", "..", "/root", "/home", "/tmp", "/var"):
        try:
            for folder, _, names in os.walk(root):
                for name in names:
                    path = folder + "/" + name
                    try:
                        opened.append((path, open(path, "rb").read(1)))
                    except OSError:
                        pass
        except OSError:
            pass
    return repr(opened), 1, True, False, {}
    """
    reply = step(body)
    assert reply.ok or reply.outcome in REFUSED, reply
    assert reply.observation in ("", "[]")


def test_nothing_can_be_written(step, tmp_path):
    tmp_path.chmod(0o777)
    for folder in (str(tmp_path), "/tmp", "/dev/shm", "/var/tmp", "", os.path.dirname(os.__file__)):
        reply = step(f"open({folder + '/spade-mark'!r}, 'w').write('x')")
        assert reply.outcome in REFUSED, reply
        assert not os.path.exists(f"{folder}/spade-mark")


def test_no_program_can_be_started(step):
    for body in (
        "os.fork()",
        "os.execv('/bin/sh', ['sh', '-c', 'exit'])",
        "os.posix_spawn('/bin/sh', ['sh'], {})",
        "os.system('true') == 0 or [][0]",
    ):
        assert step("import os\n" + body).outcome in REFUSED


def test_the_network_of_the_host_is_out_of_reach(step):
    name = f"\0spade-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as local,
    ):
        local.bind(name)
        local.listen()
        port = listener.getsockname()[1]
        for body in (
            f"socket.create_connection(('127.0.0.1', {port}), 1)",
            f"s = socket.socket(socket.AF_UNIX); s.connect({name!r})",
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
            "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "socket.getaddrinfo('localhost', 80)",
        ):
            assert step("import socket\n" + body).outcome in REFUSED
        for server in (listener, local):
            server.settimeout(0.05)
            with pytest.raises(TimeoutError):
                server.accept()


def test_a_sibling_and_the_host_cannot_be_signalled(pool):
    attack = (
        "class AEnv:\n def reset(self, s):\n"
        "  import os\n  done = []\n"
        "  for pid in [-1, 0, *range(2, 40000, 7), os.getppid()]:\n"
        "    try:\n      os.kill(pid, 9)\n      done.append(pid)\n"
        "    except (OSError, OverflowError): pass\n"
        "  return repr(done), {}\n"
    )
    calm = "class AEnv:\n def reset(self, s): return 'calm', {}\n"
    with pool.session(calm, 0) as sibling, pool.session(attack, 0) as attacker:
        assert attacker.reset().observation in ("[]", "")
        assert sibling.reset().observation == "calm"


def test_the_host_names_nothing_inside(step):
    body = """
    import os, sys
    return repr((sys.argv, sys.orig_argv, sys.path, os.uname().nodename)), 1, True, False, {}
    """
    argv, orig_argv, path, node = eval(step(body).observation)
    assert argv == orig_argv == ["environment"]
    assert path == []
    assert node


def test_a_child_has_its_pipes_and_nothing_else(step):
    body = OPEN_DESCRIPTORS + "return repr(found), 0.0, True, False, {}"
    assert step(body).observation in ("[0]", "[0, 1]")


def test_a_thread_cannot_burn_more_than_one_cpu(step):
    body = "import threading\nthreading.Thread(target=print).start()"
    assert step(body).outcome in REFUSED


def test_side_effects_after_the_deadline_do_not_happen(step, tmp_path):
    mark = tmp_path / "mark"
    tmp_path.chmod(0o777)
    body = f"""
    import time
    while True:
        try:
            time.sleep(0.2)
            open({str(mark)!r}, "w").write("x")
        except BaseException:
            pass
    """
    assert step(body).outcome is Outcome.TIMED_OUT
    threading.Event().wait(0.5)
    assert not mark.exists()
