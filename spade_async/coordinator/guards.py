"""Watches whether self-play goes wrong while its own figures look fine (docs/guards.md). Pure.

Regret, reward and validity can all rise while the designer writes one leaky program over and over
and the agent forgets the rest. Three alarms say so: `designer_collapse`, `hint_leak`, `forgetting`.
Each is told once and told again when it is over (`guard_cleared`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spade_async.config.guards import GuardsConfig
from spade_async.config.schema import Config
from spade_async.coordinator.alarm import Alarm, Change
from spade_async.coordinator.forgetting import (
    ALL,
    CLEARED_AT,
    Fall,
    Forgetting,
    Scored,
)
from spade_async.coordinator.variety import Variety, VarietyWindow, variety_of, variety_state

COLLAPSE, LEAK, FORGETTING = "designer_collapse", "hint_leak", "forgetting"
CLEARED = "guard_cleared"
FAMILY_LABEL = "family"
"""Label of the domain whose largest share is watched."""
MARGIN = 0.1
"""Shares have to come back this far within their limit, and entropy this part, before an alarm is
over."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Told:
    """Something to tell."""

    kind: str
    text: str


class Guards:
    """The three alarms of one run and what they are taken from.

    Call `design` for each valid design, `step` once per learner step, `scored` per evaluation.
    """

    def __init__(
        self, config: GuardsConfig, off: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """`off`: by kind of alarm, the guards against it that this run has off (`guards_off`)."""
        self._config = config
        self._off = off or {}
        self._window = VarietyWindow(config.window)
        self._start: Variety | None = None
        self._now: Variety | None = None
        self._forgetting = Forgetting(drop=config.forgetting_drop, errors=config.forgetting_errors)
        self._alarms = {
            COLLAPSE: Alarm(config.patience),
            LEAK: Alarm(config.patience),
            # An evaluation is rare and of many episodes: one is enough.
            FORGETTING: Alarm(1),
        }
        self._history: list[dict[str, Any]] = []

    def design(self, skeleton: str, labels: Mapping[str, str], leak_share: float | None) -> None:
        """Note one valid design; its leak share is None when it was not measured."""
        self._window.add(skeleton, labels.get(FAMILY_LABEL), leak_share)

    def figures(self) -> dict[str, float | None]:
        """Numbers of the newest window by tag; None where there is none."""
        found = self._now = self._window.figures()
        if found is None:
            return {}
        if self._start is None:
            self._start = found
        return {
            "guards/effective_skeletons": found.effective_skeletons,
            "guards/largest_skeleton_share": found.skeleton_share,
            "guards/largest_family_share": found.family_share,
            "guards/leak_share": found.leak_share,
        }

    def step(self, step: int) -> list[Told]:
        """What has to be told after a learner step; call `figures` first."""
        now, start = self._now, self._start
        if now is None or start is None or not self._config.alarms:
            return []
        return [*self._collapse(step, now, start), *self._leak(step, now, start)]

    def scored(self, step: int, scores: Sequence[Scored]) -> tuple[float | None, list[Told]]:
        """Take one evaluation: the largest drop over all instances, and what has to be told."""
        falls = self._forgetting.observe(step, scores)
        drop = max((f.drop for f in falls if f.group == ALL), default=None)
        if not falls or not self._config.alarms:
            return drop, []
        beyond = self._forgetting.beyond(falls)
        change = self._alarms[FORGETTING].observe(
            is_beyond=bool(beyond), is_within=not self._forgetting.beyond(falls, CLEARED_AT)
        )
        text = "; ".join(_fall_text(fall) for fall in beyond[:_MOST_NAMED])
        more = f" and {len(beyond) - _MOST_NAMED} more" if len(beyond) > _MOST_NAMED else ""
        return drop, self._told(change, step, FORGETTING, f"held-out accuracy fell: {text}{more}")

    @property
    def active(self) -> list[str]:
        """Kinds of the alarms that are raised now."""
        return [kind for kind, alarm in self._alarms.items() if alarm.is_raised]

    def _collapse(self, step: int, now: Variety, start: Variety) -> list[Told]:
        config = self._config
        least = min(config.entropy_share * start.skeleton_entropy, math.log(config.min_skeletons))
        is_low = now.skeleton_entropy < least
        is_fine = now.skeleton_entropy > (1.0 + MARGIN) * least
        if now.family_share is not None and start.family_share is not None:
            most = max(config.family_share, start.family_share + config.family_rise)
            is_low |= now.family_share > most
            is_fine &= now.family_share < most - MARGIN
        change = self._alarms[COLLAPSE].observe(is_beyond=is_low, is_within=is_fine)
        text = (
            f"the designer repeats itself: {now.effective_skeletons:.1f} effective skeletons in "
            f"the last {config.window} valid designs ({start.effective_skeletons:.1f} at the start)"
        )
        if now.family_share is not None and start.family_share is not None:
            text += (
                f", {now.family_share:.0%} of them {now.family} "
                f"(largest family at the start {start.family_share:.0%})"
            )
        return self._told(change, step, COLLAPSE, text)

    def _leak(self, step: int, now: Variety, start: Variety) -> list[Told]:
        if now.leak_share is None or start.leak_share is None:
            return []
        most = max(self._config.leak_share, start.leak_share + self._config.leak_rise)
        change = self._alarms[LEAK].observe(
            is_beyond=now.leak_share > most, is_within=now.leak_share < most - MARGIN
        )
        text = (
            f"hints give the answer away: the hint alone is right on {now.leak_share:.0%} of the "
            f"seeds of the last {self._config.window} valid designs ({start.leak_share:.0%} at the "
            "start)"
        )
        return self._told(change, step, LEAK, text)

    def _told(self, change: Change | None, step: int, kind: str, text: str) -> list[Told]:
        if change is Change.RAISED:
            self._history.append({"kind": kind, "raised_step": step, "cleared_step": None})
            off = self._off.get(kind)
            why = f"; off in this run: {', '.join(off)}" if off else ""
            return [Told(kind, f"step {step}: {text}{why}")]
        if change is Change.CLEARED:
            raised = next(h for h in reversed(self._history) if h["kind"] == kind)
            raised["cleared_step"] = step
            since = raised["raised_step"]
            return [Told(CLEARED, f"step {step}: {kind} of step {since} is over")]
        return []

    def state(self) -> dict[str, Any]:
        """JSON-able, for the ledger; `history` is what `report` shows."""
        return {
            "designs": self._window.state(),
            "start": variety_state(self._start),
            "alarms": {kind: alarm.state() for kind, alarm in self._alarms.items()},
            "history": [dict(entry) for entry in self._history],
        }

    @property
    def forgetting(self) -> Forgetting:
        """The evaluations that others are compared with: large, and saved by itself."""
        return self._forgetting

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self._window.restore(state["designs"])
        self._start = variety_of(state["start"])
        for kind, alarm in self._alarms.items():
            alarm.restore(state["alarms"][kind])
        self._history = [dict(entry) for entry in state["history"]]


def guards_off(config: Config) -> dict[str, list[str]]:
    """By kind of alarm, the keys of the guards against it that are at their off value."""
    guards: dict[str, dict[str, object]] = {
        COLLAPSE: {
            "designer.novelty_penalty": config.designer.novelty_penalty,
            "designer.plays_per_skeleton": config.designer.plays_per_skeleton,
        },
        LEAK: {"regret.leak_discount": config.regret.leak_discount},
        FORGETTING: {
            "agent.pool_share": config.agent.pool_share,
            "learner.kl_to_start": config.learner.kl_to_start,
        },
    }
    return {kind: [key for key, on in keys.items() if not on] for kind, keys in guards.items()}


def _fall_text(fall: Fall) -> str:
    return (
        f"{fall.group} {fall.before:.2f} -> {fall.now:.2f} since step {fall.since_step} "
        f"({fall.errors:.1f} standard errors, n={fall.num_instances})"
    )
