"""What there is to do in a simulation of both roles, and how long each piece takes.

A piece of work holds a slot of an engine for `slot_s` (decoding) and then takes `other_s` without
one (the jail, the link). Numbers of designs, plays and steps name the pieces, so that the same
workload under other settings meets the same pieces.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from spade_async.regret import EarlyClass, Pair
from spade_async.regret.early import PRIOR
from spade_async.seeds import derive
from spade_async.simulate.durations import Durations, Fixed

NO_TIME = Fixed(0.0)


@dataclass(frozen=True, slots=True)
class Piece:
    """One design or one episode."""

    slot_s: float
    other_s: float = 0.0
    trained_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Design:
    """One design: how long it takes, and whether it is played."""

    piece: Piece
    is_played: bool


@dataclass(frozen=True, slots=True)
class Play:
    """The episodes of one agent group: those that are trained, and the hinted ones.

    Example: of 8 pairs in blocks of 2 an environment whose class was certain after 4 has 4 pieces
    in either arm, `block` 2 and `is_stopped`.
    """

    plain: tuple[Piece, ...]
    hinted: tuple[Piece, ...] = ()
    block: int = 0
    """Pairs given out together (regret.early_class); 0: all at once."""
    is_stopped: bool = False
    """No more pairs were played, for the class was certain."""
    is_dropped: bool = False
    """Stopped with equal returns: there is nothing in it to train."""


class Workload(Protocol):
    """Gives the pieces in order of admission."""

    def design(self, number: int) -> Design:
        """The design of that number, counted over all groups."""

    def play(self, design: int) -> Play:
        """The episodes of a design that is played."""

    def replay(self, design: int, offset: int) -> Play:
        """The episodes of a design that is played once more, so many steps after its first play."""

    def pool_play(self, number: int) -> Play:
        """The episodes of a play from memory or the seed pool."""

    def learner_s(self, step: int, num_samples: int) -> float:
        """Seconds from a batch to the report of its step."""

    def swap_s(self, step: int) -> float:
        """Seconds from that report until a generator has loaded the weights."""

    @property
    def summary(self) -> dict[str, float]:
        """What is known of it, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnWorkload:
    """Everything drawn from distributions, from one seed.

    Example: the two-role table of docs/simulate.md has designs of mean 20 s and episodes of 10 s.
    """

    seed: int
    designs: Durations
    episodes: Durations
    learner: Durations
    """Seconds of one step."""
    validity: float
    """Share of designs that are played."""
    episodes_per_arm: int = 8
    swap: Durations = NO_TIME
    early: EarlyClass | None = None
    """With it, pairs of designs are stopped early. Their outcomes are drawn from the prior of the
    rule, either arm by itself."""

    def design(self, number: int) -> Design:
        """Two draws of a stream of its own."""
        rng = self._rng("design", number)
        return Design(Piece(self.designs.draw(rng)), rng.random() < self.validity)

    def play(self, design: int) -> Play:
        """Both arms."""
        rng = self._rng("play", design)
        plain, hinted = self._episodes(rng), self._episodes(rng)
        if self.early is None:
            return Play(plain, hinted)
        pairs = _stopped_pairs(self.early, rng)
        num, is_stopped = len(pairs), len(pairs) < self.early.planned
        are_equal = len({without for _, without in pairs}) == 1
        return Play(
            plain[:num], hinted[:num], self.early.block, is_stopped, is_stopped and are_equal
        )

    def replay(self, design: int, offset: int) -> Play:
        """The unhinted arm only, all of it."""
        return Play(self._episodes(self._rng("replay", design, offset)))

    def pool_play(self, number: int) -> Play:
        """The unhinted arm only."""
        return Play(self._episodes(self._rng("pool", number)))

    def learner_s(self, step: int, num_samples: int) -> float:
        """Independent of the batch."""
        return self.learner.draw(self._rng("learner", step))

    def swap_s(self, step: int) -> float:
        """Independent of the batch."""
        return self.swap.draw(self._rng("swap", step))

    @property
    def summary(self) -> dict[str, float]:
        """Means."""
        return {
            "design_s": self.designs.mean,
            "episode_s": self.episodes.mean,
            "validity": self.validity,
            "learner_s": self.learner.mean,
            "swap_s": self.swap.mean,
        }

    def _episodes(self, rng: random.Random) -> tuple[Piece, ...]:
        return tuple(Piece(self.episodes.draw(rng)) for _ in range(self.episodes_per_arm))

    def _rng(self, *names: str | int) -> random.Random:
        return random.Random(derive(self.seed, *names))


def _stopped_pairs(rule: EarlyClass, rng: random.Random) -> list[Pair]:
    """Pairs that the rule lets an environment of its own prior play."""
    hinted, plain = (rng.betavariate(PRIOR, PRIOR) for _ in range(2))
    pairs: list[Pair] = []
    while len(pairs) < rule.planned:
        size = rule.next_block(len(pairs)) - len(pairs)
        pairs += [(float(rng.random() < hinted), float(rng.random() < plain)) for _ in range(size)]
        if rule.look(pairs) is not None:
            break
    return pairs
