from __future__ import annotations

import random

import numpy as np
import pytest

from spade_async.coordinator.versions import VersionBook
from spade_async.types import PolicyVersion


@pytest.mark.parametrize("seed", range(20))
def test_it_says_what_two_plain_tables_would_say(seed: int) -> None:
    draw = random.Random(seed)
    book = VersionBook()
    ordinals: dict[int, int] = {}
    newest: dict[int, PolicyVersion] = {}
    branch = step = ordinal = 0
    for _ in range(300):
        version = PolicyVersion(branch, step)
        for _ in range(draw.choice((1, 1, 2))):  # a resume registers what is known again
            book.add(version, ordinal)
        ordinals[version.packed] = ordinal
        newest[ordinal] = version
        if draw.random() < 0.05:
            # A fall-back: a newer branch from an earlier step; what was undone stays in the count.
            branch, step = branch + 1, draw.randrange(step + 1)
            ordinal += draw.choice((0, 0, 1))
        else:
            step, ordinal = step + 1, ordinal + 1
    assert {packed: book.ordinal(packed) for packed in ordinals} == ordinals
    assert {ordinal: book.newest(ordinal) for ordinal in newest} == newest
    for packed in (-1, -(2**40), 2**62, PolicyVersion(branch + 1, 0).packed):
        assert book.ordinal(packed) is None
    with pytest.raises(KeyError):
        book.newest(ordinal + 1)


def test_what_it_remembers_does_not_grow_with_the_steps() -> None:
    book = VersionBook()
    for step in range(100_000):
        book.add(PolicyVersion(0, step), step)
    assert book.num_stretches == 1
    assert book.ordinal(PolicyVersion(0, 99_999).packed) == 99_999


def test_a_version_with_another_ordinal_is_a_fault_of_ours() -> None:
    book = VersionBook()
    book.add(PolicyVersion(0, 0), 0)
    with pytest.raises(AssertionError, match=r"version 0\.0 is used twice"):
        book.add(PolicyVersion(0, 0), 1)


def test_a_token_of_a_version_that_never_was_is_a_key_error() -> None:
    book = VersionBook()
    book.add(PolicyVersion(0, 0), 0)
    mask = np.ones(2, np.uint8)
    assert book.oldest_ordinal(np.array([0, 0]), mask) == 0
    assert book.oldest_ordinal(np.array([-1, -1]), mask) is None
    with pytest.raises(KeyError):
        book.oldest_ordinal(np.array([0, 5]), mask)
