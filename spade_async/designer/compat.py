"""The games domain under `run.compat = "reference"`: replies are read by the reference's rules.

A domain with parsing rules of its own (nano) keeps them: there is no reference for those.
"""

from __future__ import annotations

from typing import Any, cast

from spade_async.designer import games, parse_reference
from spade_async.domain import Domain


class ReferenceParsing:
    """Another domain, but for how replies are read."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    def parse_program(self, reply: str) -> str | None:
        """See `parse_reference.program`."""
        return parse_reference.program(reply)

    def parse_action(self, reply: str) -> str:
        """See `parse_reference.action`."""
        return parse_reference.action(reply)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._domain, name)


def with_compat(domain: Domain, compat: str) -> Domain:
    """The domain a generator works with.

    Args:
        domain: as loaded.
        compat: `run.compat`.
    """
    own_rules = (
        getattr(domain, "parse_program", None) is not games.parse_program
        or getattr(domain, "parse_action", None) is not games.parse_action
    )
    if compat != "reference" or own_rules:
        return domain
    return cast(Domain, ReferenceParsing(domain))
