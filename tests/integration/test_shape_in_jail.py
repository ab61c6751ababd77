"""Features of syntax trees, taken in the real jail: what counts as alike, and hostile texts."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from spade_async.environment.session import JailUse
from spade_async.environment.shape import MAX_FEATURES, shape_features
from spade_async.grounding.signature import minhash, similarity
from spade_async.sandbox import Pool, SandboxPolicy
from tests.support import environments

pytestmark = pytest.mark.timeout(60)
POLICY = SandboxPolicy(num_workers=2, spares=1)

PROGRAM = '''
import random

class SumEnv:
    """Adds."""
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.numbers = [rng.randint(1, 9) for _ in range(3)]
        return f"Sum of {self.numbers}", {}
    def step(self, action):
        right = action == str(sum(self.numbers))
        return "done", 1.0 if right else 0.0, True, False, {}
'''
RENAMED = (
    PROGRAM.replace("numbers", "values").replace("rng", "source").replace("SumEnv", "TotalEnv")
    .replace("right", "won").replace("Sum of", "Add up").replace("(1, 9)", "(10, 99)")
    .replace('    """Adds."""\n', "    # another comment\n")
)  # fmt: skip
LARGEST = PROGRAM.replace("sum(", "max(")


def features(*sources: str) -> list[np.ndarray | None]:
    async def all_of_them() -> list[np.ndarray | None]:
        async with Pool(POLICY) as pool:
            use = JailUse()
            return [await shape_features(pool, source, use) for source in sources]

    return asyncio.run(all_of_them())


def test_names_and_literals_do_not_count_and_what_is_called_does() -> None:
    one, renamed, largest, other = features(PROGRAM, RENAMED, LARGEST, environments.MULTI_TURN)
    assert PROGRAM != RENAMED
    assert np.array_equal(one, renamed)
    exact = len(np.intersect1d(one, largest)) / len(np.union1d(one, largest))
    assert 0.8 < exact < 1.0, "one name of a builtin differs"
    # Standard error of 120 slots at this similarity: about 0.03.
    assert abs(similarity(minhash(one), minhash(largest)) - exact) < 0.12
    assert similarity(minhash(one), minhash(other)) < 0.6


def test_hostile_texts_have_no_features_and_end_nothing() -> None:
    hostile = ["(" * 60_000, "x = (", "\0", "a." * 20_000 + "a", "1+" * 30_000 + "1"]
    *bad, good = features(*hostile, PROGRAM)
    assert all(found is None for found in bad)
    assert good is not None


def test_a_large_program_is_bounded() -> None:
    lines = [f"x{i} = f{i}(g{i}.h{i}, {i})" for i in range(2000)]
    (found,) = features("\n".join(lines))
    assert found is not None
    assert len(found) == MAX_FEATURES
    assert np.all(np.diff(found.astype(np.int64)) > 0)
