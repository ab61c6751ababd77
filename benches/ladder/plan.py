"""What one run of the ladder measures: sizes, sources, interpreter."""

from __future__ import annotations

import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

from benches.ladder.workload import GRID, NUMPY_GRID

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "sandbox_rs" / "runner" / "runner.py"


@dataclass(frozen=True)
class Plan:
    """Sizes and sources. `quick` only shows that every rung still works."""

    quick: bool
    source: str = GRID
    numpy_source: str = NUMPY_GRID
    own_source: bool = False
    """The source is the caller's: it never runs without a jail."""

    @property
    def num_rounds(self) -> int:
        """Turns of the cheap rungs."""
        return 3 if self.quick else 60

    @property
    def num_live(self) -> int:
        """Sessions alive at once in the rungs over many."""
        return 200

    @property
    def per_turn(self) -> int:
        """Samples of an episode-sized rung per turn."""
        return 2 if self.quick else 6

    @property
    def steps_per_turn(self) -> int:
        """Samples of a step-sized rung per turn."""
        return 25 if self.quick else 100


def import_names(numpy: bool) -> list[str]:
    """The modules that the jail's template imports: read from its runner."""
    names = list(runpy.run_path(str(RUNNER))["MODULES"])
    if numpy:
        names += ["numpy", "numpy.random", "numpy.linalg", "numpy.fft"]
    return names


INTERPRETER = ["-S", "-s", "-P", "-B", "-X", "utf8"]
"""Flags of every interpreter on the ladder: those of the jail's template."""

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Variables of every interpreter on the ladder: those of the jail's template."""


def import_paths() -> list[str]:
    """Folders searched for modules, as the jail's template gets them."""
    return [path for path in sys.path if path]
