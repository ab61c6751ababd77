"""`spade-async prompt CONFIG --route R`: one prompt, as messages and as the model reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from spade_async.config.load import resolve
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.designer.prompt import ROUTES, request_route
from spade_async.designer.prompt_example import example
from spade_async.designer.prompt_review import judge_messages, repair_turn, validator_messages
from spade_async.designer.skills import chosen_skills, domain_skills, draw_ideas
from spade_async.domain import ChatTurn, DesignRequest, Domain, design_prompt, load_domain
from spade_async.errors import ConfigError

if TYPE_CHECKING:
    from spade_async.engine.tokens import ChatTokens

DESIGN_ROUTES = ("designer", *ROUTES, "memory")
OTHER_ROUTES = ("repair", "hint", "agent", "agent_with_hint", "later_turn", "validator", "judge")
ALL_ROUTES = (*DESIGN_ROUTES, *OTHER_ROUTES)
_OBSERVATION = "(the first observation of an instance)"
_HINT = "(the hint of the instance)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was asked for."""

    route: str = "designer"
    """One of `ALL_ROUTES`; "designer" is what `designer.prompt` says, "memory" the same with
    earlier games."""
    skill: str | None = None
    """None: the first of `designer.skills`."""
    document: str = ""
    """A text file, or the text itself."""
    program: Path | None = None
    """Program for memory, hint, validator and judge; None: the example of the prompts."""
    thinking: bool | None = None
    """None: as the configuration says."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt in both forms."""

    route: str
    version: str | None
    """As the ledger has it; None of a domain that names none."""
    messages: list[ChatTurn]
    text: str | None
    """What the model reads, control tokens included; None without a tokenizer."""
    tokens: int | None
    """Length of `text`; None without a tokenizer."""
    max_context_tokens: int
    facts: dict[str, Any]
    """What was left out so that it fits."""
    note: str | None
    """Why there is no text."""


def prompt(
    config_path: Path, sets: Sequence[str], options: Options, *, as_json: bool, console: Console
) -> None:
    """Print one prompt.

    Raises:
        ConfigError: a route, skill, file or thinking switch that does not exist.
        PromptTooLong: it does not fit the context, however it is cut.
    """
    found = render(config_path, sets, options)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    version = f", version {found.version}" if found.version else ""
    console.print(f"route {found.route}{version}", style="bold", markup=False)
    for message in found.messages:
        console.print(f"--- {message.role}", style="dim", markup=False)
        print(message.content)
    if found.text is None:
        console.print(f"--- no exact text: {found.note}", style="dim", markup=False)
        return
    left_out = "".join(f", {name} {count}" for name, count in found.facts.items())
    console.print(
        f"--- exact text, {found.tokens} of {found.max_context_tokens} tokens{left_out}",
        style="dim", markup=False,
    )  # fmt: skip
    print(found.text)


def render(config_path: Path, sets: Sequence[str], options: Options) -> Rendered:
    """See `prompt`."""
    config = resolve(config_path, sets)
    domain = load_domain(config.domain.hook)
    if options.route not in ALL_ROUTES:
        raise ConfigError(f"--route {options.route}: expected one of {', '.join(ALL_ROUTES)}")
    tokens, note = _tokens(config, config_path, options)
    is_design = options.route in DESIGN_ROUTES
    facts: dict[str, Any] = {}
    ids: list[int] | None = None
    name = options.route
    if is_design:
        request = _request(config, domain, options)
        name = request_route(request)
        messages = design_prompt(domain, request)
        if tokens is not None:
            from spade_async.generator.design_prompt import fit

            fitted = fit(
                tokens, domain, request, max_context_tokens=config.model.max_context_tokens,
                max_new_tokens=config.designer.max_new_tokens,
            )  # fmt: skip
            messages, ids, facts = fitted.messages, fitted.ids, dict(fitted.facts)
            facts.pop("tokens")
    else:
        messages = _messages(domain, options)
        if tokens is not None:
            is_later = options.route in ("later_turn", "repair")
            encode = tokens.encode_prompt
            ids = tokens.encode_turn(messages, after_stop=True) if is_later else encode(messages)
    versions: dict[str, str] = getattr(domain, "PROMPT_VERSIONS", {})
    kind = {"agent_with_hint": "agent", "later_turn": "agent"}.get(name, name)
    return Rendered(
        route=name,
        version=versions.get(kind) or (versions.get("designer") if is_design else None),
        messages=messages,
        text=None if tokens is None or ids is None else tokens.exact_text(ids),
        tokens=None if ids is None else len(ids),
        max_context_tokens=config.model.max_context_tokens,
        facts=facts,
        note=note,
    )


