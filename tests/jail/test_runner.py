"""The runner by itself, in a plain interpreter: what other backends and templates rely on."""

import json
import subprocess
import sys

import pytest

from spade_async import _sandbox_rs
from tests.support.interpreters import other_interpreters

pytestmark = pytest.mark.timeout(60)

# The runner takes standard output away, so that the answer leaves by its number. Sources of the
# tests themselves run here: trusted ones.
HEAD = """
import json, os, sys
space = {"__name__": "spade_runner"}
exec(compile(sys.stdin.read(), "<runner>", "exec"), space)
prepare = space["prepare"]
def answer(value):
    os.write(1, json.dumps(value).encode())
    os._exit(0)
"""


def run(body):
    """What `body`, run after the runner's text in a fresh interpreter, answers."""
    done = subprocess.run(
        [sys.executable, "-S", "-s", "-P", "-B", "-c", HEAD + body],
        input=_sandbox_rs.RUNNER_SOURCE, capture_output=True, text=True, timeout=50, check=False,
        env={"PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


GOOD = """
import sys, inspect, linecache
class FirstEnv:
    def __init__(self, max_turns):
        self.turns = max_turns
    def reset(self, seed=None):
        return f"{seed} {self.turns} {random.random()}"
    def step(self, action):
        if action == "where":
            return f"{sys._getframe().f_code.co_filename} {sys._getframe().f_lineno}", 1, 0, 1, {}
        if action == "source":
            return inspect.getsource(FirstEnv), 0.0, False, False, {}
        if action == "cache":
            return repr(sorted(name for name in linecache.cache if "env" in name)), 0, 0, 0, {}
        raise KeyError(action)
    def hint(self):
        return __name__
"""


def test_handlers_come_in_the_documented_order_and_do_what_they_say():
    load, reset, step, hint, order, late = run(
        f"""
load, reset, step, hint, compile_source, load_code, trial, branch, parts = prepare([], [], 25)
out = [load({GOOD!r}, "ff"), reset("10"), step("where"), hint(), step("x"), trial.__name__]
answer(out)
"""
    )
    assert load == [0, "", None, False, False, ""]
    assert reset[:2] == [0, f"16 25 {__import__('random').Random(16).random()}"]
    assert step == [0, "<environment> 10", 1.0, False, True, ""]
    assert hint[:2] == [0, "environment"]
    assert order[0] == 2
    assert "order: step after the episode ended" in order[5]
    assert late == "trial"


@pytest.mark.parametrize(
    "source",
    [
        GOOD, "x = (", "1 / 0", "class AEnv:\n def __init__(self): 1 / 0", "\0", "import nowhere",
        "def f():\n raise ValueError('deep')\n\nf()", "x = 3", "raise SystemExit",
        "from __future__ import annotations\nclass AEnv:\n x: no = 1\n def reset(self, s): f()",
    ],
)  # fmt: skip
def test_a_source_and_its_compiled_form_give_the_same(source):
    both = run(
        f"""
import gc
whole = prepare([], [], 25)
halves = prepare([], [], 25)
source = {source!r}
def play(handlers, loaded):
    load, reset, step, hint, compile_source, load_code, trial, branch, parts = handlers
    out = [loaded]
    if loaded[0] == 0:
        out += [reset("1"), step("where"), reset("1"), step("source"), step("cache"), step("no")]
    return out
first = play(whole, whole[0](source, "1"))
code = halves[4](source)
answer([first, play(halves, code if type(code) is tuple else halves[5](code, "1"))])
"""
    )
    assert both[0] == both[1]


def test_compiling_runs_nothing_of_the_source():
    kind, left = run(
        """
source = "import sys\\nsys.ran = True\\n@print\\nclass AEnv: sys.ran = True"
code = prepare([], [], 25)[4](source)
answer([type(code).__name__, hasattr(sys, "ran")])
"""
    )
    assert (kind, left) == ("bytes", False)


def test_it_plays_an_episode_in_any_interpreter_that_has_no_module_of_ours():
    body = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if "sandbox" in name or "spade" in name:
            raise AssertionError(name)
sys.meta_path.insert(0, Refuse())
load, reset, step, hint, *_ = prepare([], [], 25)
mine = [name for name in sys.modules if "sandbox" in name or "spade" in name]
answer([mine, load({GOOD!r}, "ff"), reset("10"), step("where"), hint()])
"""
    said = []
    for python in (sys.executable, *other_interpreters().values()):
        done = subprocess.run(
            [python, "-I", "-S", "-B", "-c", HEAD + body], input=_sandbox_rs.RUNNER_SOURCE,
            capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (python, done.stderr[-2000:])
        said.append(json.loads(done.stdout))
    assert said[0][0] == []
    assert said[0][1:3] == [
        [0, "", None, False, False, ""],
        [0, f"16 25 {__import__('random').Random(16).random()}", None, False, False, ""],
    ]
    assert all(one == said[0] for one in said)


def test_a_trial_leaves_no_trace_that_an_environment_could_see():
    three, one, none = run(
        """
import gc
source = '''
import gc, sys
COUNTS = repr((gc.get_count(), len(gc.get_objects())))
SEEN = repr((
    gc.isenabled(), sorted(sys.modules), list(globals()), random.getstate()[2],
    sorted(c.__name__ for c in object.__subclasses__()), len(re._cache),
))
class AEnv:
    def reset(self, seed=None): return COUNTS + "|" + SEEN
'''
def child(trials):
    read, write = os.pipe()
    if os.fork() == 0:
        for _ in range(trials):
            assert trial()[0] == 0
        assert load_code(code, "1")[0] == 0
        os.write(write, reset("1")[1].encode())
        os._exit(0)
    os.close(write)
    return b"".join(iter(lambda: os.read(read, 65536), b"")).decode()
load, reset, step, hint, compile_source, load_code, trial, branch, parts = prepare([], [], 25)
code = compile_source(source)
gc.freeze()
answer([child(3), child(1), child(0)])
"""
    )
    assert three == one, "not even in the counters of the collector"
    assert one.partition("|")[2] == none.partition("|")[2]
    assert "WarmEnv" not in none


def test_a_branch_draws_from_its_own_seed_and_goes_on():
    same, other, plain = run(
        """
source = '''
class AEnv:
    def reset(self, seed=None): self.n = 0; return ""
    def step(self, action): self.n += 1; return f"{self.n} {random.random()}", 0, 0, 0, {}
'''
load, reset, step, hint, compile_source, load_code, trial, branch, parts = prepare([], [], 25)
out = []
for seed in ("7", "8", None):
    load(source, "1"); reset("1"); step("a")
    if seed: branch(seed)
    out.append(step("a")[1])
answer(out)
"""
    )
    assert same.startswith("2 ")
    assert len({same, other, plain}) == 3
    assert same == f"2 {__import__('random').Random(7).random()}"


def test_what_prepare_cannot_do_is_an_error_with_a_next_move():
    unknown, tier, package = run(
        """
out = []
for call in (lambda: prepare([], [], 25, options={"tier": []}),
             lambda: prepare([], [], 25, options={"tiers": ["network"]}),
             lambda: prepare(["no_such_module"], [], 25, options={"profile": "mine"})):
    try: call()
    except Exception as error: out.append(f"{type(error).__name__}: {error}")
answer(out)
"""
    )
    assert unknown == "ValueError: the runner knows no option or tier 'tier'"
    assert "'network'" in tier
    assert package.startswith("ImportError: profile 'mine': package 'no_such_module' cannot be ")
    assert "install it" in package
