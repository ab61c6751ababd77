"""Rows of the ledger as frozen records; the writer takes them, the reader gives them back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spade_async.types import Environment, PolicyVersion

GROUP_STATES = ("open", "ready", "trained", "missing")
"""open: members outstanding; ready: all in, not trained; trained; missing: given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """One weight set. `ordinal` counts learner steps ever done, abandoned ones included."""

    ordinal: int
    version: PolicyVersion
    digest: str
    location: str
    checkpoint: str | None
    """Folder name under checkpoints/, or None when the step was not checkpointed."""
    created_unix_s: float
    is_abandoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """Samples that share a baseline: a prompt of the designer, or the plays of one environment."""

    group_id: str
    role: str
    kind: str
    """"design", "play" (of a design), "replay" (of the same, later) or "pool" (memory, seeds)."""
    birth_ordinal: int
    parent_group: str | None = None
    """Design group that a play group belongs to."""
    environment_id: str | None = None
    skill: str = ""
    document_id: str = ""
    document: str = ""
    exemplars_json: str = "[]"
    members: int
    """How many samples it will have (trained ones; hinted episodes are not members)."""
    state: str = "open"
    created_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One finished (or missing) sample: a design or an episode."""

    sample_id: str
    group_id: str
    role: str
    purpose: str
    """"train", "measure" or "eval"."""
    environment_id: str | None = None
    seed: int | None = None
    arm: str | None = None
    index: int = 0
    outcome: str = ""
    detail: str = ""
    episode_return: float | None = None
    reward: float | None = None
    rejection_stage: str | None = None
    missing_reason: str | None = None
    oldest_ordinal: int | None = None
    """Ordinal of the oldest version that sampled one of its tokens."""
    num_tokens: int = 0
    num_trained_tokens: int = 0
    created_unix_s: float
    labels_json: str = "{}"
    extra_json: str = "{}"
    """Anything else worth keeping (transcript, jail figures)."""
    trained_ordinal: int | None = None
    """Set by `consume_batch` only."""
    unused_reason: str | None = None
    """Why a finished train sample will not be trained; set by `mark_unused` only."""

    @property
    def worth(self) -> float | None:
        """What its advantage came from: the return of an episode, the pay of a design."""
        return self.episode_return if self.role == "agent" else self.reward


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRow:
    """An environment with what is known of it."""

    environment: Environment
    created_step: int
    created_unix_s: float
    num_designs: int
    """How often it was designed (0: seed pool or held out)."""
    estimate: dict[str, Any] | None
    """Fields of the newest `RegretEstimate`, or None."""
    missing_regret: str | None
    """Reason of the newest `MissingRegret`, or None."""


@dataclass(frozen=True, slots=True)
class BatchSample:
    """One sample of a batch."""

    sample_id: str
    group_id: str
    advantage: float
    staleness: int
    """Learner steps between its oldest trained token and the step of the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """Composition of one step. `ordinal` is that of the version which the step makes."""

    ordinal: int
    branch: int
    step: int
    state: str
    """planned, consumed, replay (undone, to be trained again) or abandoned (was replayed)."""
    samples: tuple[BatchSample, ...]
    replays: int | None = None
    """Ordinal of the undone batch that this one repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """Facts of one learner step."""

    ordinal: int
    step: int
    wall_unix_s: float
    metrics: dict[str, float]
    is_abandoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRow:
    """Held-out success of one level under one version."""

    ordinal: int
    version: PolicyVersion
    level: str
    num_instances: int
    mean: float | None
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """Something a user should know."""

    unix_s: float
    step: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCounts:
    """Numbers for the report, counted over all samples."""

    episodes: int = 0
    """Finished episodes of any purpose."""
    designs: int = 0
    """Designs that are not missing."""
    valid_designs: int = 0
    missing: int = 0
    unused: dict[str, int] = field(default_factory=dict)
    """By reason, e.g. {"lost_to_rollback": 3}."""
