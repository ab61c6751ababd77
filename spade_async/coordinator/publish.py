"""Loops 10-11 of design.md 4 as the coordinator sees them: a step is committed, then published.

Weights reach a generator only after the ledger commit that names them, so no token is ever sampled
under a version the ledger does not know. While an evaluation is due or running, newer weights wait.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from spade_async.coordinator.core import Core
from spade_async.coordinator.evaluation import Evaluation
from spade_async.transport.link import Hub
from spade_async.transport.messages import WeightsLoaded, WeightsPublished
from spade_async.types import PolicyVersion

log = logging.getLogger(__name__)


MOST_BEHIND = 2
"""A generator that has proven none of so many sets that were sent to it is named as stale."""


class Publisher:
    """Which weights each generator has, and which are to come."""

    def __init__(self, core: Core, hub: Hub, evaluation: Evaluation) -> None:
        self._core = core
        self._hub = hub
        self._evaluation = evaluation
        self.newest: WeightsPublished | None = None
        self._sent: WeightsPublished | None = None
        self._loaded: dict[str, int | None] = {}
        self._evaluate: PolicyVersion | None = None
        """Version that is to be scored once every generator has it."""
        self._behind: dict[str, int] = {}
        """Weight sets sent to a generator since the last one it has proven."""
        self._newest_load: WeightsLoaded | None = None
        self._held_since_s: float | None = None
        """Since when an evaluation holds newer weights back."""

    def announce(self, published: WeightsPublished) -> None:
        """The newest committed weights; `pump` sends them when nothing holds them back."""
        missed = self.newest
        if missed is not None and missed is not self._sent:
            step = PolicyVersion.unpack(missed.version).step
            if self._evaluation.is_due(step):
                self._core.alert(
                    f"the evaluation of step {step} is left out: the one before still runs",
                    kind="evaluation_skipped",
                )
        self.newest = published

    def add_generator(self, name: str) -> None:
        """A generator said hello; it gets the newest weights with its welcome."""
        self._loaded[name] = None
        self._behind[name] = 0

    def lose_generator(self, name: str) -> None:
        """It is dead: nothing is sent to it until it says hello again."""
        self._loaded.pop(name, None)
        self._start_evaluation()

    def fall_back(self) -> None:
        """The newest steps were undone: what is to be scored of them is not scored any more."""
        step = self._core.step
        if self._evaluate is not None and self._evaluate.step > step:
            self._evaluate = None
        running = self._evaluation.running
        if running is not None and running.step > step:
            self._evaluation.give_up()

    def welcome(self) -> dict[str, object]:
        """Weights a new generator starts from."""
        assert self.newest is not None
        published = self._sent or self.newest
        if published is not self.newest and _is_gone(published.location):
            # A generator died under an evaluation that newer weights have outlived by now.
            step = PolicyVersion.unpack(published.version).step
            self._core.alert(
                f"evaluation of step {step} given up: its weights are gone",
                kind="evaluation_given_up",
            )
            self._evaluate = None
            self._evaluation.give_up()
            # Not marked as sent: the others have yet to get them, with the next `pump`.
            published = self.newest
        else:
            self._mark_sent(published)
        return {
            "version": published.version,
            "location": published.location,
            "digest": published.digest,
            "attestation": published.attestation,
        }

    @property
    def oldest_in_use(self) -> int | None:
        """Oldest packed version that a generator may be reading; None when that is not known."""
        loaded = [*self._loaded.values()]
        if self._sent is None or not loaded or None in loaded:
            return None
        return min(version for version in loaded if version is not None)

    @property
    def is_evaluating(self) -> bool:
        """Whether an evaluation is due or running."""
        return self._evaluate is not None or self._evaluation.running is not None

    @property
    def held_s(self) -> float:
        """Seconds that an evaluation has held newer weights back by now; 0 when it holds none."""
        return 0.0 if self._held_since_s is None else time.monotonic() - self._held_since_s

    def give_up_due(self) -> None:
        """An evaluation that is due and could not begin is left out."""
        if self._evaluate is not None:
            self._core.alert(
                f"evaluation of step {self._evaluate.step} given up: newer weights waited for it "
                "before every generator had those of that step",
                kind="evaluation_given_up",
            )
            self._evaluate = None

    @property
    def is_settled(self) -> bool:
        """Whether the newest weights are out and every evaluation that is due is done."""
        return self.newest is self._sent and not self.is_evaluating

    async def pump(self) -> None:
        """Send the newest weights unless an evaluation holds them back."""
        if self.newest is None or self.newest is self._sent:
            return
        if not self._loaded or self._sent is None:
            return
        if self.is_evaluating:
            if self._held_since_s is None:
                self._held_since_s = time.monotonic()
            return
        self._core.counters["eval_held_us"] += int(self.held_s * 1e6)
        self._held_since_s = None
        self._mark_sent(self.newest)
        for name in self._loaded:
            self._behind[name] = self._behind.get(name, 0) + 1
            if self._behind[name] > MOST_BEHIND:
                self._name_stale(name)
            await self._hub.send(name, self.newest)

    def _mark_sent(self, published: WeightsPublished) -> None:
        if self._sent is published:
            return
        self._sent = published
        version = PolicyVersion.unpack(published.version)
        self._core.timings.published(self._core.versions.ordinal(published.version))
        if self._evaluation.is_due(version.step) and not self._has_eval(version.step):
            self._evaluate = version

    def _has_eval(self, step: int) -> bool:
        ledger = self._core.ledger
        undone = {row.version for row in ledger.versions() if row.is_abandoned}
        return any(row.version.step == step and row.version not in undone for row in ledger.evals())

    def figures(self) -> dict[str, float | None]:
        """Of the newest swap, by tag."""
        load = self._newest_load
        return {
            "eval/held_s": self._core.counters["eval_held_us"] / 1e6,
            "generator/swap_pause_s": None if load is None else load.pause_s,
            "generator/attest_s": None if load is None else load.attest_s,
            "generator/probe_gap": None if load is None else load.probe_gap,
            "generator/not_attested": float(self._core.counters["weights_not_attested"]),
        }

    def _name_stale(self, name: str) -> None:
        has = self._loaded[name]
        loaded = "none" if has is None else str(PolicyVersion.unpack(has))
        self._core.alert(
            f"{name} is stale: it has weights {loaded}, {self._behind[name]} newer sets were sent",
            kind="stale_generator",
            action=f"see logs/{name}.log",
        )

    def has_loaded(self, name: str, packed: int) -> bool:
        """Whether a generator has loaded that version or a later one."""
        loaded = self._loaded.get(name)
        return loaded is not None and loaded >= packed

    def on_loaded(self, name: str, message: WeightsLoaded) -> None:
        """A generator proved what it loaded: admission opens for that version."""
        if not message.attested:
            self._core.counters["weights_not_attested"] += 1
            self._core.alert(
                f"{name} is set aside: weights {PolicyVersion.unpack(message.version)} do not "
                f"attest there: {message.reason}",
                kind="weights_not_attested",
            )
            return
        sent = self._sent
        if sent is not None and message.version == sent.version and message.digest != sent.digest:
            self._core.alert(
                f"{name} loaded other bytes than were published", kind="weights_not_attested"
            )
            log.error("%s loaded digest %s, published %s", name, message.digest, sent.digest)
            return
        self._loaded[name] = message.version
        self._behind[name] = 0
        self._newest_load = message
        ordinal = self._core.versions.ordinal(message.version)
        if ordinal is not None:
            self._core.schedule.weights_loaded(ordinal)
            self._core.timings.loaded(ordinal)
        self._start_evaluation()

    def _start_evaluation(self) -> None:
        """Start what is due once every generator that lives has its version."""
        due, loaded = self._evaluate, self._loaded.values()
        if due is not None and loaded and all(version == due.packed for version in loaded):
            self._evaluation.start(due)
            self._evaluate = None


def _is_gone(location: str) -> bool:
    path = Path(location)
    return path.is_absolute() and not path.exists()
