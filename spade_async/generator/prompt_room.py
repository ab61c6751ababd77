"""Whether the prompts of a run can be made and leave room for a reply, told before it starts.

The shortest prompt of each kind is tried: what is refused here could never have worked. Longer ones
are cut or skipped by name as they come (`design_prompt.py`, `agent.episode`).
"""

from __future__ import annotations

from spade_async.agent.prompt import TokenCodec, first_messages, next_messages
from spade_async.config.schema import Config
from spade_async.designer.compat import with_compat
from spade_async.designer.skills import Skill, chosen_skills, domain_skills
from spade_async.domain import ChatTurn, DesignRequest, Domain, design_prompt
from spade_async.errors import ConfigError, GenerationError
from spade_async.generator.engines import Codecs
from spade_async.types import Arm

_SHORTEST = ("", "the")
"""Documents. A domain that shows a topic may have a long word for one without any."""


def check_prompts(config: Config, domain: Domain, codecs: Codecs) -> None:
    """Try the shortest prompt of the designer, of the agent and for a hint.

    Raises:
        ConfigError: one leaves no room for a reply, or the chat template cannot make it. One line
            that names the key.
    """
    domain = with_compat(domain, config.run.compat)
    context = config.model.max_context_tokens
    try:
        for skill in chosen_skills(config.designer.skills, domain_skills(domain)):
            _check_design(config, domain, codecs.designer, skill)
        plain = first_messages(domain, "", arm=Arm.NO_HINT, hint=None)
        _check_room(
            codecs.agent, plain, "the agent's first prompt, before any observation", context
        )
        if config.agent.max_turns > 1:
            codecs.agent.encode_turn(next_messages(domain, ""), after_stop=True)
        if config.designer.hint == "self":
            asked = domain.hint_messages("")
            what = 'the prompt for a hint (designer.hint="self"), before any program'
            _check_room(codecs.brief, asked, what, context)
    except GenerationError as fault:
        raise ConfigError(str(fault)) from fault


def _check_design(config: Config, domain: Domain, codec: TokenCodec, skill: Skill) -> None:
    prompts = [design_prompt(domain, _request(config, skill, document)) for document in _SHORTEST]
    tokens = min(len(codec.encode_prompt(prompt)) for prompt in prompts)
    context, wanted = config.model.max_context_tokens, config.designer.max_new_tokens
    if tokens + wanted > context:
        raise ConfigError(
            f"the designer's prompt has at least {tokens} tokens and leaves "
            f"{max(0, context - tokens)} for designer.max_new_tokens={wanted}: raise "
            f"model.max_context_tokens={context} or lower designer.max_new_tokens"
        )


def _request(config: Config, skill: Skill, document: str) -> DesignRequest:
    """What a design is asked for, without exemplars and ideas."""
    return DesignRequest(
        document=document,
        skill=skill.name,
        skill_description=skill.description,
        route=config.designer.prompt,
        max_turns=config.agent.max_turns,
        hint_mode=config.designer.hint,
        compat=config.run.compat,
    )


def _check_room(codec: TokenCodec, messages: list[ChatTurn], what: str, context: int) -> None:
    tokens = len(codec.encode_prompt(messages))
    if tokens >= context:
        raise ConfigError(
            f"{what}, has {tokens} tokens and leaves no room for a reply: raise "
            f"model.max_context_tokens={context}"
        )
