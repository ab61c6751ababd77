"""Where the agent's pool plays get their programs: a folder (`agent.pool`) or the domain.

A program that fails when it is played is taken out, counted and named. A resume finds it again:
what is out is a finding of the present process, not a durable fact.
"""

from __future__ import annotations

import logging

from spade_async.domain import Domain
from spade_async.environment.contract import environment_id, skeleton
from spade_async.environment.pool_folder import PoolProgram, read_pool
from spade_async.environment.text import one_line
from spade_async.types import Environment

log = logging.getLogger(__name__)


class SeedPool:
    """Draws programs by seed."""

    def __init__(self, domain: Domain, folder: str = "") -> None:
        """Read the folder, if there is one.

        Raises:
            ConfigError: it is not there, or holds nothing that can be used.
        """
        self._domain = domain
        self._programs: dict[str, PoolProgram] = {}
        self.num_skipped = 0
        """Files of the folder that could not be used."""
        self.num_failed = 0
        """Programs that were taken out since the start."""
        self._has_folder = bool(folder)
        if folder:
            found = read_pool(folder)
            self._programs = {program.environment_id: program for program in found.programs}
            self.num_skipped = len(found.skipped)
            (log.warning if found.skipped or found.notes else log.info)("pool %s", found.summary())

    def draw(self, seed: int) -> Environment | None:
        """A program, the same for the same seed and the same programs; None when there is none."""
        if self._has_folder:
            if not self._programs:
                return None
            ids = list(self._programs)
            return self._environment(self._programs[ids[seed % len(ids)]])
        source = next(self._domain.seed_environments(seed), None)
        if source is None:
            return None
        return Environment(
            environment_id=environment_id(source),
            source=source,
            labels=tuple(sorted(self._domain.labels(source).items())),
            skeleton=skeleton(source),
            origin="seed",
        )

    def failed(self, identity: str, reason: str) -> str | None:
        """Take out a program of the folder that failed in play; what to tell, or None."""
        program = self._programs.pop(identity, None)
        if program is None:
            return None
        self.num_failed += 1
        return (
            f"pool program {one_line(program.file)} fails and is not played again: {reason} "
            f"({len(self._programs)} left)"
        )

    def figures(self) -> dict[str, float]:
        """Metrics of a folder, by tag; {} without one."""
        if not self._has_folder:
            return {}
        return {
            "pool/programs": float(len(self._programs)),
            "pool/skipped": float(self.num_skipped),
            "pool/failed": float(self.num_failed),
        }

    def _environment(self, program: PoolProgram) -> Environment:
        labels = dict(self._domain.labels(program.source))
        return Environment(
            environment_id=program.environment_id,
            source=program.source,
            # Pool plays show no hint, so none has to be there.
            hint_mode=program.hint_mode or "none",
            hint=program.hint,
            labels=tuple(sorted(labels.items())),
            skeleton=skeleton(program.source),
            origin="seed",
        )
