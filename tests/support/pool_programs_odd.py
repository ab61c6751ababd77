"""More programs in the style of released pools: helpers, aliases, guarded imports, numpy."""

from __future__ import annotations

import random

from tests.support.pool_program import PoolProgram, box

# Data class, heap, statistics and a class that comes after the one that counts.
HELPERS = """from dataclasses import dataclass, field
import heapq


@dataclass(order=True)
class Job:
    length: int
    name: str = field(compare=False)


class SchedulingEnv:
    def __init__(self, num_jobs: int = 4, max_turns: int = 5):
        self.num_jobs, self.max_turns = num_jobs, max_turns

    def reset(self, seed=None, options=None):
        rng = random.Random(seed)
        lengths = rng.sample(range(1, 30), self.num_jobs)
        self.jobs = [Job(n, chr(65 + i)) for i, n in enumerate(lengths)]
        shown = ", ".join(f"{j.name}={j.length}" for j in self.jobs)
        return f"Order of least mean waiting for {shown} (mean {statistics.mean(lengths)})", {}

    def solution(self):
        heap = []
        for job in self.jobs:
            heappush(heap, job)
        return "".join(heappop(heap).name for _ in self.jobs)

    def step(self, action):
        right = self.solution() in action
        return f"{'right' if right else 'wrong'} {{done}}", 1.0 * right, True, False, {}


class LaterEnv:
    pass
"""


def _jobs(seed: int) -> list[str]:
    lengths = random.Random(seed).sample(range(1, 30), 4)
    return [box("".join(sorted("ABCD", key=lambda name: lengths["ABCD".index(name)])))]


# A seed under another name and place; what `max_turns` is cannot be set.
OTHER_NAMES = """class ParityEnv:
    @property
    def max_turns(self):
        return 2

    def reset(self, s):
        rng = random.Random(s)
        self.bits = [rng.randint(0, 1) for _ in range(12)]
        return "Parity of each half of " + "".join(map(str, self.bits)) + ", e.g. 01?", {}

    def step(self, action):
        want = f"{sum(self.bits[:6]) % 2}{sum(self.bits[6:]) % 2}"
        return "over", float(action == "\\\\boxed{%s}" % want), True, False, {}
"""


def _parity(seed: int) -> list[str]:
    rng = random.Random(seed)
    bits = [rng.randint(0, 1) for _ in range(12)]
    return [box(f"{sum(bits[:6]) % 2}{sum(bits[6:]) % 2}")]


# A guarded import of what is not there; module-level tables; a loss that costs.
GUARDED = """try:
    import sympy
except ImportError:
    sympy = None
PRIMES = [p for p in range(2, 60) if all(p % q for q in range(2, p))]


class NextPrimeEnv:
    def reset(self, seed=None):
        self.index = random.Random(seed).randrange(len(PRIMES) - 1)
        return f"The prime after {PRIMES[self.index]}?", {}

    def step(self, action):
        match = re.search(r"boxed\\{\\s*(\\d+)\\s*\\}", action)
        if match is None:
            return "no number", -0.5, True, False, {}
        right = int(match.group(1)) == PRIMES[self.index + 1]
        return "over", 1.0 if right else -1.0, True, False, {}
"""


def _prime(seed: int) -> list[str]:
    primes = [p for p in range(2, 60) if all(p % q for q in range(2, p))]
    return [box(primes[random.Random(seed).randrange(len(primes) - 1) + 1])]


# The class is given its name at the end; the observation has braces, LaTeX and other scripts.
ALIASED = '''class Vault:
    """Open the lock: 3 digits."""

    def reset(self, seed: Optional[int] = None) -> Tuple[str, Dict]:
        self.code = "".join(str(d) for d in random.Random(seed).choices(range(10), k=3))
        self.known = defaultdict(int)
        return f"Größe {{3}} · $\\\\frac{{1}}{{2}}$ · code is {self.code[::-1]} reversed ✓", {}

    def step(self, action: str):
        self.known[action] += 1
        won = self.code in action
        return json.dumps(dict(self.known)), float(won), won, not won, {}


VaultEnv = Vault
'''


def _vault(seed: int) -> list[str]:
    return [box("".join(str(d) for d in random.Random(seed).choices(range(10), k=3)))]


NUMPY = """import numpy as np


class MatrixEnv:
    def reset(self, seed=None):
        self.m = np.random.default_rng(seed).integers(0, 9, size=(2, 2))
        return f"Trace of {self.m.tolist()}?", {}

    def step(self, action):
        right = np.bool_(action == "\\\\boxed{%d}" % np.trace(self.m))
        return "over", np.float32(right), np.bool_(True), np.bool_(False), {}
"""


def _trace(seed: int) -> list[str]:
    import numpy as np

    return [box(int(np.trace(np.random.default_rng(seed).integers(0, 9, size=(2, 2)))))]


ODD: dict[str, PoolProgram] = {
    "helpers": PoolProgram(HELPERS, _jobs),
    "other names": PoolProgram(OTHER_NAMES, _parity),
    "guarded import": PoolProgram(GUARDED, _prime, lost=(box(4), -1.0)),
    "aliased": PoolProgram(ALIASED, _vault),
    "numpy": PoolProgram(NUMPY, _trace, profile="numpy"),
}
