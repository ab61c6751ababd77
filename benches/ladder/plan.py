"""What one run of the ladder measures: sizes, sources, interpreter."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from benches.ladder.workload import GRID, NUMPY_GRID

ROOT = Path(__file__).resolve().parents[2]
PARTS = ROOT / "sandbox_rs" / "src" / "runner.rs"
SHARED = ROOT / "target" / "bench"
"""Written by the bench, read by the other jails."""


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
        """Turns: one sample each of the rungs as long as an episode's start."""
        return 6 if self.quick else 300

    @property
    def every(self) -> int:
        """Rounds between two turns of the rungs that start a whole process."""
        return 3 if self.quick else 10

    @property
    def num_live(self) -> int:
        """Sessions alive at once in the rungs over many."""
        return 200

    @property
    def steps_per_turn(self) -> int:
        """Samples of a step-sized rung per turn."""
        return 25 if self.quick else 100


def runner_text() -> str:
    """The jail's runner as one text: the parts that the extension is built from, in its order."""
    parts = re.findall(r'include_str!\("([^"]+)"\)', PARTS.read_text())
    return "".join((PARTS.parent / part).read_text() for part in parts)


def runner_file() -> Path:
    """The runner as a file that the other jails can read."""
    SHARED.mkdir(parents=True, exist_ok=True)
    path = SHARED / "runner.py"
    path.write_text(runner_text())
    return path


def import_names(numpy: bool) -> list[str]:
    """The modules that the jail's template imports: read from its runner, not executed."""
    names: list[str] = []
    for node in ast.parse(runner_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "MODULES":
            names += ast.literal_eval(node.value)
    if not names:
        raise RuntimeError("the runner names no MODULES any more: adapt benches/ladder/plan.py")
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
