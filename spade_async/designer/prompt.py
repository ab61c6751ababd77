"""The designer's prompts of the games domain, one per route (design step 2). Text only.

In our own words, after the reference's division (4.1): a puzzle of one answer, a game of many
decisions, a game that a document is the ground of. Unlike there the route does not decide whether a
document is shown: any route takes one, so leaving the corpus out changes the grounding alone. The
document is wrapped in tags, because its text may itself look like instructions.
"""

from __future__ import annotations

from spade_async.designer.prompt_example import MIN_TURNS, example
from spade_async.designer.prompt_memory import memory_block, reference_block
from spade_async.designer.prompt_rules import LAST_CHECK, MIN_STEPS, program_rules, skeleton
from spade_async.domain import ChatTurn, DesignRequest

MAX_DOCUMENT_CHARS = 120_000
"""More is never shown; `grounding.max_document_words` cuts long before."""

ROUTES = ("single_turn", "multi_turn", "corpus")

PROMPT_VERSIONS: dict[str, str] = {
    "single_turn": "single_turn/1",
    "multi_turn": "multi_turn/1",
    "corpus": "corpus/1",
    "hint": "hint/1",
    "agent": "agent/1",
    "repair": "repair/1",
    "validator": "validator/1",
    "judge": "judge/1",
}
"""Raised with every change of a prompt's text; noted with each group in the ledger. The stored
prompts in tests/golden hold text and version together."""

DESIGNER_SYSTEM = (
    "You design text games in Python for a language model to learn from. Every game is a "
    "complete, correct program with a hidden or computed solution and a fair, automatic reward, "
    "and no two of your games are alike."
)

_SINGLE = """\
Write a puzzle game: an episode is one task with one answer.
- reset draws the task and says everything that is needed to solve it. Solving takes at
  least {steps} steps of reasoning; a guess is right in less than 1 of 100 cases.
- A right answer wins. A wrong one gets an answer that says what is wrong with it (too
  large, a rule it breaks, how many parts fit) without giving the solution away, and the
  same task may be tried again until the turns are used up. The last observation may then
  tell the solution.
- Compare answers as a person would: "7", " 7 " and "7.0" are one number, case and order do
  not matter where they have no meaning."""

_MULTI = """\
Write a game of decisions: an episode is a sequence of actions in a small world with a
state.
- Every action changes the state or tells something about it. At each point at least two
  actions make sense, and some are clearly better than others: what was learnt or gathered
  before decides.
- Part of the state is hidden and is found out by acting. A good player wins after {least}
  to {most} actions out of {turns}; one who acts at random nearly always fails. There is a
  way to win and a way to lose, or to run out of turns.
- Every observation has the visible state, what the last action did, the actions that exist,
  and what is left to do.
- Kinds that work: exploring, trading, surviving, investigating, defending, building,
  repairing.
- Kinds that do not: one question with retries, guessing a number by halving, a single
  sensible action at each point, puzzles in a row that have nothing to do with each other, a
  win in fewer than {steps} actions."""

_CORPUS = """\
Write a game of decisions that is built on {ground}: an episode is a sequence of actions in
a small world with a state.
- Take one concept, technique or mechanism of {ground}. Winning must need it: who has
  understood it knows what to do, who has not cannot get through by trying. The game
  explains its own rules and words, so that it is understood without any other text, and
  mentions none.
- Each turn carries one command. Commands change a hidden state and reveal parts of it; what
  a later command does depends on the earlier ones.
- A good player wins after at least {steps} commands, and after {least} to {most} out of
  {turns}; one who acts at random nearly always fails.
- Every observation has the visible state, what the last command did, the commands that
  exist, and what is left to do.
- Not wanted: questions about {ground}, one answer that is graded once, everything shown
  at the start, a fixed task with another try."""

_BODIES = {"single_turn": _SINGLE, "multi_turn": _MULTI, "corpus": _CORPUS}


def route_of(configured: str, document: str, max_turns: int, compat: str = "off") -> str:
    """The route that `designer.prompt` means: "auto" is by what there is to build on.

    Args:
        configured: "auto" or a route.
        document: text of the document, maybe empty.
        max_turns: `agent.max_turns`; a game of decisions needs more than one.
        compat: with "reference" a document always means "corpus", whatever is configured (4.1).
    """
    if compat == "reference" and document.strip():
        return "corpus"
    if configured != "auto":
        return configured
    if max_turns == 1:
        return "single_turn"
    return "corpus" if document.strip() else "multi_turn"


def request_route(request: DesignRequest) -> str:
    """The route of a request."""
    return route_of(request.route, request.document, request.max_turns, request.compat)


def design_prompt(request: DesignRequest) -> list[ChatTurn]:
    """The prompt of one group of designs.

    Raises:
        ValueError: no such route.
    """
    route = request_route(request)
    if route not in _BODIES:
        raise ValueError(f"designer.prompt={route!r}: expected one of auto, {', '.join(ROUTES)}")
    turns, with_hint = request.max_turns, request.hint_mode == "environment"
    skill = request.skill + (f": {request.skill_description}" if request.skill_description else "")
    parts = [f"Write a new text game that trains this skill: {skill}."]
    if request.document.strip():
        parts.append(_document(request.document, is_ground=route == "corpus"))
    parts.append(
        _BODIES[route].format(
            turns=turns,
            steps=min(MIN_STEPS, turns),
            least=max(1, turns // 2),
            most=max(1, 3 * turns // 4),
            ground="the document" if request.document.strip() else "a science or craft you choose",
        )
    )
    if request.ideas:
        ideas = "\n".join(f"- {idea}" for idea in request.ideas)
        parts.append(f"Ideas to start from; take one further, combine, or find your own:\n{ideas}")
    parts += [program_rules(turns, with_hint=with_hint), skeleton(turns, with_hint=with_hint)]
    if route != "single_turn" and turns >= MIN_TURNS:
        shown = example(turns, with_hint=with_hint).rstrip()
        parts.append(
            "A complete game in this form, to show how one is written. Do not write a variant of "
            f"it.\n```python\n{shown}\n```"
        )
    block = reference_block if request.compat == "reference" else memory_block
    parts += block(request.exemplars)
    parts.append(LAST_CHECK)
    return [ChatTurn("system", DESIGNER_SYSTEM), ChatTurn("user", "\n\n".join(parts))]


def _document(text: str, *, is_ground: bool) -> str:
    purpose = (
        "The document that the game is built on:"
        if is_ground
        else "Let one idea of this document carry the game. The game must be understandable "
        "without it and must not mention it."
    )
    return f"{purpose}\n<document>\n{text.strip()[:MAX_DOCUMENT_CHARS]}\n</document>"