def _request(config: Config, domain: Domain, options: Options) -> DesignRequest:
    """As for the first group of a run, with the skill and the document asked for."""
    named = config.designer.skills if options.skill is None else (options.skill,)
    skill = chosen_skills(named, domain_skills(domain))[0]
    is_named = options.route in ROUTES
    return DesignRequest(
        skill=skill.name,
        skill_description=skill.description,
        ideas=draw_ideas(skill, config.designer.num_ideas, config.run.seed),
        document=_document(options.document),
        route=options.route if is_named else config.designer.prompt,
        max_turns=config.agent.max_turns,
        hint_mode=config.designer.hint,
        compat=config.run.compat,
        exemplars=_remembered(_program(options), skill.name) if options.route == "memory" else (),
    )


def _remembered(source: str, skill: str) -> tuple[dict[str, Any], ...]:
    """The program as a game to be inspired by, and as one to avoid."""
    game = {"source": source, "skill": skill}
    inspiring = {"kind": "inspire", "mean_no_hint": 0.375, "mean_with_hint": 0.75, "regret": 0.375}
    avoided = {"kind": "avoid", "mean_no_hint": 1.0, "mean_with_hint": 1.0, "regret": 0.0}
    return game | inspiring, game | avoided | {"reason": "(why it is to be avoided)"}


def _program(options: Options) -> str:
    return example(12, with_hint=True) if options.program is None else _read(options.program)


def _messages(domain: Domain, options: Options) -> list[ChatTurn]:
    source = _program(options)
    match options.route:
        case "repair":
            return repair_turn("step", "IndexError: list index out of range (line 21)")
        case "hint":
            return domain.hint_messages(source)
        case "agent":
            return domain.agent_messages(_OBSERVATION, None)
        case "agent_with_hint":
            return domain.agent_messages(_OBSERVATION, _HINT)
        case "later_turn":
            return domain.agent_turn("(a later observation)")
        case "validator":
            return validator_messages(source)
        case _:
            return judge_messages(source, _OBSERVATION, [("(an action)", "(its answer)", 0.0)])


def _document(given: str) -> str:
    try:
        is_file = bool(given) and Path(given).is_file()
    except (OSError, ValueError):
        # Too long for a name, or with a zero in it: text.
        is_file = False
    return _read(Path(given)) if is_file else given


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError as cause:
        raise ConfigError(f"{path} cannot be read: {cause.strerror or cause}") from cause


def _tokens(
    config: Config, config_path: Path, options: Options
) -> tuple[ChatTokens | None, str | None]:
    """The codec of the route, or why there is none."""
    if config.is_scripted:
        return None, 'engine.kind="scripted" has no tokenizer'
    folder = _model_folder(config, config_path)
    if not folder.is_dir():
        return None, (
            f'model.path="{config.model.path}" is no folder: --set model.path=FOLDER, or name the '
            "folder of a run"
        )
    from spade_async.generator.engines import make_tokens

    if options.thinking is not None:
        role = "agent" if options.route.startswith(("agent", "later")) else "designer"
        section = getattr(config, role).model_copy(update={"thinking": options.thinking})
        config = config.model_copy(update={role: section})
    codecs: Any = make_tokens(config, folder)
    if options.route.startswith(("agent", "later")):
        return codecs.agent, None
    if options.route == "hint" and options.thinking is None:
        return codecs.brief, None
    return codecs.designer, None


def _model_folder(config: Config, config_path: Path) -> Path:
    """`model.path`, or of a run the folder of the model it was started with."""
    if config_path.is_dir():
        try:
            named = json.loads(RunFolder(config_path).info.read_text()).get("model_folder")
        except (OSError, ValueError):
            named = None
        if named:
            return Path(named)
    return Path(config.model.path)
