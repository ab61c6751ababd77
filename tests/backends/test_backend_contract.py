"""The same outcomes from every backend: what untrusted code does is a value, never a fault."""

import time

import pytest

from spade_async.sandbox import SyncPool
from spade_async.types import Outcome
from tests.backends.policies import BACKENDS, GUESS, policy

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("backend", BACKENDS, indirect=True),
]


def test_a_good_episode_is_played_to_its_end(pool):
    with pool.session(GUESS, 7) as session:
        assert session.loaded.ok
        first = session.reset()
        assert (first.outcome, first.observation) == (Outcome.FINISHED, "turns 25")
        assert first.reward is None
        reply = session.step("wrong")
        assert (reply.observation, reply.reward) == ("no", -0.5)
        assert (reply.terminated, reply.truncated) == (False, False)
        secret = session.hint().observation
        reply = session.step(secret)
        assert (reply.observation, reply.reward, reply.terminated) == ("yes", 1.0, True)
        assert reply.report.wall_s > 0
        assert reply.report.cpu_s is not None
        assert reply.report.reply_bytes == 4 + 18 + len("yes")
        assert session.reset().ok
        assert session.hint().observation == secret, "the same seed gives the same episode"
        assert session.reset(8).ok
        assert session.hint().observation != secret


def test_reset_without_a_seed_calls_the_program_without_one(pool):
    """Its own default is the instance then; chance is seeded by the session all the same."""
    source = (
        "import random\nclass AEnv:\n"
        " def reset(self, seed=5): return f'{seed} {random.randint(0, 10**9)}', {}\n"
    )
    seen = []
    for seed in (7, 7, 8):
        with pool.session(source, seed) as session:
            assert session.reset().observation.split()[0] == str(seed)
        with pool.session(source, seed) as session:
            seen.append(session.reset(unseeded=True).observation)
            with pytest.raises(ValueError, match="seed=3 beside unseeded=True"):
                session.reset(3, unseeded=True)
    assert [text.split()[0] for text in seen] == ["5", "5", "5"]
    assert seen[0] == seen[1] != seen[2]
    demanding = "class AEnv:\n def reset(self, seed): return 'x', {}\n"
    with pool.session(demanding, 7) as session:
        reply = session.reset(unseeded=True)
        assert (reply.outcome, "missing 1 required" in reply.detail) == (Outcome.EXCEPTION, True)


def test_every_backend_draws_the_same_numbers(pool):
    with pool.session(GUESS, 7) as session:
        session.reset()
        # random.Random(7).randint(0, 10**9)
        assert session.hint().observation == "347712782"


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("source", "1 / 0"),
        ("constructor", "class AEnv:\n def __init__(self): 1 / 0"),
        ("reset", "class AEnv:\n def reset(self, s): 1 / 0"),
        ("step", "class AEnv:\n def reset(self, s): return ''\n def step(self, a): 1 / 0"),
        ("hint", "class AEnv:\n def reset(self, s): return ''\n def hint(self): 1 / 0"),
    ],
)
def test_an_exception_says_where_it_was_raised(pool, where, source):
    with pool.session(source, 0) as session:
        reply = session.loaded
        if where in ("reset", "step", "hint"):
            assert reply.ok
            reply = session.reset()
        if where == "step":
            reply = session.step("x")
        elif where == "hint":
            reply = session.hint()
        assert reply.outcome is Outcome.EXCEPTION
        assert reply.detail.startswith(f"in {where}: ZeroDivisionError: division by zero")
        after = session.reset()
        if where in ("source", "constructor"):
            assert after == reply, "a session whose load failed gives that same reply again"
        else:
            assert after.outcome in (Outcome.FINISHED, Outcome.EXCEPTION)


@pytest.mark.parametrize("error", ["SystemExit(0)", "KeyboardInterrupt()", "MemoryError('x')"])
def test_an_exit_or_a_limit_raised_by_hand_is_an_exception(step, error):
    assert step(f"raise {error}").outcome is Outcome.EXCEPTION


@pytest.mark.parametrize(
    "value",
    [
        "None", "'x'", "('x', 1.0, True, False)", "(1, 1.0, True, False, {})",
        "('x', float('nan'), True, False, {})", "('x', 10**400, True, False, {})",
        "('x', '1', True, False, {})", "('x', 1.0, 'yes', False, {})",
        "('\\ud800', 1.0, True, False, {})",
    ],
)  # fmt: skip
def test_a_value_that_the_contract_forbids_is_a_bad_value(step, value):
    reply = step(f"return {value}")
    assert reply.outcome is Outcome.BAD_VALUE
    assert reply.reward is None


