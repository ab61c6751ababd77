"""Fetch TRL into a virtual environment of its own: ``python -m benches.grpo.install``."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "trl"
REQUIREMENTS = Path(__file__).with_name("requirements-trl.txt")
VARIABLE = "SPADE_TRL_PYTHON"


def python() -> Path | None:
    """Interpreter that has TRL: the one that the variable names, or the one made here."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else FOLDER / "bin" / "python"
    return path if path.exists() else None


def main() -> int:
    """Make the environment; some gigabytes."""
    venv.create(FOLDER, with_pip=True)
    command = [FOLDER / "bin" / "python", "-m", "pip", "install", "-r", REQUIREMENTS]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
