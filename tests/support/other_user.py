"""Run a program of a test as an ordinary user, wherever the interpreter lies."""

import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def as_other_user(user: int = 65534) -> list[str]:
    """Start of a command that runs the rest as `user` (uid and gid), without any right.

    Skips the test where that cannot be done. An interpreter below a private home is made reachable
    in a mount namespace of the command's own.
    """
    if os.geteuid() != 0:
        pytest.skip("becomes another user: needs root")
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        pytest.skip("needs setpriv and unshare")
    for prefix in (Path(sys.prefix), ROOT):
        closed = [at for at in (prefix, *prefix.parents) if not at.stat().st_mode & 0o001]
        if closed and closed != [Path("/root")]:
            pytest.skip(f"another user cannot enter {closed[-1]}")
    home = Path(sys.base_prefix).resolve()
    stage = "set -e; "
    if home.parts[1] in ("root", "home"):
        if str(ROOT).startswith(f"/{home.parts[1]}/"):
            pytest.skip(f"another user cannot read {ROOT}")
        top = f"/{home.parts[1]}"
        stage += (
            f'mount -t tmpfs tmpfs /mnt; mkdir /mnt/home; mount --bind "{home}" /mnt/home; '
            f'mount -t tmpfs tmpfs "{top}"; '
            f'chmod 755 "{top}"; mkdir -p "{home}"; mount --bind /mnt/home "{home}"; '
        )
    stage += f'exec setpriv --reuid={user} --regid={user} --clear-groups -- "$@"'
    return ["unshare", "--mount", "sh", "-c", stage, "sh"]
