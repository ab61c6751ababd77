"""Scripted generator and learner for the coordinator: random outcomes, no engine, no jail."""

from __future__ import annotations

import random

import numpy as np

from spade_async.grpo.samples import whole_ids
from spade_async.seeds import derive
from spade_async.transport import messages as m
from spade_async.types import NO_VERSION


def arrays(version: int, tokens: int = 3) -> dict[str, np.ndarray]:
    """A prompt token and some sampled ones of one version."""
    length = tokens + 1
    mask = np.array([0] + [1] * tokens, dtype=np.uint8)
    return {
        "token_ids": np.arange(length, dtype=np.int32),
        "loss_mask": mask,
        "generator_logprobs": np.where(mask == 1, -0.5, 0.0).astype(np.float32),
        "versions": np.where(mask == 1, version, NO_VERSION).astype(np.int64),
    }


class ScriptedGenerator:
    """Answers tasks at once; sources and returns follow from the task's seed."""

    def __init__(self, *, validity: float = 0.9, missing: float = 0.02) -> None:
        self.validity = validity
        self.missing = missing
        self.version = 0

    def __call__(self, message: m.Message) -> list[m.Message]:
        match message:
            case m.Welcome():
                return self._load(message.resume["version"], message.resume["digest"])
            case m.WeightsPublished():
                return self._load(message.version, message.digest)
            case m.DesignTask():
                return [self._design(message)]
            case m.CancelTask():
                return [m.TaskCut(task_id=message.task_id, tokens=0)]
            case m.PlayTask():
                return [self._episode(message, i) for i in range(len(message.seeds))]
            case _:
                return []

    def _load(self, version: int, digest: str) -> list[m.Message]:
        self.version = version
        return [m.WeightsLoaded(version=version, digest=digest, load_s=0.0, pause_s=0.0)]

    def _design(self, task: m.DesignTask) -> m.DesignResult:
        assert self.version >= task.min_version
        draw = random.Random(task.seed)
        valid = draw.random() < self.validity
        ours = draw.random() < self.missing
        kind = draw.randrange(12)
        return m.DesignResult(
            task_id=task.task_id,
            group_id=task.group_id,
            source=f"class T{kind}Env:\n    family = 'f{kind}'\n    n = {draw.randrange(100)}\n",
            rejection=None if valid else {"stage": "load", "reason": "no", "outcome": "exception"},
            missing_reason="ours: engine" if ours else None,
            hint=None,
            hint_mode="environment",
            leak_share=0.0,
            jail={"calls": 3, "wall_s": 0.01, "outcomes": {"finished": 3}},
            timing={"total_s": 0.5, "engine_s": 0.25, "queue_s": 0.125},
            **arrays(self.version),
        )

    def _episode(self, task: m.PlayTask, index: int) -> m.EpisodeResult:
        assert self.version >= task.min_version
        draw = random.Random(derive(task.seed, index))
        gone = draw.random() < self.missing
        return m.EpisodeResult(
            task_id=task.task_id,
            group_id=task.group_id,
            environment_id=task.environment_id,
            arm=task.arm,
            index=index,
            seed=task.seeds[index],
            purpose=task.purpose,
            outcome="finished",
            detail="",
            episode_return=None if gone else float(draw.random() < 0.5),
            missing_reason="ours: gone" if gone else None,
            num_turns=1,
            transcript=[],
            observation="?",
            hint_text=None,
            jail={"calls": 2, "wall_s": 0.01, "outcomes": {"finished": 2}},
            timing={"total_s": 0.5, "engine_s": 0.25, "queue_s": 0.125},
            **arrays(self.version),
        )


class ScriptedLearner:
    """Reports every batch as trained; remembers what it was given."""

    def __init__(self) -> None:
        self.trained: list[m.TrainingBatch] = []
        self.saved: list[str] = []
        """Checkpoints at the end of a run, by name."""

    def __call__(self, message: m.Message) -> list[m.Message]:
        match message:
            case m.Welcome():
                version = (message.resume["branch"] << 32) | message.resume["step"]
                return [m.WeightsPublished(version=version, location="w", digest=f"d{version}")]
            case m.TrainingBatch():
                self.trained.append(message)
                return [self._report(message)]
            case m.SaveCheckpoint():
                name = f"c-{message.branch}-{message.step}"
                self.saved.append(name)
                return [
                    m.CheckpointSaved(branch=message.branch, step=message.step, checkpoint=name)
                ]
            case _:
                return []

    def _report(self, batch: m.TrainingBatch) -> m.StepReport:
        version = (batch.branch << 32) | batch.step
        return m.StepReport(
            branch=batch.branch,
            step=batch.step,
            applied=True,
            metrics={"learner/loss": 0.1},
            sample_ids=whole_ids(batch.sample_ids),
            checkpoint=f"c-{batch.branch}-{batch.step}" if batch.checkpoint else None,
            quarantine=None,
            location="w",
            digest=f"d{version}",
            publish_s=0.0,
            busy_s=0.01,
            wait_s=0.01,
        )


def hello(name: str) -> m.Hello:
    """First message of a scripted peer."""
    return m.Hello(name=name, incarnation="1", pid=1)
