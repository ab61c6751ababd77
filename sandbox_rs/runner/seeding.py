"""Fixes what chance gives, from the seed of a call: part of the runner.

Not fixed, and never can be here: `os.urandom`, `secrets`, `uuid4`, `id` and, without the virtual
clock, time.
"""

import os
import random
import sys


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
