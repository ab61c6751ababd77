"""The checkpoint at the end: a run that stops between two checkpoints asks for one more.

With `checkpoint.every` above 1 the newest step may have none. Its samples would be trained again
after a resume, so nothing would be lost but the learner's time; this saves the time as well. A
learner that is dead by then cannot save what it had in memory.
"""

from __future__ import annotations

import logging

from spade_async.coordinator.core import Core
from spade_async.transport.hub import Hub
from spade_async.transport.messages import CheckpointSaved, SaveCheckpoint

log = logging.getLogger(__name__)


class LastSave:
    """Whether the newest step has a checkpoint; asks for it once."""

    def __init__(self, core: Core, hub: Hub, learner: str) -> None:
        self._core = core
        self._hub = hub
        self._learner = learner
        self.is_done = True
        """The newest version is the start model, or has a checkpoint."""
        self._is_asked = False

    def step(self, checkpoint: str | None) -> None:
        """A step was committed, with or without one."""
        self.is_done = checkpoint is not None

    def loaded(self) -> None:
        """The learner starts from what is saved."""
        self.is_done, self._is_asked = True, False

    async def ask(self) -> None:
        """Ask the learner, which has nothing else to do any more."""
        if self.is_done or self._is_asked:
            return
        self._is_asked = True
        log.info("step %d has no checkpoint: the learner saves it", self._core.step)
        await self._hub.send(
            self._learner, SaveCheckpoint(branch=self._core.branch, step=self._core.step)
        )

    def on_saved(self, message: CheckpointSaved) -> None:
        """It is durable; inside a transaction."""
        core = self._core
        if (message.branch, message.step) == (core.branch, core.step):
            core.ledger.set_checkpoint(message.branch, message.step, message.checkpoint)
            self.is_done = True
