"""Every message of a run: one frozen record each, with who writes and who reads it.

A message is two frames on the wire (see `codec.py`): a msgpack header with the plain fields and one
packed block with the arrays. Plain fields are str, int, float, bool, None, and lists/dicts of them;
array fields are numpy arrays and are never sent as lists. `SCHEMA` is raised when a field changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

SCHEMA = 5
"""Version of all records below; a peer with another one is refused by name."""


def no_experts() -> NDArray[np.int16]:
    """What a message holds in place of experts when nothing is known of them."""
    return np.zeros(0, np.int16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Base: `reliable` messages are acknowledged and re-sent, others superseded by newer ones."""

    reliable: ClassVar[bool] = True
    to_coordinator: ClassVar[bool] = True
    """Whether generators and the learner may send it; what comes against its way is refused."""
    from_coordinator: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Message):
    """Any peer -> coordinator, first message. The answer is `Welcome`."""

    reliable: ClassVar[bool] = False
    name: str
    """"gen-0", "learner"."""
    incarnation: str
    pid: int
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome(Message):
    """Coordinator -> peer: accepted (`error` None) or refused with the reason."""

    reliable: ClassVar[bool] = False
    to_coordinator: ClassVar[bool] = False
    from_coordinator: ClassVar[bool] = True
    error: str | None = None
    resume: dict[str, Any] = field(default_factory=dict)
    """What the peer needs to start: {"branch", "step", "checkpoint", "keep_checkpoints"}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit(Message):
    """Generator -> coordinator: how many tasks it may hold in all (absolute, not a delta)."""

    reliable: ClassVar[bool] = False
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignTask(Message):
    """Coordinator -> generator: write, validate and hint one environment. Re-issued if lost."""

    to_coordinator: ClassVar[bool] = False
    from_coordinator: ClassVar[bool] = True
    task_id: str
    group_id: str
    min_version: int
    """Packed `PolicyVersion` that must be loaded before the first token."""
    skill: str
    document: str
    document_id: str
    exemplars: list[dict[str, Any]]
    """From memory, see `grounding.memory.Memory.exemplars`."""
    temperature: float
    max_new_tokens: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignResult(Message):
    """Generator -> coordinator. Re-sent until acknowledged (after the ledger commit)."""

    task_id: str
    group_id: str
    source: str
    """Program text as parsed from the reply ("" when nothing could be parsed)."""
    rejection: dict[str, Any] | None
    """{"stage", "reason", "outcome"} or None when it is a valid environment."""
    missing_reason: str | None
    """Our own fault (engine, jail): the sample is missing. None otherwise."""
    hint: str | None
    hint_mode: str
    leak_share: float
    jail: dict[str, Any]
    """{"calls", "wall_s", "outcomes": {outcome: n}}."""
    timing: dict[str, float] = field(default_factory=dict)
    """Seconds since it began (see `generator/meter.py`): {"total_s", "engine_s", "queue_s"}."""
    prompt: dict[str, Any] = field(default_factory=dict)
    """{"tokens"} of the prompt, and what was left out of it, see `generator/design_prompt.py`."""
    signature: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """MinHash of the program's syntax tree (`grounding/signature.py`); empty when not known."""
    repaired: list[str] = field(default_factory=list)
    """What was done before the program was valid: "fences", "braces" (to its text), "turn" (the
    policy wrote it anew; the trace is that of the first reply). [] of one as it was written."""
    repair_turns: int = 0
    """Turn that made the program, 0 is the first reply."""
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """Every reply that was rejected, in order: [{"stage", "reason"}]."""
    verdicts: dict[str, Any] = field(default_factory=dict)
    """{"validator", "judge"}: "yes", "no" or "none" of those that were asked."""
    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    generator_logprobs: NDArray[np.float32]
    versions: NDArray[np.int64]
    experts: NDArray[np.int16] = field(default_factory=no_experts)
    """As in `EpisodeResult`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayTask(Message):
    """Coordinator -> generator: play one environment on these seeds in one arm."""

    to_coordinator: ClassVar[bool] = False
    from_coordinator: ClassVar[bool] = True
    task_id: str
    group_id: str
    environment_id: str
    source: str
    hint: str | None
    """Environment-wide hint text; None with `hint_mode` "environment": the instance gives it."""
    hint_mode: str
    arm: str
    seeds: list[int]
    min_version: int
    max_turns: int
    max_new_tokens: int
    """Per turn."""
    temperature: float
    purpose: str
    """"train", "measure" (hinted arm) or "eval"."""
    seed: int
    """Root of the sampling seeds; episode i uses derive(seed, i)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult(Message):
    """Generator -> coordinator: one finished episode. Re-sent until acknowledged."""

    task_id: str
    group_id: str
    environment_id: str
    arm: str
    index: int
    """Position of the seed in the task."""
    seed: int
    purpose: str
    outcome: str
    detail: str
    episode_return: float | None
    missing_reason: str | None
    num_turns: int
    transcript: list[dict[str, Any]]
    """[{"action", "observation", "reward"}], bounded texts."""
    observation: str
    hint_text: str | None
    jail: dict[str, Any]
    timing: dict[str, float] = field(default_factory=dict)
    """As in `DesignResult`."""
    starts: list[int] = field(default_factory=list)
    """Where each token sequence begins, see `TokenTrace.starts`; [] is one."""
    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    generator_logprobs: NDArray[np.float32]
    versions: NDArray[np.int64]
    experts: NDArray[np.int16] = field(default_factory=no_experts)
    """See `TokenTrace.experts`; empty: the engine said nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTask(Message):
    """Coordinator -> generator: end a task that is waited for no longer. Answered by `TaskCut`."""

    to_coordinator: ClassVar[bool] = False
    from_coordinator: ClassVar[bool] = True
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCut(Message):
    """Generator -> coordinator: the task is ended (or was never here) and its slot is free."""

    task_id: str
    tokens: int
    """Tokens it had sampled for results that were not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch(Message):
    """Coordinator -> learner: the samples of one step, concatenated. Re-sent if lost.

    Example: two samples of 3 and 2 tokens give ``offsets == [0, 3, 5]`` and arrays of length 5.
    """

    to_coordinator: ClassVar[bool] = False
    from_coordinator: ClassVar[bool] = True
    branch: int
    step: int
    """The step this batch produces: weights (branch, step - 1) become (branch, step)."""
    sample_ids: list[str]
    roles: list[str]
    staleness_min: int
    staleness_max: int
    checkpoint: bool
    """Whether this step is checkpointed before it is reported."""
    offsets: NDArray[np.int64]
    """[N + 1] start of each sample in the arrays below."""
    advantages: NDArray[np.float32]
    """[N]"""
    staleness: NDArray[np.int64]
    """[N] learner steps between the oldest trained token and this step."""
    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    generator_logprobs: NDArray[np.float32]
    versions: NDArray[np.int64]
    experts: NDArray[np.int16] = field(default_factory=no_experts)
    """[tokens, routers, k], see `TokenTrace.experts`; empty: no engine said anything."""
    groups: list[int] = field(default_factory=list)
    """[N] number of the group of each sample within this batch, -1 when unknown; may be empty."""
    worths: list[float] = field(default_factory=list)
    """[N] return of an episode, pay of a design; empty when no critic asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport(Message):
    """Learner -> coordinator: the step is done, weights are stored, checkpoint is durable."""

    branch: int
    step: int
    applied: bool
    """False: the update was not finite and was set aside; the weights equal the step before."""
    metrics: dict[str, float]
    sample_ids: list[str]
    checkpoint: str | None
    """Folder name under checkpoints/, or None when this step was not checkpointed."""
    quarantine: str | None
    location: str
    """Where the weights of (branch, step) are, for `WeightsPublished`."""
    digest: str
    attestation: dict[str, Any] = field(default_factory=dict)
    """`weights.attestation.Attestation.as_message`; {} asks for none."""
    publish_s: float
    busy_s: float
    """Seconds the learner worked on this step."""
    wait_s: float
    """Seconds it waited for the batch."""
    token_logprobs: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    """Of the batch's trained tokens in its order, under the weights before the step; NaN where
    nothing was computed. Empty: the learner has no such figures."""
    token_weights: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    """What the correction rule multiplied the advantages by; as above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPublished(Message):
    """Learner (through the coordinator, after its commit) -> generators. Newer supersedes."""

    from_coordinator: ClassVar[bool] = True
    version: int
    """Packed `PolicyVersion`."""
    location: str
    digest: str
    attestation: dict[str, Any] = field(default_factory=dict)
    """The learner's own numbers, see `StepReport.attestation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsLoaded(Message):
    """Generator -> coordinator: what it really loaded (the digest is recomputed from the bytes).

    One with `attested` False says that the weights are in and are wrong: the generator withdraws
    its credit, uses none of their tokens and loads again.
    """

    version: int
    digest: str
    load_s: float
    """Seconds from message to swapped."""
    pause_s: float
    """Seconds in which no token was decoded."""
    attested: bool = True
    """The weights agree with the learner's numbers, as far as there were any."""
    reason: str = ""
    """What disagrees."""
    probe_gap: float = 0.0
    """Largest difference of a log-probability, nats."""
    attest_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Message):
    """Any peer -> coordinator, about once a second, from a thread that does no model work."""

    reliable: ClassVar[bool] = False
    name: str
    state: str
    """"starting", "idle", "working", "loading_weights", "disk_full", "stopping"."""
    waits_for: str
    progress: int
    """Grows with each unit of work; a hang is a counter that stands still."""
    oldest_wait_s: float
    metrics: dict[str, float]
    """Counters and gauges since start, e.g. {"tokens", "busy_s", "idle_s", "jail_p50_s"}."""
    jail: str = ""
    """Level of the jail that holds, and what it lacks; "" of a part without a jail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFailed(Message):
    """Any peer -> coordinator, last words: the boundary that broke and the message."""

    name: str
    boundary: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Message):
    """Coordinator -> all: finish what is running (`finish`) or leave at once, then exit 0."""

    to_coordinator: ClassVar[bool] = False
    from_coordinator: ClassVar[bool] = True
    reason: str
    finish: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint(Message):
    """Coordinator -> learner, at the end of a run: save the present state, which has none."""

    to_coordinator: ClassVar[bool] = False
    from_coordinator: ClassVar[bool] = True
    branch: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(Message):
    """Learner -> coordinator, the answer: it is durable under this name."""

    branch: int
    step: int
    checkpoint: str


MESSAGES: tuple[type[Message], ...] = (
    Hello, Welcome, Credit, DesignTask, DesignResult, PlayTask, EpisodeResult, CancelTask, TaskCut,
    TrainingBatch, StepReport, WeightsPublished, WeightsLoaded, Heartbeat, ProcessFailed, Stop,
    SaveCheckpoint, CheckpointSaved,
)  # fmt: skip
"""All records in wire order; a record's kind on the wire is its class name."""
