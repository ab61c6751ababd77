"""Pools and environments of the contract suite."""

from spade_async.sandbox import SandboxPolicy

BACKENDS = ("native", "nsjail", "subprocess")
JAILED = ("native", "nsjail")

GUESS = """
class GuessEnv:
    def __init__(self, max_turns):
        self.max_turns = max_turns
    def reset(self, seed=None):
        self.secret, self.turn = random.randint(0, 10**9), 0
        return f"turns {self.max_turns}", {"secret": self.secret}
    def step(self, action):
        self.turn += 1
        right = action == str(self.secret)
        return "yes" if right else "no", 1.0 if right else -0.5, right, self.turn >= 3, {}
    def hint(self):
        return str(self.secret)
"""


def policy(backend: str, **changes: object) -> SandboxPolicy:
    """Small limits with time to spare: the machine may be busy."""
    values: dict[str, object] = {
        "num_workers": 4, "spares": 2, "wall_s_per_call": 6.0, "cpu_s_per_call": 0.5,
        "load_wall_s": 6.0, "memory_bytes": 64 << 20, "backend": backend,
        "allow_unsafe": backend == "subprocess",
    }  # fmt: skip
    return SandboxPolicy(**{**values, **changes})  # type: ignore[arg-type]
