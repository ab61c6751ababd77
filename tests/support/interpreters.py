"""Other interpreters of this machine that a template may be."""

import shutil
import subprocess
from pathlib import Path

NAMES = ("python3.11", "python3.12", "python3.13", "python3.14")


def other_interpreters() -> dict[str, str]:
    """Path of an interpreter for each name that runs: on the PATH, or of pyenv."""
    found = {}
    for name in NAMES:
        version = name.removeprefix("python")
        mine = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
        for path in (shutil.which(name), *mine):
            # A name on the PATH may be a shim, also for a version that is not installed.
            said = path and subprocess.run(
                [path, "-c", "import sys; print(sys.executable)"],
                capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
            if said and said.returncode == 0:
                found[name] = said.stdout.strip()
                break
    return found
