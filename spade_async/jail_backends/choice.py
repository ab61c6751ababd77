"""Names of the backends, and the check of a choice among them. Imports nothing heavy."""

from __future__ import annotations

import difflib

BACKENDS = ("native", "nsjail", "subprocess")


def check_backend(backend: str, allow_unsafe: bool) -> None:
    """Refuse a backend that does not exist, or that does not confine and was not spelled out.

    Raises:
        ValueError: the name is unknown, or `subprocess` is asked for without `allow_unsafe=True`.
    """
    if backend not in BACKENDS:
        near = difflib.get_close_matches(str(backend), BACKENDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(BACKENDS)}"
        raise ValueError(f"sandbox.backend={backend!r}: {hint}")
    if backend == "subprocess" and allow_unsafe is not True:
        raise ValueError(
            'sandbox.backend="subprocess" runs the code without a jail: it can read, delete and '
            'send whatever its owner can. Use "native" or "nsjail"; for code that you trust, spell '
            "out allow_unsafe=True"
        )