def test_calls_out_of_order_are_answered_and_the_session_goes_on(pool):
    with pool.session(GUESS, 0) as session:
        reply = session.step("x")
        assert reply.outcome is Outcome.BAD_VALUE
        assert "order: step before reset" in reply.detail
        assert "order: hint before reset" in session.hint().detail
        assert session.reset().ok
        assert session.step(session.hint().observation).terminated
        assert "order: step after the episode ended" in session.step("x").detail
        assert session.reset().ok


@pytest.mark.parametrize("where", ["source", "constructor", "reset", "step", "hint"])
def test_an_endless_loop_anywhere_is_a_timeout_of_that_call(pool, backend, where):
    hang = "while True: pass"
    source = {
        "source": hang,
        "constructor": f"class AEnv:\n def __init__(self):\n  {hang}",
        "reset": f"class AEnv:\n def reset(self, s):\n  {hang}",
        "step": f"class AEnv:\n def reset(self, s): return ''\n def step(self, a):\n  {hang}",
        "hint": f"class AEnv:\n def reset(self, s): return ''\n def hint(self):\n  {hang}",
    }[where]
    with SyncPool(policy(backend, load_wall_s=2.0)) as own, own.session(source, 0) as session:
        reply = session.loaded
        if where in ("reset", "step", "hint"):
            assert reply.ok
            reply = session.reset()
        if where == "step":
            reply = session.step("x")
        elif where == "hint":
            reply = session.hint()
        assert reply.outcome is Outcome.TIMED_OUT
        assert reply.detail.startswith(("cpu: ", "wall: "))
        assert session.step("x") == reply, "a dead child gives the same terminal reply again"
        assert own.stats()["live"] == 0


def test_the_cpu_limit_ends_a_loop_that_swallows_everything(step):
    body = """
    while True:
        try:
            while True: pass
        except BaseException:
            pass
    """
    reply = step(body)
    assert reply.outcome is Outcome.TIMED_OUT
    assert reply.report.cpu_s is None or reply.report.cpu_s > 0.1


def test_a_sleep_is_ended_by_the_wall_limit_and_says_so(backend):
    source = "class AEnv:\n def reset(self, s):\n  import time\n  time.sleep(1000)\n"
    with SyncPool(policy(backend, wall_s_per_call=0.3)) as own, own.session(source, 0) as session:
        reply = session.reset()
    assert reply.outcome is Outcome.TIMED_OUT
    assert reply.detail.startswith("wall: ")
    assert "limit 0.3 s" in reply.detail


def test_memory_without_end_is_over_memory(step):
    assert step("a = []\nwhile True: a.append(bytearray(1 << 20))").outcome is Outcome.OVER_MEMORY
    assert step("bytearray(1 << 40)").outcome is Outcome.OVER_MEMORY


def test_memory_within_the_limit_is_given(step):
    assert step("x = bytearray(40 << 20)\nx[::4096] = b'1' * len(x[::4096])").ok


def test_print_is_harmless_and_a_long_reply_is_over_output(step):
    assert step("for _ in range(10_000): print('x' * 100)").ok
    reply = step("return 'x' * (10 << 20), 1.0, True, False, {}")
    assert reply.outcome is Outcome.OVER_OUTPUT
    assert reply.observation == ""
    assert "limit 65536" in reply.detail


def test_a_reply_of_just_the_limit_passes(step):
    reply = step(f"return 'x' * {64 << 10}, 1.0, True, False, {{}}")
    assert reply.ok
    assert len(reply.observation) == 64 << 10
    assert step(f"return 'x' * {(64 << 10) + 1}, 1, True, False, {{}}").outcome is (
        Outcome.OVER_OUTPUT
    )


@pytest.mark.parametrize("code", [0, 3, 137, 139])
def test_leaving_silently_is_a_crash_with_its_code(step, code):
    reply = step(f"import os; os._exit({code})")
    assert reply.outcome is Outcome.CRASHED
    assert reply.detail == f"left by itself with code {code}"


def test_abort_is_a_crash_that_names_a_signal(step):
    reply = step("import os; os.abort()")
    assert reply.outcome is Outcome.CRASHED
    # The first process of a PID namespace ends by the second signal that abort() tries.
    assert reply.detail in ("killed by SIGABRT", "killed by SIGSEGV")


def test_a_segmentation_fault_is_a_crash_that_names_it(step):
    # A code object whose constants are missing reads outside its tuple.
    body = """
    import types
    def f(): return "x"
    types.FunctionType(f.__code__.replace(co_code=bytes((100, 250)) * 8 + bytes((83, 0)),
                                          co_consts=()), {})()
    """
    reply = step(body)
    assert reply.outcome is Outcome.CRASHED
    assert reply.detail.startswith("killed by SIG")


