"""Domain records that cross modules: roles, versions, outcomes, environments, episodes, samples.

Every record is frozen. What becomes of untrusted code is a value here (`Outcome`); a number that
does not exist is ``None``, never 0.0. This module imports nothing of ours and nothing heavy.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Role(enum.StrEnum):
    """Which of the two roles of the one policy made a sample."""

    DESIGNER = "designer"
    AGENT = "agent"


class Arm(enum.StrEnum):
    """Condition of an episode: with or without the privileged hint."""

    WITH_HINT = "with_hint"
    NO_HINT = "no_hint"


class Outcome(enum.StrEnum):
    """What became of a call into untrusted code. Closed set with stable strings."""

    FINISHED = "finished"
    """The call returned a well-formed value."""
    EXCEPTION = "exception"
    """It raised; the traceback is cleaned and bounded."""
    BAD_VALUE = "bad_value"
    """It returned something the contract forbids (NaN reward, wrong tuple, coroutine)."""
    TIMED_OUT = "timed_out"
    """The wall or CPU deadline passed and the worker was killed; `detail` names which."""
    OVER_MEMORY = "over_memory"
    """The memory limit was hit."""
    OVER_OUTPUT = "over_output"
    """A reply above the byte cap, or a flood on stdout."""
    REFUSED_CALL = "refused_call"
    """A system call was refused and ended the call."""
    CRASHED = "crashed"
    """The worker died by a signal or left by itself; `detail` names the signal."""
    PROTOCOL_VIOLATION = "protocol_violation"
    """The worker wrote something that is not a frame of the protocol."""


class PolicyVersion(NamedTuple):
    """A weight set: (branch, step). Never reused; a fall-back opens a new branch.

    `packed` is the int64 that travels per token: ``branch << 32 | step``.
    """

    branch: int
    step: int

    @property
    def packed(self) -> int:
        """This version as one non-negative int64."""
        return (self.branch << 32) | self.step

    @classmethod
    def unpack(cls, packed: int) -> PolicyVersion:
        """Inverse of `packed`."""
        return cls(packed >> 32, packed & 0xFFFFFFFF)

    def __str__(self) -> str:
        return f"{self.branch}.{self.step}"


NO_VERSION = -1
"""Value in a per-token version array where no policy sampled the token (prompt, observation)."""
NO_EXPERT = -1
"""Value in an array of chosen experts where the engine did not say."""


class RegretClass(enum.StrEnum):
    """Where an environment stands for the present agent."""

    FRONTIER = "frontier"
    MASTERED = "mastered"
    OUT_OF_REACH = "out_of_reach"


class Stage(enum.StrEnum):
    """Validation stage at which a draft was rejected, in order."""

    PARSE = "parse"
    LOAD = "load"
    RESET = "reset"
    STEP = "step"
    DETERMINISM = "determinism"
    TERMINATION = "termination"
    REWARD = "reward"
    HINT = "hint"
    IMPORTS = "imports"
    DIVERSITY = "diversity"
    REACTION = "reaction"
    RANDOM_PLAY = "random_play"
    SOLUTION = "solution"
    VALIDATOR = "validator"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a draft is not an environment. The designer's fault: a bounded negative signal."""

    stage: Stage
    reason: str
    """One bounded line, safe to print."""
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """A validated task program the designer (or the seed pool) wrote."""

    environment_id: str
    """First 16 hex digits of sha256 of the source."""
    source: str
    hint_mode: str = "environment"
    hint: str | None = None
    """Hint text of the whole environment; None when the program gives one per instance."""
    leak_share: float = 0.0
    """Share of probed seeds where the hint alone is the answer, in [0, 1]."""
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted (name, value) pairs from the domain hook; the core only groups by them."""
    skeleton: str = ""
    """Digest of the program's shape with literals removed."""
    origin: str = "designer"
    """"designer", "seed" (seed pool) or "held_out"."""

    def label(self, name: str) -> str | None:
        """Value of one label, or None."""
        return dict(self.labels).get(name)


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """The tokens of one sample, exactly as the engine saw and made them (never re-tokenised).

    All arrays have length [L] = prompt + everything after it. A sample whose turns have prompts of
    their own (thinking, see `agent.conversation`) is several sequences, one after the other.
    """

    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    """1 where the policy sampled the token, 0 for prompt and environment text."""
    generator_logprobs: NDArray[np.float32]
    """Log-probability of the sampled token after temperature; 0 where loss_mask is 0."""
    versions: NDArray[np.int64]
    """Packed `PolicyVersion` of each sampled token; NO_VERSION where loss_mask is 0."""
    starts: tuple[int, ...] = ()
    """Where each token sequence begins, when there are several: (0, 40, 95). They are read apart,
    none continues another. () is one sequence."""
    experts: NDArray[np.int16] | None = None
    """[L, routers, k] experts that the engine chose for each token it read; NO_EXPERT where it did
    not say, as for the last token, which it never read. None: it said nothing at all."""

    def sequences(self) -> tuple[TokenTrace, ...]:
        """The token sequences, as views."""
        if len(self.starts) < 2:
            return (self,)
        ends = (*self.starts[1:], len(self.token_ids))
        return tuple(
            TokenTrace(
                self.token_ids[start:end],
                self.loss_mask[start:end],
                self.generator_logprobs[start:end],
                self.versions[start:end],
                experts=None if self.experts is None else self.experts[start:end],
            )
            for start, end in zip(self.starts, ends, strict=True)
        )

    @property
    def num_trained_tokens(self) -> int:
        """Number of tokens the loss sees."""
        return int(self.loss_mask.sum())


