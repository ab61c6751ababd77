"""What a run folder comes to hold: what stays the same size, and what grows by the day."""

from __future__ import annotations

from dataclasses import dataclass

from spade_async.config.schema import Config
from spade_async.planning.holding import Holding
from spade_async.planning.rates import Hourly, Work

SAMPLE_BYTES = 760
"""Of the ledger per sample without its tokens; measured over 1,000 steps (docs/probes.md)."""
TOKEN_TEXT_BYTES = 4
"""Of a token as text: programs and transcripts; an assumption."""
TRANSCRIPT_BYTES = 4 << 10
"""Most that a group's transcripts take (docs/looking.md)."""
TOKEN_BYTES = 9
"""Id, log-probability and version of a token in the ledger, compressed; an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Bytes."""

    checkpoints: int
    """Those that are kept, and the one being written."""
    weights: int
    """Weight sets in the run folder; 0 when they are in shared memory."""
    traces: int
    """Tokens of the samples that a fall-back may train again."""
    ledger_per_day: int | None
    """Growth; None while the pace is unknown."""
    written_per_day: int | None
    """Checkpoints written in a day, kept or not."""

    @property
    def steady(self) -> int:
        """What does not grow."""
        return self.checkpoints + self.weights + self.traces


def disk_of(config: Config, holding: Holding, work: Work, pace: Hourly | None) -> Disk:
    """The disk of a configuration at that pace."""
    checkpoint, keep = config.checkpoint, config.checkpoint.keep
    tokens = work.sampled_tokens * checkpoint.every * keep
    samples = work.designs + work.episodes
    said = TOKEN_TEXT_BYTES * work.episode_tokens * work.episodes
    texts = min(said, config.agent.groups_per_step * TRANSCRIPT_BYTES)
    texts += TOKEN_TEXT_BYTES * work.design_tokens * work.designs
    per_step = samples * SAMPLE_BYTES + texts
    in_folder = config.weights.location == "run_folder"
    per_day = None if pace is None else round(24 * pace.steps * per_step)
    writes = None if pace is None else 24 * pace.steps / checkpoint.every
    return Disk(
        checkpoints=(keep + 1) * holding.checkpoint_bytes,
        weights=(config.weights.keep + 1) * holding.published_bytes if in_folder else 0,
        traces=round(tokens * TOKEN_BYTES),
        ledger_per_day=per_day,
        written_per_day=None if writes is None else round(writes * holding.checkpoint_bytes),
    )
