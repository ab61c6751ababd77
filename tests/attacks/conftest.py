"""Fixtures of the attack suite: arenas, each one pool for the attacks of one file."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spade_async.types import Reply
from tests.attacks.arena import Arena, Arenas, Canary
from tests.attacks.case import Case

REPORT = "SPADE_ATTACK_REPORT"
"""Environment variable: file that gets the outcome of each case, as JSON."""


OUTCOMES: dict[str, object] = {}


@pytest.fixture(scope="module")
def arenas() -> Iterator[Arenas]:
    # Not for the whole run: tests that count processes or kill brokers must not find these.
    # Not a temporary folder of pytest's: those are closed to other users, so that the modes of
    # the file system would hide what the jail does not.
    with tempfile.TemporaryDirectory(prefix="spade-canary-") as folder:
        arenas = Arenas(Canary(Path(folder)))
        yield arenas
        arenas.close()
    OUTCOMES.update(arenas.outcomes)
    if REPORT in os.environ:
        Path(os.environ[REPORT]).write_text(json.dumps(OUTCOMES, indent=1))


@pytest.fixture
def attack(arenas: Arenas) -> Callable[[Case], Reply]:
    """Play one case between two looks at the host and at a sibling."""
    return arenas.play


@pytest.fixture
def arena(arenas: Arenas) -> Iterator[Arena]:
    """The plain arena, for attacks of more than one session; looked at before and after."""
    arena = arenas.get("plain")
    arena.check()
    yield arena
    arena.fresh()
    arena.check_at_rest()
