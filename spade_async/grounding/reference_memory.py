"""The reference's memory: append, oldest out, no look at copies (`run.compat = "reference"`).

Capacity, eviction and retrieval as in its `env_memory.py`; only its unseeded generator is not
reproduced. Source: SPADE reference 7.1.
"""

from __future__ import annotations

import random

from spade_async.grounding.entry import Entry
from spade_async.grounding.memory import Memory
from spade_async.grounding.signature import Signature
from spade_async.types import Environment, RegretEstimate

INSPIRE, AVOID = "inspire", "avoid"
INSPIRE_WINS = (0.15, 0.85)
AVOID_WINS = (0.1, 0.9)
NUM_AVOID = 1
EXACT_TRIES = 64


class ReferenceMemory(Memory):
    """Good examples: of the skill, won between 0.15 and 0.85; bad ones: below 0.1, above 0.9."""

    def add(
        self,
        environment: Environment,
        estimate: RegretEstimate,
        step: int,
        *,
        skill: str = "",
        win_rate: float,
        signature: Signature | None = None,
    ) -> None:
        """Append it; see `Memory.add`."""
        del signature
        if self._capacity == 0:
            return
        entry = Entry(
            environment_id=environment.environment_id,
            skeleton=environment.skeleton,
            skill=skill,
            kind=_kind(win_rate),
            rank=estimate.regret,
            step=step,
            regret=estimate.regret,
            mean_no_hint=estimate.mean_no_hint,
            mean_with_hint=estimate.mean_with_hint,
            win_rate=win_rate,
        )
        self._append(entry)

    def _inspiring(self, n: int, rng: random.Random, skill: str) -> list[Entry]:
        best = self.table.best_entries(INSPIRE, max(3 * n, 10), skill=skill)
        return rng.sample(best, min(n, len(best)))

    def _bad(self, rng: random.Random, skill: str) -> list[Entry]:
        """Uniform over all skills: by number, which has no holes here; counted when few are bad."""
        del skill
        bounds = self.table.entry_bounds()
        if bounds is None:
            return []
        for _ in range(EXACT_TRIES):
            entry = self.table.entry(rng.randint(*bounds))
            if entry is not None and entry.kind == AVOID:
                return [entry]
        num_bad = self.table.num_entries(AVOID)
        if not num_bad:
            return []
        return self.table.best_entries(AVOID, NUM_AVOID, offset=rng.randrange(num_bad))

    def _why_not(self, entry: Entry) -> str:
        verdict = "too easy" if entry.win_rate > AVOID_WINS[1] else "too hard"
        return f"{verdict}, win rate {entry.win_rate:.2f}"

    def replay(self, seed: int) -> Environment | None:
        """The reference plays nothing again; ours, over what it would show as good examples."""
        num = self.table.num_entries(INSPIRE)
        if not num:
            return None
        found = self.table.best_entries(INSPIRE, 1, offset=seed % num)
        return self.table.environment_of(found[0].environment_id)


def _kind(win_rate: float) -> str:
    low, high = INSPIRE_WINS
    if low <= win_rate <= high:
        return INSPIRE
    low, high = AVOID_WINS
    return AVOID if win_rate < low or win_rate > high else ""
