"""What a family of environments may customise: prompts, parsing, labels, programs, held-out set.

A domain is a module with the functions of `Domain`. The core never looks inside: it takes prompts,
string labels and seed programs from here and groups by label only. No torch in any of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from spade_async.errors import ConfigError


@dataclass(frozen=True, slots=True)
class HeldOutItem:
    """One instance that is scored and never trained."""

    level: str
    """Row of the end table."""
    source: str
    seed: int


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One chat message; roles are those of the tokenizer's chat template."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignRequest:
    """All that a prompt of the designer is made from; the same for the designs of one group."""

    skill: str
    document: str = ""
    exemplars: tuple[dict[str, Any], ...] = ()
    """From memory: {"source", "skill", "mean_no_hint", "mean_with_hint", "regret", "kind":
    "inspire" or "avoid", "reason"}; only the source is always there."""
    skill_description: str = ""
    ideas: tuple[str, ...] = ()
    """Concepts to start from; see `designer.skills`."""
    route: str = "auto"
    """`designer.prompt`: which of the domain's prompts."""
    max_turns: int = 4
    """`agent.max_turns`: actions after which an episode ends."""
    hint_mode: str = "environment"
    """`designer.hint`: "environment" asks for a hint() in the program."""
    compat: str = "off"
    """`run.compat`: "reference" shows documents and earlier games by the reference's rules."""


class Domain(Protocol):
    """Functions a domain module has.

    A module may have more, for who looks for it by name: `skills()` (the skills it knows, see
    `designer.skills`), `design_prompt(request)` (the designer's prompt from a whole
    `DesignRequest`; without it `designer_messages` is asked), `make_tokenizer(name)` (the tokenizer
    of a model that `prepare_model` makes, when it is known before, or None), and `PROMPT_VERSIONS`
    (name of a prompt -> version, noted with every group).
    """

    def designer_messages(
        self, *, skill: str, document: str, exemplars: list[dict[str, Any]]
    ) -> list[ChatTurn]:
        """Prompt of the designer."""

    def hint_messages(self, source: str) -> list[ChatTurn]:
        """Prompt that asks the policy for a hint (designer.hint = "self")."""

    def agent_messages(self, observation: str, hint: str | None) -> list[ChatTurn]:
        """First prompt of the agent; the hint only in its arm, all else equal."""

    def agent_turn(self, observation: str) -> list[ChatTurn]:
        """Messages that carry a later observation."""

    def parse_program(self, reply: str) -> str | None:
        """Program text in the designer's reply, or None."""

    def parse_action(self, reply: str) -> str:
        """Action text in the agent's reply."""

    def labels(self, source: str) -> dict[str, str]:
        """String labels of a program, e.g. {"family": "sort", "level": "2"}; {} when unknown."""

    def seed_environments(self, seed: int) -> Iterator[str]:
        """Endless programs for the seed pool; empty when the domain has none."""

    def held_out(self, instances_per_level: int) -> list[HeldOutItem]:
        """The fixed held-out set, the same for every run."""

    def prepare_model(
        self, name: str, seed: int, progress: Callable[[float, str], None]
    ) -> Path | None:
        """Folder of a model this domain can make itself (e.g. "nano"), or None."""


def design_prompt(domain: Domain, request: DesignRequest) -> list[ChatTurn]:
    """The designer's prompt: by the domain's `design_prompt`, else by its `designer_messages`."""
    whole = getattr(domain, "design_prompt", None)
    if whole is not None:
        return cast(Callable[[DesignRequest], list[ChatTurn]], whole)(request)
    return domain.designer_messages(
        skill=request.skill, document=request.document, exemplars=list(request.exemplars)
    )


def load_domain(name: str) -> Domain:
    """The domain module of that dotted name, checked for completeness.

    Raises:
        ConfigError: it cannot be imported or lacks a function.
    """
    try:
        module = importlib.import_module(name)
    except ImportError as cause:
        raise ConfigError(f"domain.hook={name!r} cannot be imported ({cause})") from cause
    wanted = [n for n in vars(Domain) if not n.startswith("_")]
    missing = [n for n in wanted if not callable(getattr(module, n, None))]
    if missing:
        raise ConfigError(f"domain.hook={name!r} lacks {', '.join(missing)}")
    return cast(Domain, module)
