"""The Gymnasium adapter: what a user of Gymnasium may expect of it."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason='needs pip install "spade-async[gymnasium]"')

import gymnasium
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from spade_async.environment.gymnasium_adapter import EnvironmentFault, JailedEnv, JailText
from spade_async.environment.gymnasium_vector import JailedVectorEnv
from spade_async.errors import SandboxError
from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.types import Outcome

pytestmark = pytest.mark.timeout(120)

SOURCE = """
class SumEnv:
    def reset(self, seed=None):
        self.left = 2
        self.a, self.b = random.Random(seed).sample(range(100), 2)
        return f"{self.a} + {self.b}?", {}
    def step(self, action):
        if action == "hang":
            while True: pass
        if action == "raise":
            raise ValueError("no such action: \u00e9")
        self.left -= 1
        right = action == str(self.a + self.b)
        return "right" if right else "wrong", float(right), right, self.left == 0, {}
    def hint(self):
        return f"it is {self.a + self.b}"
"""


@pytest.fixture(scope="module")
def pool():
    with SyncPool(SandboxPolicy(num_workers=8, spares=2, wall_s_per_call=20, cpu_s_per_call=0.4,
                                load_wall_s=20)) as pool:  # fmt: skip
        yield pool


@pytest.fixture
def env(pool):
    made = JailedEnv(pool, SOURCE)
    yield made
    made.close()
    assert pool.stats()["live"] == 0


def answer(observation):
    a, b = observation.rstrip("?").split(" + ")
    return str(int(a) + int(b))


def test_it_passes_the_checker_of_gymnasium(env):
    check_env(env, skip_render_check=True)  # warnings are errors here


def test_an_episode_is_that_of_a_session_with_the_same_seed(pool, env):
    checked = gymnasium.wrappers.PassiveEnvChecker(env)
    observation, info = checked.reset(seed=7)
    assert info == {}
    with pool.session(SOURCE, 7) as session:
        assert session.reset().observation == observation
    assert checked.step("x") == ("wrong", 0.0, False, False, {})
    assert env.last_reply.report.wall_s > 0
    assert checked.step("x") == ("wrong", 0.0, False, True, {})
    observation, _ = checked.reset()
    assert checked.step(answer(observation)) == ("right", 1.0, True, False, {})


def test_one_seed_at_the_start_fixes_all_episodes_after_it(env):
    def run():
        return [env.reset(seed=5)[0]] + [env.reset()[0] for _ in range(4)]

    first = run()
    assert run() == first
    assert len(set(first)) > 1


def test_options_give_the_hint_or_another_source_and_no_others_pass(env):
    observation, info = env.reset(seed=1, options={"hint": True})
    assert info == {"hint": f"it is {answer(observation)}"}
    other = "class OtherEnv:\n def reset(self, seed=None): return 'other', {}\n"
    assert env.reset(options={"source": other}) == ("other", {})
    assert env.reset(options={"hint": True})[1] == {"hint": ""}  # it has none; the source stays
    with pytest.raises(ValueError, match="'hnt': known are hint, source"):
        env.reset(options={"hnt": True})


def test_a_fault_of_the_environment_is_an_exception_with_the_reply_and_no_reward(env):
    env.reset(seed=1)
    with pytest.raises(EnvironmentFault, match=r"step: exception: .*no such action: é") as caught:
        env.step("raise")
    assert caught.value.reply.outcome is Outcome.EXCEPTION
    assert caught.value.reply.reward is None
    assert not isinstance(caught.value, SandboxError)
    env.reset(seed=1)
    for _ in range(2):
        with pytest.raises(EnvironmentFault) as caught:
            env.step("hang")
        assert caught.value.reply.outcome is Outcome.TIMED_OUT
    env.reset(seed=1)
    assert env.step("x")[0] == "wrong"
    for source in ("x = (", "class AEnv:\n def reset(self, seed): return 3, {}\n"):
        with pytest.raises(EnvironmentFault, match=r"load: exception|reset: bad_value"):
            env.reset(options={"source": source})


def test_steps_out_of_order_say_so(pool, env):
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("x")
    observation, _ = env.reset(seed=1)
    assert env.step(answer(observation))[2]
    with pytest.raises(EnvironmentFault, match="after the episode ended"):
        env.step("x")
    env.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("x")
    assert env.reset(seed=1)[0] == observation  # closed means that the worker was given back


def test_spaces_hold_what_the_jail_can_carry(pool, env):
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Text)
    assert space.max_length == pool.policy.action_bytes
    assert env.observation_space.max_length == pool.policy.reply_bytes
    small = JailText(4)
    assert "" in small
    assert "äö" in small
    assert "äöü" not in small  # six bytes
    assert "\ud800" not in small
    assert 5 not in small
    small.seed(1)
    assert all(small.sample() in small for _ in range(100))
    env.reset(seed=1)
    with pytest.raises(ValueError, match="at most 65536"):
        env.step("x" * 65537)
    assert env.step("x")[0] == "wrong"


def test_a_vector_steps_all_at_once_and_a_failure_stays_at_its_place(pool):
    envs = JailedVectorEnv(pool, [SOURCE] * 4)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observations, infos = envs.reset(seed=3)
    assert infos == {}
    assert observations in envs.observation_space
    for at, text in enumerate(observations):
        with pool.session(SOURCE, 3 + at) as session:
            assert session.reset().observation == text
    texts, rewards, ends, cuts, infos = envs.step(["x", answer(observations[1]), "hang", "raise"])
    assert texts == ("wrong", "right", "", "")
    assert rewards[:2].tolist() == [0.0, 1.0]
    assert np.isnan(rewards[2:]).all()
    assert ends.tolist() == [False, True, False, False]
    assert cuts.tolist() == [False, False, True, True]
    assert infos["outcome"][2:].tolist() == ["timed_out", "exception"]
    assert infos["_outcome"].tolist() == [False, False, True, True]
    assert "no such action" in infos["detail"][3]
    # The next step begins the three that ended and steps the one that goes on.
    texts, rewards, ends, cuts, infos = envs.step(["x", "-", "-", "-"])
    assert texts[0] == "wrong"
    assert all(text.endswith("?") for text in texts[1:])
    assert rewards.tolist() == [0.0] * 4
    assert cuts.tolist() == [True, False, False, False]
    assert infos == {}
    envs.close()
    envs.close()
    assert pool.stats()["live"] == 0


def test_a_vector_is_the_same_for_the_same_seed(pool):
    def run():
        envs = JailedVectorEnv(pool, [SOURCE] * 3)
        seen = [envs.reset(seed=11)]
        seen += [envs.step(["1"] * 3)[0] for _ in range(6)]
        envs.close()
        return seen

    assert run() == run()


def test_a_vector_refuses_what_it_cannot_do(pool):
    with pytest.raises(ValueError, match="0 sources"):
        JailedVectorEnv(pool, [])
    with pytest.raises(ValueError, match="9 sources for 8 workers"):
        JailedVectorEnv(pool, [SOURCE] * 9)
    envs = JailedVectorEnv(pool, [SOURCE, "x = ("])
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(["a", "b"])
    with pytest.raises(EnvironmentFault, match="environment 1: exception"):
        envs.reset(seed=1)
    with pytest.raises(ValueError, match="1 actions for 2"):
        envs.step(["a"])
    with pytest.raises(ValueError, match="3 seeds for 2"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="knows none"):
        envs.reset(options={"hint": True})
    envs.close()


def test_without_gymnasium_the_import_says_what_to_install():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "try:\n    import spade_async.environment.gymnasium_adapter\n"
        "except ImportError as error:\n    print(error)\n"
    )
    for module in ("gymnasium_adapter", "gymnasium_vector"):
        text = code.replace("gymnasium_adapter", module)
        ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert 'pip install "spade-async[gymnasium]"' in ran.stdout, ran.stderr
