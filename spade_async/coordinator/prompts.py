"""Versions of the prompts that make a group, for the ledger: which prompt made what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from spade_async.coordinator.core import Core
from spade_async.designer.prompt import route_of


def design_prompts(core: Core, document: str) -> dict[str, str]:
    """{"designer", and "hint" with designer.hint="self"} -> version, of a group of designs."""
    config = core.config.designer
    versions = _versions(core)
    # A domain of one prompt names it after the role, one of many after the route.
    whole = core.config
    route = route_of(config.prompt, document, whole.agent.max_turns, whole.run.compat)
    found = {"designer": versions.get(route) or versions.get("designer")}
    if config.hint == "self":
        found["hint"] = versions.get("hint")
    return {part: version for part, version in found.items() if version is not None}


def play_prompts(core: Core) -> dict[str, str]:
    """{"agent"} -> version, of a group of episodes."""
    version = _versions(core).get("agent")
    return {} if version is None else {"agent": version}


def _versions(core: Core) -> Mapping[str, str]:
    return cast(Mapping[str, str], getattr(core.domain, "PROMPT_VERSIONS", {}))