@pytest.mark.parametrize(
    "body",
    [
        "import os\nos.write({fd}, b'garbage garbage garbage' * 10)",
        "import os\nos.write({fd}, bytes(64))",
        "import os\nos.write({fd}, b'\\xff' * 64)",
        "import os, struct\nos.write({fd}, struct.pack('<IIBBdI', 18, 99, 0, 4, 9.0, 0))",
        "import os, struct\nos.write({fd}, struct.pack('<IIBBdI', 18, 3, 99, 4, 9.0, 0))",
        "import os, struct\nos.write({fd}, struct.pack('<IIBBdI', 18, 3, 0, 4, float('inf'), 0))",
        "import os, struct\nos.write({fd}, struct.pack('<IIBBdI', 19, 3, 0, 4, 1.0, 1) + b'\\xff')",
        "import os, struct\nos.write({fd}, struct.pack('<IIBBdI', 18, 3, 0, 4, 1.0, 9))",
        "import os, struct\nos.write({fd}, struct.pack('<IIBBdI', 18, 3, 0, 0, 0.0, 0))",
    ],
)
def test_garbage_on_the_reply_pipe_is_a_protocol_violation(step, fd, body):
    reply = step(body.format(fd=fd) + "\nwhile True: pass")
    assert reply.outcome in (Outcome.PROTOCOL_VIOLATION, Outcome.OVER_OUTPUT)
    assert reply.reward is None


def test_a_forged_reply_speaks_for_this_call_alone(pool, fd):
    body = f"import os, struct\n  os.write({fd}, struct.pack('<IIBBdI', 18, 3, 0, 5, 9.0, 0))"
    source = (
        "class AEnv:\n def reset(self, s): return 'x', {}\n def step(self, a):\n  "
        f"{body}\n  return 'x', 0.0, False, False, {{}}\n"
    )
    with pool.session(source, 0) as session:
        session.reset()
        session.step("a")  # at most what this environment said about itself
        deadline = time.monotonic() + 10
        while (reply := session.step("b")).outcome is not Outcome.PROTOCOL_VIOLATION:
            assert time.monotonic() < deadline
        assert session.reset() == reply


def test_a_frame_before_the_call_ends_the_session(pool, fd):
    source = (
        "import os, struct\n"
        f"class AEnv:\n def reset(self, s):\n  os.write({fd}, b'x' * 100)\n  return 'x', {{}}\n"
    )
    with pool.session(source, 0) as session:
        outcomes = {session.reset().outcome, session.step("a").outcome, session.reset().outcome}
    assert outcomes <= {Outcome.PROTOCOL_VIOLATION, Outcome.OVER_OUTPUT, Outcome.FINISHED}
    assert Outcome.PROTOCOL_VIOLATION in outcomes or Outcome.OVER_OUTPUT in outcomes


def test_closing_its_descriptors_ends_the_call_at_once(step):
    begun = time.monotonic()
    reply = step("import os, time\nos.closerange(0, 100)\ntime.sleep(1000)")
    assert reply.outcome in (Outcome.PROTOCOL_VIOLATION, Outcome.CRASHED)
    assert time.monotonic() - begun < 5, "not only at the wall limit"


def test_deep_recursion_harms_only_itself(step):
    reply = step("def f(n): return f(n + 1)\nf(0)")
    assert reply.outcome is Outcome.EXCEPTION
    assert "RecursionError" in reply.detail
    body = "x = []\nfor _ in range(10**5): x = [x]\nrepr(x)"
    assert step(body).outcome in (Outcome.EXCEPTION, Outcome.CRASHED)


def test_a_huge_action_arrives_whole_and_a_larger_one_is_refused(step, pool):
    reply = step("return str(len(action)), 1.0, True, False, {}", text="x" * (64 << 10))
    assert reply.observation == str(64 << 10)
    with (
        pool.session(GUESS, 0) as session,
        pytest.raises(ValueError, match="65537 bytes"),
    ):
        session.step("x" * ((64 << 10) + 1))


def test_a_source_larger_than_a_pipe_arrives_whole(pool):
    source = f"#{'x' * (200 << 10)}\nclass AEnv:\n def reset(self, s): return 'here'\n"
    with pool.session(source, 0) as session:
        assert session.reset().observation == "here"


def test_unicode_travels_exactly(step):
    text = "näh \u200d \U0001f600 \0 \r\n \u2028 ẞ"
    reply = step("return action, 1.0, True, False, {}", text=text)
    assert reply.observation == text