def joined_experts(
    parts: Sequence[tuple[NDArray[np.int16] | None, int]],
) -> NDArray[np.int16] | None:
    """Experts of several token sequences, one after the other; None when nothing is known of any.

    Args:
        parts: [tokens, routers, k] of each, or None, and its number of tokens.
    """
    known = [experts for experts, _ in parts if experts is not None]
    if not known:
        return None
    shape = known[0].shape[1:]
    return np.concatenate(
        [
            np.full((num_tokens, *shape), NO_EXPERT, np.int16) if experts is None else experts
            for experts, num_tokens in parts
        ]
    )


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: what the agent said and what the environment answered."""

    action: str
    observation: str
    reward: float
    terminated: bool
    truncated: bool


@dataclass(frozen=True, slots=True)
class Episode:
    """One interaction until the end. `episode_return` is None when the sample is missing."""

    environment_id: str
    seed: int
    arm: Arm
    outcome: Outcome
    detail: str
    observation: str
    """First observation, without the hint."""
    turns: tuple[Turn, ...]
    episode_return: float | None
    """Return in [-1, 1], or None when the environment failed or we did."""
    missing_reason: str | None
    """Why there is no return; None when there is one."""
    trace: TokenTrace | None
    jail_wall_s: float = 0.0
    jail_cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RegretEstimate:
    """Hint-based regret of one environment from pairs on the same seeds."""

    regret: float
    """Mean over complete pairs of (return with hint - return without), before the leak factor."""
    standard_error: float | None
    """Standard error over pairs; None with fewer than two."""
    paid_regret: float
    """regret * (1 - leak_share), by `regret.pay` less its doubt: what the designer is paid from."""
    mean_with_hint: float
    mean_no_hint: float
    num_pairs: int
    """Complete ones."""
    regret_class: RegretClass
    lower_bound: float | None = None
    """Of the regret, at `regret.confidence`; None in ledgers of an earlier version."""
    num_played: int | None = None
    """Pairs that were played, complete or not."""
    is_stopped: bool = False
    """Whether the class was certain before all pairs were played."""


@dataclass(frozen=True, slots=True)
class MissingRegret:
    """There is no estimate, and why. Never a number."""

    reason: str


@dataclass(frozen=True, slots=True)
class CallReport:
    """What one call into the jail cost, seen from outside."""

    wall_s: float = 0.0
    cpu_s: float | None = None
    reply_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of one jailed call (load, reset, step, hint). `outcome` decides what is set.

    Only a FINISHED reply carries values: `observation` for reset and step (and the hint text for
    hint), `reward`, `terminated`, `truncated` for step. Any other outcome carries `detail`.
    """

    outcome: Outcome
    observation: str = ""
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    detail: str = ""
    """One or few bounded lines: exception type and message, signal, limit that was hit. Of the
    last step of an episode: what `info` says of success, "success", "no success" or ""."""
    report: CallReport = field(default_factory=CallReport)

    @property
    def ok(self) -> bool:
        """Whether the call returned a well-formed value."""
        return self.outcome is Outcome.FINISHED
