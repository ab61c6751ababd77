"""Templates of one source: loaded once, episodes are copies of it. Both fronts."""

import pytest

from spade_async.errors import SandboxBusy, SandboxError
from spade_async.sandbox import SandboxPolicy
from spade_async.types import Outcome
from tests.support.both_fronts import FRONTS, Front

pytestmark = [pytest.mark.timeout(120), pytest.mark.parametrize("front", FRONTS)]

POLICY = SandboxPolicy(num_workers=16, spares=1, wall_s_per_call=20, load_wall_s=20)
SOURCE = """
LOADED = [0]
LOADED[0] += 1
class CountEnv:
    made = 0
    def __init__(self):
        CountEnv.made += 1
        self.words = [f"w{n}" for n in range(200)]
        self.started = 0
    def reset(self, seed=None):
        self.started += 1
        self.rng = random.Random(seed)
        self.secret = self.rng.choice(self.words)
        return f"{self.rng.random()} {random.random()} {random.Random().random()}", {}
    def step(self, action):
        counts = (LOADED[0], CountEnv.made, self.started)
        text = f"{counts} {self.secret} {random.random()} {self.rng.sample(self.words, 5)}"
        self.words[0] = action
        return text, self.rng.random(), action == "end", False, {}
    def hint(self):
        return self.secret
"""


def played(session):
    """Everything an episode says."""
    with session:
        replies = [session.loaded, session.reset(), session.hint()]
        replies += [session.step(word) for word in ("a", "b", "end")]
        return [
            (r.outcome, r.observation, r.reward, r.terminated, r.truncated, r.detail)
            for r in replies
        ]


def test_episodes_of_a_template_equal_those_of_fresh_sessions_byte_for_byte(front):
    with Front(front, POLICY) as pool, pool.source_template(SOURCE) as template:
        assert template.loaded.ok
        for seed in (0, 1, 7, 2**200):
            fresh = played(pool.session(SOURCE, seed))
            assert [outcome for outcome, *_ in fresh] == [Outcome.FINISHED] * 6
            assert played(template.session(seed)) == fresh
            assert played(template.session(seed)) == fresh  # and as often as one likes
        assert fresh != played(template.session(8))


def test_a_source_is_loaded_once_and_its_episodes_do_not_see_each_other(front):
    with Front(front, POLICY) as pool, pool.source_template(SOURCE) as template:
        sessions = [template.session(seed) for seed in range(6)]
        for session in sessions:
            assert session.loaded.ok
            assert session.reset().ok
        texts = [session.step("mine").observation for session in sessions]
        # Module and constructor ran once for all; each has been reset once by itself.
        assert all(text.startswith("(1, 1, 1) ") for text in texts)
        stats = pool.stats()
        assert stats["forked"] == 6
        assert stats["code_hits"] + stats["code_misses"] == 1
        assert all("mine" not in text for text in texts)


def test_a_constructor_that_fails_is_told_by_the_template(front):
    sources = {
        "class AEnv:\n def __init__(self): raise ValueError('no')\n": Outcome.EXCEPTION,
        "x = (": Outcome.EXCEPTION,
        "import os\nos._exit(2)\n": Outcome.CRASHED,
        "class Nothing: pass\n": Outcome.BAD_VALUE,
    }
    with Front(front, POLICY) as pool:
        for source, outcome in sources.items():
            with pool.source_template(source) as template:
                assert template.loaded.outcome is outcome
                session = template.session(1)
                assert session.loaded == template.loaded
                assert session.reset() == template.loaded
                session.close()
        assert pool.stats()["live"] == 0


def test_a_template_may_be_closed_while_its_episodes_run(front):
    with Front(front, POLICY) as pool:
        template = pool.source_template(SOURCE)
        expected = played(template.session(3))
        running = [template.session(3) for _ in range(3)]
        template.close()
        template.close()
        assert pool.stats()["live"] == 3
        assert [played(session) for session in running] == [expected] * 3
        with pytest.raises(SandboxError, match="not open"):
            template.session(4)
        assert pool.stats()["live"] == 0


def test_an_episode_that_ends_badly_leaves_the_template_as_it_was(front):
    source = SOURCE.replace(
        'counts = (', 'if action == "die":\n            import os\n            os._exit(1)\n'
        '        counts = ('
    )  # fmt: skip
    with Front(front, POLICY) as pool, pool.source_template(source) as template:
        expected = played(template.session(3))
        with template.session(3) as session:
            assert session.reset().ok
            assert session.step("die").outcome is Outcome.CRASHED
        assert played(template.session(3)) == expected


def test_no_more_episodes_live_than_the_limits_allow(front):
    policy = SandboxPolicy(num_workers=8, spares=1, branches=3, load_wall_s=20)
    with Front(front, policy) as pool, pool.source_template(SOURCE) as template:
        sessions = [template.session(seed) for seed in range(3)]
        with pytest.raises(SandboxBusy, match="branches"):
            template.session(9)
        sessions.pop().close()
        assert template.session(9).reset().ok


def test_the_virtual_clock_of_an_episode_is_that_of_a_fresh_session(front):
    from spade_async.sandbox_profiles import Profile

    source = """
import time
class ClockEnv:
    def __init__(self):
        self.made = time.time()
    def reset(self, seed=None):
        return f"{self.made} {time.time()} {time.monotonic()}", {}
    def step(self, action):
        return f"{time.time()} {time.perf_counter()}", 0.0, action == "end", False, {}
    def hint(self):
        return f"{time.time()}"
"""
    policy = SandboxPolicy(
        num_workers=4, spares=1, load_wall_s=20,
        profiles=(Profile(name="clocked", virtual_clock=True),),
    )  # fmt: skip
    with Front(front, policy) as pool, pool.source_template(source) as template:
        assert played(template.session(3)) == played(pool.session(source, 3))
