"""`spade-async simulate`: the schedule in virtual time."""

from __future__ import annotations


def tables() -> None:
    """Print the two tables of docs/simulate.md."""
    from spade_async.simulate import reference

    print(reference.tables())
