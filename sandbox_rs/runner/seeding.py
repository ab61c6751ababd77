"""Fixes what chance gives, from the seed of a call: part of the runner.

Not fixed, and never can be here: `os.urandom`, `secrets`, `uuid4`, `id` and, without the virtual
clock, time.
"""

import gc
import os
import random
import sys

if False:  # for readers and linters: these are above in the same text
    from values import FINISHED

TRUSTED = """
class WarmEnv:
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.numbers = [rng.randint(1, 9) for _ in range(3)]
        if "np" in globals():
            self.table = np.arange(9.0).reshape(3, 3) + np.random.rand(3)
        return f"Sum {self.numbers}", {}
    def step(self, action):
        match = re.search(r"boxed\\{(.*?)\\}", action)
        try:
            value = int(match.group(1) if match else action)
        except ValueError:
            return "not a number", 0.0, False, False, {}
        return "done", 1.0 if value == sum(self.numbers) else 0.0, True, False, {}
"""


def make_seeding(clock):
    """The function that fixes all that can be fixed of a call, from its seed.

    A fork would share the state of the global generators, or get a new one from the kernel. What
    is made without a seed (`random.Random()`, `numpy.random.default_rng()`) draws from a further
    generator, which the seed fixes as well; so do the names of temporary files.
    """
    source, pending = random.Random(), None
    draw_now, seed_random, seed_own = source.getrandbits, random.seed, random.Random.seed
    numpy, tempfile = sys.modules.get("numpy"), sys.modules.get("tempfile")

    def draw(bits):
        nonlocal pending
        if pending is not None:
            source.seed(pending ^ 0x5EED)
            pending = None
        return draw_now(bits)

    def seed(self, a=None, version=2):
        seed_own(self, draw(256) if a is None else a, version)

    random.Random.seed = seed
    random.seed = random._inst.seed
    if numpy is not None:
        numpy.random.bit_generator.randbits = draw
        seed_numpy = numpy.random.seed

    def seed_all(number):
        nonlocal pending
        seed_random(number)
        pending = number
        if numpy is not None:
            seed_numpy(number % 2**32)
        if tempfile is not None:
            tempfile._name_sequence = names = tempfile._RandomNameSequence()
            names._rng, names._rng_pid = random.Random(number), os.getpid()

    def with_clock(number):
        clock.restart()
        seed_all(number)

    return seed_all, seed_all if clock is None else with_clock


def make_trial(make_handlers):
    """The function that runs one episode of the trusted environment above; see `prepare`."""
    code = make_handlers()[4](TRUSTED)

    def trial():
        _, reset, step, _, _, load_code, _ = make_handlers()
        for call, *values in (
            (load_code, code, "1"), (reset, "1"), (step, "\\boxed{x}"), (step, "3"),
        ):  # fmt: skip
            reply = call(*values)
            if reply[0] != FINISHED:
                break
        sys.modules.pop("environment", None)
        del reset, step, load_code, call
        gc.collect()
        gc.freeze()  # also sets the counters back, so that collections come when they would have
        return reply

    return trial
