"""One call into a fresh worker of a pool, with any statements as its body."""

from __future__ import annotations

import textwrap

from spade_async.sandbox import SyncPool
from spade_async.types import Reply

OPEN_DESCRIPTORS = """
import os
found = []
for fd in range(4096):
    try:
        os.get_inheritable(fd)
        found.append(fd)
    except OSError:
        pass
"""
"""Statements after which `found` are the descriptors that are open."""


def environment(body: str, head: str = "") -> str:
    """Source of an environment whose `step` runs `body` and then ends with reward 1."""
    return (
        textwrap.dedent(head)
        + "\nclass ProbeEnv:\n"
        + "    def reset(self, seed=None):\n        return 'start', {}\n"
        + "    def step(self, action):\n"
        + textwrap.indent(textwrap.dedent(body), " " * 8)
        + "\n        return 'done', 1.0, True, False, {}\n"
    )


def step_in(pool: SyncPool, body: str, head: str = "", text: str = "go") -> Reply:
    """The reply of that step, or of the load that failed before it."""
    with pool.session(environment(body, head), 1) as session:
        if not session.loaded.ok:
            return session.loaded
        assert session.reset().ok
        return session.step(text)
