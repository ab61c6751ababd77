"""Environment memory: what was played lately and how it stood, for exemplars and replays (step 7).

Bounded, no clock; its rows are in the ledger, so a resume has nothing to rebuild. One entry per
skeleton and per neighbourhood of near copies, so that they do not crowd it; what they crowded is
told to the designer. `reference_memory` has the reference's rules.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

from spade_async.grounding.entry import Entry, MemoryTable
from spade_async.grounding.signature import Signature, band_keys, similarity
from spade_async.types import Environment, RegretClass, RegretEstimate

FRONTIER, MASTERED = RegretClass.FRONTIER.value, RegretClass.MASTERED.value
NEAR_LOOKED_AT = 64
"""Candidates whose signatures are compared, at most: those that share most bands."""
AVOID_FROM = 32
"""The newest mastered environments of a skill, of which the bad examples are drawn."""
SKILL_MEMORY = 0.1
"""Weight of the newest environment in a skill's moving mean of success."""
LEAST_WEAKNESS = 0.05
"""Weight in the draw of a skill that the agent has mastered."""
OFFSETS_UP_TO = 4096
"""A larger frontier is drawn from by number, not counted through."""


class Memory:
    """At most `capacity` environments; the oldest estimate leaves first.

    An environment measured again always gets its newest estimate. A *different* program that is a
    near copy of a remembered one takes its place, unless that would replace a frontier entry by one
    that is not; either way the copies are counted, and there is no second entry.
    """

    def __init__(
        self,
        table: MemoryTable,
        capacity: int,
        *,
        near_duplicate: float = 1.0,
        num_avoid: int = 1,
    ) -> None:
        """Go on with what is in the table.

        Args:
            table: the ledger.
            capacity: most entries.
            near_duplicate: similarity of two signatures from which one program is a near copy of
                the other; at 1.0 only programs of one skeleton are.
            num_avoid: bad examples that go with the good ones.
        """
        self.table = table
        self.num_alike = 0
        """Near copies so far, over the life of the run."""
        self._capacity, self._near, self._num_avoid = capacity, near_duplicate, num_avoid
        self._size = table.num_entries()
        self._num_frontier = table.num_entries(FRONTIER)
        self._success: dict[str, float] = {}
        """Moving mean of unhinted success by skill."""

    def __len__(self) -> int:
        return self._size

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
        """Remember it as of learner step `step`; inside a transaction.

        Args:
            environment: it.
            estimate: its newest.
            step: of the learner.
            skill: that its design was asked for.
            win_rate: share of unhinted episodes that earned something.
            signature: MinHash of its AST features, where known.
        """
        success = min(1.0, max(0.0, estimate.mean_no_hint))
        before = self._success.get(skill, success)
        self._success[skill] = before + SKILL_MEMORY * (success - before)
        if self._capacity == 0:
            return
        kind = estimate.regret_class.value
        entry = Entry(
            environment_id=environment.environment_id,
            skeleton=environment.skeleton,
            skill=skill,
            kind=kind,
            rank=estimate.paid_regret if kind == FRONTIER else float(step),
            step=step,
            regret=estimate.regret,
            mean_no_hint=estimate.mean_no_hint,
            mean_with_hint=estimate.mean_with_hint,
            win_rate=win_rate,
            signature=signature,
        )
        keys = self._keys(signature)
        old = self._like(entry, keys)
        if old is not None:
            self.num_alike += 1
            is_same = old.environment_id == entry.environment_id
            if not is_same and old.kind == FRONTIER and kind != FRONTIER:
                self.table.count_alike(old.number)
                return
            self._drop(old)
            entry = dataclasses.replace(entry, num_alike=old.num_alike + 1)
        self._append(entry, keys)

    def refuse_copy(self, environment: Environment, signature: Signature | None) -> str | None:
        """Why a design that nobody has played should not be; None when it should.

        A near copy of a remembered environment is counted there, and so told to the designer; its
        episodes would say what is known. At a threshold of 1.0, and without a signature, nothing is
        refused. Inside a transaction.
        """
        keys = self._keys(signature)
        found = self._nearest(signature, keys) if signature is not None and keys else None
        if found is None:
            return None
        share, entry = found
        self.num_alike += 1
        self.table.count_alike(entry.number)
        return (
            f"near copy of environment {entry.environment_id} (similarity {share:.2f}, "
            f"grounding.near_duplicate={self._near:g})"
        )

    def exemplars(self, n: int, rng_seed: int, skill: str = "") -> list[dict[str, Any]]:
        """Examples for the designer's prompt: up to n good ones, then up to `num_avoid` bad ones.

        Half of the good ones, rounded up, are of the asked skill; the others are drawn over all
        skills, with a weight that is the agent's failure at them of late. Of a skill the best
        max(3n, 10) frontier environments by paid regret are candidates. Bad ones are mastered or
        crowded environments of the asked skill.

        Returns:
            [{"source", "skill", "labels", "regret", "mean_no_hint", "mean_with_hint", "kind":
            "inspire" or "avoid", "reason"}].
        """
        rng = random.Random(rng_seed)
        chosen = self._inspiring(n, rng, skill)
        taken = {entry.environment_id for entry in chosen}
        shown = [self._item(entry, "inspire", "") for entry in chosen]
        if n:
            shown += [
                self._item(entry, "avoid", self._why_not(entry))
                for entry in self._bad(rng, skill)
                if entry.environment_id not in taken
            ]
        return shown

    def replay(self, seed: int) -> Environment | None:
        """A frontier environment worth playing again, each as likely; None when there is none."""
        if not self._num_frontier:
            return None
        if self._num_frontier > OFFSETS_UP_TO:
            rng = random.Random(seed)
            low, high = self.table.entry_bounds() or (0, 0)
            for _ in range(64):
                entry = self.table.entry(rng.randint(low, high))
                if entry is not None and entry.kind == FRONTIER:
                    return self.table.environment_of(entry.environment_id)
        found = self.table.best_entries(FRONTIER, 1, offset=seed % self._num_frontier)
        return self.table.environment_of(found[0].environment_id)

    def metrics(self) -> dict[str, float]:
        """Tagged numbers (docs/metrics.md)."""
        return {
            "grounding/memory_entries": float(self._size),
            "grounding/near_duplicates": float(self.num_alike),
        }

    def state(self) -> dict[str, Any]:
        """What is not in its table; JSON-able."""
        return {"num_alike": self.num_alike, "success": dict(self._success)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self.num_alike = int(state["num_alike"])
        self._success = {skill: float(mean) for skill, mean in state["success"].items()}

    def weakness(self, skill: str) -> float:
        """How much the agent fails at a skill of late, in [0.05, 1]; 1 when it was never tried."""
        return max(LEAST_WEAKNESS, 1.0 - self._success.get(skill, 0.0))

    def _inspiring(self, n: int, rng: random.Random, skill: str) -> list[Entry]:
        best = max(3 * n, 10)
        own = self.table.best_entries(FRONTIER, best, skill=skill)
        rng.shuffle(own)
        num_own = min(len(own), (n + 1) // 2)
        chosen, spare = own[:num_own], own[num_own:]
        pools = {skill: spare}
        for other in sorted(set(self._success) - {skill}):
            pools[other] = self.table.best_entries(FRONTIER, best, skill=other)
            rng.shuffle(pools[other])
        while len(chosen) < n:
            names = [name for name, pool in pools.items() if pool]
            if not names:
                break
            weights = [self.weakness(name) for name in names]
            chosen.append(pools[rng.choices(names, weights)[0]].pop())
        return chosen

    def _bad(self, rng: random.Random, skill: str) -> list[Entry]:
        if not self._num_avoid:
            return []
        found = {
            entry.number: entry
            for entry in (
                *self.table.best_entries(MASTERED, AVOID_FROM, skill=skill),
                *self.table.crowded_entries(skill, AVOID_FROM),
            )
        }
        pool = list(found.values())
        drawn: list[Entry] = []
        while pool and len(drawn) < self._num_avoid:
            index = rng.choices(range(len(pool)), [1 + entry.num_alike for entry in pool])[0]
            drawn.append(pool.pop(index))
        return drawn

    def _keys(self, signature: Signature | None) -> list[int]:
        return [] if signature is None or self._near >= 1.0 else band_keys(signature)

    def _like(self, entry: Entry, keys: Sequence[int]) -> Entry | None:
        """The remembered entry that this one is, or is a near copy of."""
        found = self.table.entry_of(entry.environment_id, entry.skeleton)
        if found is not None or entry.signature is None or not keys:
            return found
        nearest = self._nearest(entry.signature, keys)
        return None if nearest is None else nearest[1]

    def _nearest(self, mine: Signature, keys: Sequence[int]) -> tuple[float, Entry] | None:
        """(similarity, entry) of the remembered entry most like it, from the threshold on."""
        near = [
            (similarity(mine, other.signature), other.number, other)
            for other in self.table.entries_near(keys, NEAR_LOOKED_AT)
            if other.signature is not None
        ]
        share, _, nearest = max(near, key=lambda item: item[:2], default=(0.0, 0, None))
        return None if nearest is None or share < self._near else (share, nearest)

    def _append(self, entry: Entry, keys: Sequence[int] = ()) -> None:
        """Store it; the oldest one leaves when there are too many."""
        self.table.add_entry(entry, keys)
        self._size += 1
        self._num_frontier += entry.kind == FRONTIER
        while self._size > self._capacity:
            bounds = self.table.entry_bounds()
            oldest = None if bounds is None else self.table.entry(bounds[0])
            assert oldest is not None, "more than its capacity, and none"
            self._drop(oldest)

    def _drop(self, entry: Entry) -> None:
        self.table.drop_entry(entry.number)
        self._size -= 1
        self._num_frontier -= entry.kind == FRONTIER

    def _item(self, entry: Entry, kind: str, reason: str) -> dict[str, Any]:
        environment = self.table.environment_of(entry.environment_id)
        return {
            "source": environment.source,
            "skill": entry.skill,
            "labels": dict(environment.labels),
            "regret": entry.regret,
            "mean_no_hint": entry.mean_no_hint,
            "mean_with_hint": entry.mean_with_hint,
            "kind": kind,
            "reason": reason,
        }

    def _why_not(self, entry: Entry) -> str:
        """Why an environment is a bad example, in words for the designer."""
        reasons = []
        if entry.kind == MASTERED:
            reasons.append(
                f"it is solved without a hint (mean return {entry.mean_no_hint:.2f}) and teaches "
                "nothing more"
            )
        if entry.num_alike:
            copies = f"{entry.num_alike} later programs were"
            if entry.num_alike == 1:
                copies = "1 later program was"
            reasons.append(f"{copies} too like it (environment {entry.environment_id})")
        return "; ".join(reasons)
