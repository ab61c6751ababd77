"""The whole suite once more as a user without any rights, with the same table of outcomes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.attacks.conftest import REPORT

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534

INNER = """
import os, sys, pytest
assert os.getuid() == 65534
sys.exit(pytest.main(["tests/attacks", "-q", "-p", "no:cacheprovider", "--timeout=120",
                      "--basetemp", sys.argv[1], "-o", "addopts="]))
"""


def stage(folder: Path) -> str:
    """Shell code that makes the interpreter reachable for another user, where that is needed.

    An interpreter below a private home is bound elsewhere, in a mount namespace of the test's own.
    """
    home = Path(sys.base_prefix).resolve()
    top = home.parts[1]
    if top not in ("root", "home") or str(ROOT).startswith(f"/{top}/"):
        return ""
    return (
        f'mount --bind "{home}" "{folder}" && mount -t tmpfs tmpfs "/{top}" && '
        f'chmod 755 "/{top}" && mkdir -p "{home}" && mount --bind "{folder}" "{home}" && '
    )


@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root")
def test_the_suite_holds_as_an_unprivileged_user() -> None:
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        pytest.skip("needs setpriv and unshare")
    with tempfile.TemporaryDirectory(prefix="spade-attacks-") as name:
        folder, bound = Path(name), Path(name, "bound")
        bound.mkdir()
        folder.chmod(0o755)
        os.chown(folder, NOBODY, NOBODY)
        report = folder / "outcomes.json"
        script = (
            stage(bound) + f'exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups -- "$@"'
        )
        command = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-B", "-c"]
        done = subprocess.run(
            [*command, INNER, str(folder / "base")], cwd=ROOT, capture_output=True, text=True,
            check=False, timeout=800, env={**os.environ, REPORT: str(report), "HOME": name},
        )  # fmt: skip
        if not report.exists() and "mount" in done.stderr:
            pytest.skip(f"cannot set the stage here: {done.stderr[-300:]}")
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert len(json.loads(report.read_text())) > 250, "the cases were really played"
