"""Each way untrusted code can misbehave has its typed outcome, and the pool goes on."""

import os
import threading
import time

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.types import Outcome

pytestmark = pytest.mark.timeout(60)


def test_a_good_step_finishes_with_its_values_and_costs(step):
    reply = step("pass")
    assert reply.outcome is Outcome.FINISHED
    assert (reply.observation, reply.reward) == ("done", 1.0)
    assert (reply.terminated, reply.truncated) == (True, False)
    assert reply.report.wall_s > 0
    assert reply.report.cpu_s is not None
    assert reply.report.reply_bytes > 4


def test_a_busy_hang_is_stopped_by_the_cpu_limit(step):
    begun = time.monotonic()
    reply = step("while True: pass")
    assert reply.outcome is Outcome.TIMED_OUT
    assert reply.detail.startswith(("cpu", "wall"))
    assert time.monotonic() - begun < 5


def test_a_hang_inside_one_c_call_is_stopped(step):
    assert step("sum(range(10**12))").outcome is Outcome.TIMED_OUT


def test_a_sleep_is_stopped_by_the_wall_limit_and_says_so(step):
    reply = step("import time; time.sleep(1000)")
    assert reply.outcome is Outcome.TIMED_OUT
    assert reply.detail.startswith("wall")


def test_a_starved_worker_is_not_blamed_for_the_time_of_others():
    """More busy workers than CPUs: each needs 0.15 s of CPU in 0.2 s of wall time."""
    num = (os.cpu_count() or 1) * 2
    policy = SandboxPolicy(num_workers=num, spares=num, wall_s_per_call=0.2, cpu_s_per_call=5)
    source = (
        "class AEnv:\n def reset(self, seed):\n  import time\n"
        "  end = time.process_time() + 0.15\n"
        "  while time.process_time() < end: pass\n  return 'x', {}\n"
    )
    with SyncPool(policy) as pool:
        replies = []

        def play():
            with pool.session(source, 0) as session:
                replies.append(session.reset())

        threads = [threading.Thread(target=play) for _ in range(num)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(replies) == num
    # Where other programs leave too little, the stretched deadline may end it after all.
    assert all(reply.ok or reply.report.wall_s > 1.0 for reply in replies), replies


def test_swallowing_every_exception_does_not_outlive_the_deadline(step):
    body = """
    while True:
        try:
            while True: pass
        except BaseException:
            pass
    """
    assert step(body).outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize("where", ["import", "class", "constructor", "reset"])
def test_a_hang_anywhere_is_a_timeout_of_that_call(pool, where):
    hang = "while True: pass"
    source = {
        "import": f"{hang}",
        "class": f"class AEnv:\n    {hang}",
        "constructor": f"class AEnv:\n    def __init__(self):\n        {hang}",
        "reset": f"class AEnv:\n    def reset(self, seed):\n        {hang}",
    }[where]
    with pool.session(source, 0) as session:
        reply = session.reset() if where == "reset" else session.loaded
        assert reply.outcome is Outcome.TIMED_OUT
        assert session.reset() == reply, "a dead worker gives the same terminal reply again"


def test_a_fork_bomb_is_refused_at_the_first_fork(step):
    reply = step("import os\nwhile True: os.fork()")
    assert reply.outcome is Outcome.REFUSED_CALL
    assert "PermissionError" in reply.detail


def test_a_thread_cannot_be_started(step):
    body = "import threading\nthreading.Thread(target=print).start()"
    assert step(body).outcome is Outcome.EXCEPTION


def test_a_flood_on_stdout_is_harmless_or_stopped(step):
    assert step("for _ in range(100_000): print('x' * 100)").ok
    assert step("while True: print('x' * 10**6)").outcome is Outcome.TIMED_OUT


def test_allocation_without_end_is_over_memory(step):
    reply = step("a = []\nwhile True: a.append(bytearray(1 << 20))")
    assert reply.outcome is Outcome.OVER_MEMORY
    assert step("bytearray(1 << 40)").outcome is Outcome.OVER_MEMORY


def test_small_pieces_without_end_do_not_pass_the_limit(step):
    body = "a = []\nwhile True: a.append([object() for _ in range(1000)])"
    assert step(body).outcome in (Outcome.OVER_MEMORY, Outcome.TIMED_OUT)


def test_memory_error_raised_by_hand_is_an_exception(step):
    assert step("raise MemoryError('no')").outcome is Outcome.EXCEPTION
    assert step("raise RecursionError").outcome is Outcome.EXCEPTION
    assert step("raise PermissionError(1, 'by hand')").outcome is Outcome.EXCEPTION


@pytest.mark.parametrize(
    "body",
    [
        "open('/etc/passwd').read()",
        "open('/tmp/spade', 'w')",
        "import os; os.listdir('/')",
        "import os; os.stat('/etc')",
        "import socket; socket.socket()",
        "import socket; socket.create_connection(('127.0.0.1', 80))",
        "import os; os.execv('/bin/sh', ['sh'])",
        "import os; os.posix_spawn('/bin/sh', ['sh'], {})",
        "import os; os.kill(1, 9)",
        "import os; os.kill(-1, 9)",
        "import os; os.pipe()",
        "import os; os.setuid(0)",
        "import os; os.chdir('/')",
        "import os; os.memfd_create('x')",
        "import os; os.sched_setaffinity(0, [0])",
        "import os; os.setpriority(0, 0, -20)",
        "import os; os.dup(0)",
    ],
)
def test_a_call_outside_the_list_is_refused(step, body):
    reply = step(body)
    assert reply.outcome is Outcome.REFUSED_CALL, reply
    assert "PermissionError" in reply.detail or "OSError" in reply.detail


def test_raw_calls_are_refused_even_with_ctypes():
    policy = SandboxPolicy(num_workers=1, spares=1, imports=("ctypes",))
    body = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    errnos = {}
    for name, args in dict(ptrace=(0, 0, 0, 0), unshare=(0x10000000,), setns=(0, 0),
                           execve=(b"/bin/sh", None, None), vfork=()).items():
        result = getattr(libc, name)(*args)
        errnos[name] = ctypes.get_errno() if result == -1 else 0
    for number in (435, 425, 321, 323, 250, 434, 438, 272, 310):
        result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
        errnos[number] = ctypes.get_errno() if result == -1 else 0
    return repr(errnos), 1.0, True, False, {}
    """
    with SyncPool(policy) as pool:
        source = "class AEnv:\n    def reset(self, s): return ''\n    def step(self, a):\n" + body
        source = source.replace("\n    ", "\n        ").replace("        def ", "    def ")
        with pool.session(source, 0) as session:
            assert session.loaded.ok, session.loaded
            assert session.reset().ok
            reply = session.step("")
    assert reply.ok, reply
    errnos = eval(reply.observation)
    assert len(errnos) == 14
    assert set(errnos.values()) <= {1, 38}, errnos


@pytest.mark.parametrize(
    "reward",
    ["float('nan')", "float('inf')", "1e308 * 10", "10**400", "None", "'1.0'", "1j", "[1.0]"],
)
def test_a_reward_that_is_no_finite_number_is_a_bad_value(step, reward):
    reply = step(f"return 'x', {reward}, True, False, {{}}")
    assert reply.outcome is Outcome.BAD_VALUE
    assert "reward" in reply.detail
    assert reply.reward is None


@pytest.mark.parametrize(
    ("reward", "expected"),
    [("True", 1.0), ("0", 0.0), ("-0.0", 0.0), ("Decimal('0.5')", 0.5), ("Fraction(1, 4)", 0.25)],
)
def test_real_numbers_become_floats_by_one_rule(step, reward, expected):
    head = "from decimal import Decimal\nfrom fractions import Fraction"
    reply = step(f"return 'x', {reward}, True, False, {{}}", head=head)
    assert reply.ok
    assert str(reply.reward) == str(expected)


@pytest.mark.parametrize(
    "value",
    [
        "None",
        "'x'",
        "('x', 1.0, True, False)",
        "(1, 1.0, True, False, {})",
        "('x', 1.0, 'yes', False, {})",
        "('x', 1.0, True, False, [])",
        "('\\ud800', 1.0, True, False, {})",
        "(i for i in range(5))",
    ],
)
def test_what_is_not_the_five_tuple_is_a_bad_value(step, value):
    assert step(f"return {value}").outcome is Outcome.BAD_VALUE


def test_an_async_step_is_a_bad_value(pool):
    source = "class AEnv:\n def reset(self, s): return 'x', {}\n async def step(self, a): pass"
    with pool.session(source, 0) as session:
        session.reset()
        assert session.step("x").outcome is Outcome.BAD_VALUE


def test_a_reply_of_ten_megabytes_is_over_output(step):
    reply = step("return 'x' * (10 << 20), 1.0, True, False, {}")
    assert reply.outcome is Outcome.OVER_OUTPUT
    assert reply.observation == ""


@pytest.mark.parametrize("error", ["SystemExit(0)", "KeyboardInterrupt()", "GeneratorExit()"])
def test_an_exit_is_an_exception_and_not_an_end(step, error):
    assert step(f"raise {error}").outcome is Outcome.EXCEPTION


def test_system_exit_in_a_finaliser_changes_nothing(step):
    head = "class Last:\n    def __del__(self):\n        raise SystemExit(3)"
    assert step("x = Last()\ndel x", head=head).ok


def test_leaving_silently_is_a_crash(step):
    reply = step("import os; os._exit(0)")
    assert reply.outcome is Outcome.CRASHED
    assert "left by itself" in reply.detail


def test_a_fatal_signal_is_a_crash_that_names_it(step):
    reply = step("import os; os.abort()")
    assert reply.outcome is Outcome.CRASHED
    assert "SIG" in reply.detail


def test_garbage_on_the_reply_pipe_is_a_protocol_violation(step):
    for body in (
        "import os; os.write(1, b'garbage garbage garbage' * 10)",
        "import os; os.write(1, bytes(64))",
        "import os; os.close(1)\nwhile True: pass",
    ):
        assert step(body).outcome in (Outcome.PROTOCOL_VIOLATION, Outcome.OVER_OUTPUT)


def test_closing_every_descriptor_ends_the_call_at_once(step):
    begun = time.monotonic()
    reply = step("import os; os.closerange(0, 100)")
    assert reply.outcome in (Outcome.CRASHED, Outcome.PROTOCOL_VIOLATION)
    assert time.monotonic() - begun < 1


def test_an_extra_frame_ends_the_session(pool):
    body = "import os, struct\nos.write(1, struct.pack('<IIBBdI', 18, 3, 0, 7, 9.0, 0))"
    source = "class AEnv:\n def reset(self, s): return 'x', {}\n def step(self, a):\n" + "".join(
        f"  {line}\n" for line in body.splitlines()
    )
    source += "  return 'x', 0.0, False, False, {}\n"
    with pool.session(source, 0) as session:
        session.reset()
        session.step("a")  # at most what this environment said about itself
        time.sleep(0.1)
        assert session.step("b").outcome is Outcome.PROTOCOL_VIOLATION


def test_a_monkeypatched_runner_harms_only_its_own_replies(pool, step):
    body = """
    import builtins, json, os, sys, struct
    json.dumps = json.loads = lambda *a, **k: 1 / 0
    os.write = os.read = None
    struct.pack = None
    for name in ("isinstance", "len", "float", "tuple", "type", "str"):
        setattr(builtins, name, None)
    frame = sys._getframe()
    while frame is not None:
        for key in list(frame.f_globals):
            if not key.startswith("__"):
                frame.f_globals[key] = None
        frame = frame.f_back
    """
    assert step(body).outcome is not None
    assert step("pass").ok


@pytest.mark.parametrize(
    "head",
    [
        "class Nasty(Exception):\n    def __str__(self): raise SystemExit",
        "class Nasty(Exception):\n    def __str__(self): return 'x' * 10**8",
        "class Nasty(Exception):\n    def __str__(self): return 7",
        "class Nasty(BaseException): pass",
        "class M(type):\n    __name__ = 5\nclass Nasty(Exception, metaclass=M): pass",
    ],
)
def test_a_hostile_exception_gives_a_bounded_text(step, head):
    reply = step("raise Nasty('boo')", head=head)
    assert reply.outcome in (Outcome.EXCEPTION, Outcome.OVER_MEMORY)
    assert "Nasty" in reply.detail
    assert len(reply.detail) < 1500


def test_a_traceback_names_the_environments_own_lines(step):
    reply = step("helper()", head="def helper():\n    return {}['gold']")
    assert reply.outcome is Outcome.EXCEPTION
    assert "KeyError: 'gold'" in reply.detail
    assert "line 2 in helper" in reply.detail
    assert "runner" not in reply.detail


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("x = (", "SyntaxError"),
        ("import torch", "ModuleNotFoundError"),
        ("1 / 0", "in source: ZeroDivisionError"),
        ("class AEnv:\n def __init__(self): 1 / 0", "in constructor: ZeroDivisionError"),
        ("(" * 100_000, "Error"),
        ("\0", "null"),
    ],
)
def test_a_source_that_does_not_load_says_where_and_why(pool, source, word):
    with pool.session(source, 0) as session:
        assert session.loaded.outcome in (Outcome.EXCEPTION, Outcome.OVER_MEMORY)
        assert word in session.loaded.detail
        assert session.step("x") == session.loaded


def test_a_source_without_an_environment_is_a_bad_value(pool):
    with pool.session("class Env: pass\nclass ToolUseBaseEnv: pass", 0) as session:
        assert session.loaded.outcome is Outcome.BAD_VALUE
        assert "ends in Env" in session.loaded.detail


def test_a_breach_of_memory_names_its_limit(step):
    reply = step("x = bytearray(1 << 30)")
    assert reply.outcome is Outcome.OVER_MEMORY
    assert f"limit {64 << 20} bytes" in reply.detail
