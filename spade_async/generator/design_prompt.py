"""The designer's prompt as tokens, cut until the design fits behind it (step 2).

What does not fit is left out in a fixed order: the document is cut, then exemplars are dropped, and
then the design is skipped by name. All designs of a group are cut alike, for they have one prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spade_async.agent.prompt import TokenCodec
from spade_async.config.schema import Config
from spade_async.designer.skills import domain_skills, draw_ideas
from spade_async.domain import ChatTurn, DesignRequest, Domain, design_prompt
from spade_async.errors import PromptTooLong
from spade_async.seeds import derive
from spade_async.transport.messages import DesignTask

MIN_DOCUMENT_WORDS = 50
"""A document is cut down to this and not further."""


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt with room for the reply."""

    messages: list[ChatTurn]
    ids: list[int]
    room: int
    """Tokens of the context behind it."""
    facts: dict[str, Any]
    """For the ledger: {"tokens"}, and what was left out: {"document_words_cut",
    "exemplars_dropped"}."""


def design_request(config: Config, domain: Domain, task: DesignTask) -> DesignRequest:
    """What the task asks for, before anything is cut."""
    skill = next((s for s in domain_skills(domain) or () if s.name == task.skill), None)
    seed = derive(config.run.seed, "ideas", task.group_id)
    return DesignRequest(
        skill=task.skill,
        document=task.document,
        exemplars=tuple(task.exemplars),
        skill_description="" if skill is None else skill.description,
        ideas=() if skill is None else draw_ideas(skill, config.designer.num_ideas, seed),
        route=config.designer.prompt,
        max_turns=config.agent.max_turns,
        hint_mode=config.designer.hint,
        compat=config.run.compat,
    )


def fit(
    tokens: TokenCodec,
    domain: Domain,
    request: DesignRequest,
    *,
    max_context_tokens: int,
    max_new_tokens: int,
) -> FittedPrompt:
    """The prompt, cut as little as needed.

    Raises:
        PromptTooLong: it does not fit without exemplars and with a short document either.
    """

    def tried(request: DesignRequest) -> FittedPrompt:
        messages = design_prompt(domain, request)
        ids = tokens.encode_prompt(messages)
        return FittedPrompt(messages, ids, max_context_tokens - len(ids), {"tokens": len(ids)})

    def fits(prompt: FittedPrompt) -> bool:
        return prompt.room >= max_new_tokens

    found = tried(request)
    if fits(found):
        return found
    words = request.document.split()
    shortest = min(len(words), MIN_DOCUMENT_WORDS)
    present = replace(request, document=" ".join(words[:shortest]))
    found = tried(present)
    if fits(found):
        kept = shortest
        while len(words) - kept > 1:
            middle = (kept + len(words)) // 2
            longer = tried(replace(request, document=" ".join(words[:middle])))
            if not fits(longer):
                words = words[:middle]
                continue
            found, kept = longer, middle
        return _noted(found, request, kept, 0)
    for dropped in range(1, len(request.exemplars) + 1):
        found = tried(replace(present, exemplars=request.exemplars[:-dropped]))
        if fits(found):
            return _noted(found, request, shortest, dropped)
    raise PromptTooLong(
        f"the designer's prompt of {len(found.ids)} tokens, with {shortest} words of the document "
        f"and no exemplars, leaves {found.room} for designer.max_new_tokens={max_new_tokens}: "
        f"raise model.max_context_tokens={max_context_tokens} or lower designer.max_new_tokens"
    )


def _noted(prompt: FittedPrompt, request: DesignRequest, kept: int, dropped: int) -> FittedPrompt:
    facts = dict(prompt.facts)
    cut = len(request.document.split()) - kept
    if cut:
        facts["document_words_cut"] = cut
    if dropped:
        facts["exemplars_dropped"] = dropped
    return replace(prompt, facts=facts)
