"""What happened since the last learner step, as numbers for TensorBoard (docs/metrics.md).

A quantity that did not occur since the last step is absent from the result, never 0.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable

from spade_async.agent.behaviour import Behaviour, summed
from spade_async.errors import PROMPT_TOO_LONG
from spade_async.types import Arm, RegretClass, RegretEstimate

VALIDITY_WINDOW = 200


def mean(values: Iterable[float]) -> float | None:
    """Arithmetic mean, or None of nothing."""
    items = list(values)
    return sum(items) / len(items) if items else None


class StepWindow:
    """Collects events; `flush` turns them into tagged numbers and starts anew."""

    def __init__(self) -> None:
        self._recent_validity: deque[bool] = deque(maxlen=VALIDITY_WINDOW)
        self._per_second: deque[list[float]] = deque()
        """[second, episodes in it] of the last minute."""
        self._started_s = time.monotonic()
        self._seen_stages: set[str] = set()
        self._seen_labels: dict[str, set[str]] = {}
        self._clear()

    def _clear(self) -> None:
        self._valid: list[bool] = []
        self._stages: Counter[str] = Counter()
        self._opinions: Counter[str] = Counter()
        self._rewards: list[float] = []
        self._leaks: list[float] = []
        self._skeleton_shares: list[float] = []
        self._estimates: list[RegretEstimate] = []
        self._returns: dict[str, list[float]] = {arm: [] for arm in Arm}
        self._labels: dict[str, Counter[str]] = {}
        self._jail: Counter[str] = Counter()
        self._missing = 0
        self._missing_regret = 0
        self._refused = 0
        self._copied = 0
        self._prompts_cut = 0
        self._prompts_skipped = 0
        self._tokens: list[int] = []
        self._behaviour: list[Behaviour] = []
        self._since_s = time.monotonic()
        self._num_designs = 0

    def design(self, *, stage: str | None, leak_share: float | None) -> None:
        """One finished design: its rejection stage, or None and its leak share where measured."""
        valid = stage is None
        self._valid.append(valid)
        self._recent_validity.append(valid)
        self._num_designs += 1
        if stage is not None:
            self._stages[stage] += 1
            self._seen_stages.add(stage)
        elif leak_share is not None:
            self._leaks.append(leak_share)

    def opinions(self, repaired: tuple[str, ...], verdicts: dict[str, str]) -> None:
        """One finished design: how it was repaired, and what reviewers said."""
        for kind in repaired:
            self._opinions[f"designer/repaired/{kind}"] += 1
        for who, verdict in verdicts.items():
            self._opinions[f"designer/{who}/{verdict}"] += 1
            if verdict == "none":
                self._opinions["designer/no_verdict"] += 1

    def repeated(self, skeleton_share: float) -> None:
        """One valid design: the share of its skeleton among the recent ones."""
        self._skeleton_shares.append(skeleton_share)

    def paid(self, reward: float) -> None:
        """One design was paid."""
        self._rewards.append(reward)

    def refused(self) -> None:
        """One valid design was not played because of the skeleton quota."""
        self._refused += 1

    def copied(self) -> None:
        """One valid design was not played because memory has a near copy."""
        self._copied += 1

    def prompt(self, facts: dict[str, object], missing_reason: str | None) -> bool:
        """The prompt of one design, as the generator reports it; True when it was skipped."""
        is_skipped = missing_reason is not None and PROMPT_TOO_LONG in missing_reason
        self._prompts_skipped += is_skipped
        self._prompts_cut += not {"document_words_cut", "exemplars_dropped"}.isdisjoint(facts)
        return is_skipped

    def estimate(self, estimate: RegretEstimate | None) -> None:
        """One environment was scored, or its regret is missing."""
        if estimate is None:
            self._missing_regret += 1
        else:
            self._estimates.append(estimate)

    def played(self, labels: tuple[tuple[str, str], ...]) -> None:
        """One designed environment went into play."""
        for name, value in labels:
            self._labels.setdefault(name, Counter())[value] += 1
            self._seen_labels.setdefault(name, set()).add(value)

    def episode(self, arm: str, episode_return: float | None, num_tokens: int) -> None:
        """One episode is in the ledger."""
        now = time.monotonic()
        if not self._per_second or now - self._per_second[-1][0] >= 1.0:
            self._forget(now)
            self._per_second.append([now, 0])
        self._per_second[-1][1] += 1
        if episode_return is None:
            self._missing += 1
            return
        self._returns[arm].append(episode_return)
        if num_tokens:
            self._tokens.append(num_tokens)

    def behaved(self, behaviour: Behaviour) -> None:
        """How the agent acted in one unhinted episode of several turns."""
        self._behaviour.append(behaviour)

    def jail(self, outcomes: dict[str, int]) -> None:
        """Outcomes of jailed calls of one task."""
        self._jail.update(outcomes)

    def episodes_per_hour(self) -> float | None:
        """Rate over the last minute (or since the start); None before the first episode."""
        now = time.monotonic()
        self._forget(now)
        span = min(60.0, now - self._started_s)
        if not self._per_second or span < 1.0:
            return None
        return sum(count for _, count in self._per_second) / span * 3600.0

    def _forget(self, now: float) -> None:
        while self._per_second and now - self._per_second[0][0] > 60.0:
            self._per_second.popleft()

    def validity_window(self) -> float | None:
        """Validity of the last 200 designs; None before 200 are in."""
        if len(self._recent_validity) < VALIDITY_WINDOW:
            return None
        return mean(map(float, self._recent_validity))

    def regrets(self) -> list[float]:
        """Regrets of the environments scored since the last step."""
        return [e.regret for e in self._estimates]

    def returns(self, arm: str) -> list[float]:
        """Returns of one arm's episodes since the last step."""
        return list(self._returns[arm])

    def flush(self) -> dict[str, float]:
        """Numbers of this window by tag; the window starts anew."""
        span_s = max(time.monotonic() - self._since_s, 1e-9)
        found: dict[str, float | None] = {
            "designer/validity": mean(map(float, self._valid)),
            "designer/validity_window": self.validity_window(),
            "designer/reward_mean": mean(self._rewards),
            "designer/leak_share": mean(self._leaks),
            "designer/skeleton_share": mean(self._skeleton_shares),
            "designer/quota_refused": float(self._refused),
            "designer/copies_refused": float(self._copied),
            "designer/prompts_cut": float(self._prompts_cut),
            "designer/prompts_skipped": float(self._prompts_skipped),
            "regret/mean": mean(e.regret for e in self._estimates),
            "regret/paid_mean": mean(e.paid_regret for e in self._estimates),
            "regret/standard_error": mean(
                e.standard_error for e in self._estimates if e.standard_error is not None
            ),
            "regret/lower_bound": mean(
                e.lower_bound for e in self._estimates if e.lower_bound is not None
            ),
            "regret/stopped_share": mean(float(e.is_stopped) for e in self._estimates),
            "regret/missing": float(self._missing_regret),
            "solve/no_hint": mean(e.mean_no_hint for e in self._estimates),
            "solve/with_hint": mean(e.mean_with_hint for e in self._estimates),
            "agent/tokens_per_episode": mean(self._tokens),
            "episodes/missing": float(self._missing),
            "rate/designs_per_hour": self._num_designs / span_s * 3600.0,
            "rate/episodes_per_hour": self.episodes_per_hour(),
        }
        found |= summed(self._behaviour).figures()
        for kind in RegretClass:
            found[f"regret/{kind}_share"] = mean(
                float(e.regret_class is kind) for e in self._estimates
            )
        if self._valid:
            # A stage seen before and not now is a true zero; one never seen stays absent.
            for stage in self._seen_stages:
                found[f"validity/stage/{stage}"] = float(self._stages[stage])
        for tag, count in self._opinions.items():
            found[tag] = float(count)
        for outcome, count in self._jail.items():
            found[f"jail/outcome/{outcome}"] = float(count)
        for name, values in self._labels.items():
            total = sum(values.values())
            for value in self._seen_labels[name]:
                found[f"mix/{name}/{value}"] = values[value] / total
            if all(v.isdigit() for v in values):
                found[f"labels/mean/{name}"] = sum(int(v) * n for v, n in values.items()) / total
        self._clear()
        return {tag: value for tag, value in found.items() if value is not None}
