"""The inputs of the stored prompts in tests/golden/prompts, and how a prompt is written there.

``python -m tests.support.golden_prompts`` writes them anew. A prompt whose text has changed needs a
new version in `designer/prompt.py` first: the test holds both together.
"""

from __future__ import annotations

from pathlib import Path

from spade_async.designer import games
from spade_async.designer.prompt import PROMPT_VERSIONS, design_prompt
from spade_async.designer.prompt_review import judge_messages, repair_turn, validator_messages
from spade_async.designer.skills import GAME_SKILLS
from spade_async.domain import ChatTurn, DesignRequest

FOLDER = Path(__file__).parents[1] / "golden" / "prompts"
PROGRAM = "class OldEnv:\n    def reset(self, seed=None):\n        return 'guess', {}\n"
INSPIRING = {
    "source": PROGRAM, "skill": "Optimization", "kind": "inspire", "mean_no_hint": 0.375,
    "mean_with_hint": 0.75, "regret": 0.375, "reason": "",
}  # fmt: skip
AVOIDED = {
    "source": "class EasyEnv:\n    pass\n", "skill": "Optimization", "kind": "avoid",
    "mean_no_hint": 1.0, "regret": 0.0, "reason": "mastered: solved without the hint",
}  # fmt: skip
SKILL = GAME_SKILLS[7]


def request(route: str, **more: object) -> DesignRequest:
    fields = {
        "skill": SKILL.name, "skill_description": SKILL.description, "ideas": SKILL.ideas[:3],
        "route": route, "max_turns": 12,
    }  # fmt: skip
    return DesignRequest(**(fields | more))  # type: ignore[arg-type]


def stored() -> dict[str, tuple[str, list[ChatTurn]]]:
    """File name -> (name of the version, messages)."""
    document = "A heap keeps the smallest item at its root.\nPushing takes log n steps."
    return {
        "single_turn": ("single_turn", design_prompt(request("single_turn", max_turns=4))),
        "multi_turn": ("multi_turn", design_prompt(request("multi_turn"))),
        "corpus": ("corpus", design_prompt(request("corpus", document=document))),
        "corpus_without_document": ("corpus", design_prompt(request("corpus", hint_mode="self"))),
        "memory": (
            "multi_turn",
            design_prompt(request("multi_turn", max_turns=4, exemplars=(INSPIRING, AVOIDED))),
        ),
        "hint": ("hint", games.hint_messages(PROGRAM)),
        "agent": ("agent", games.agent_messages("Three doors.", None)),
        "agent_with_hint": ("agent", games.agent_messages("Three doors.", "Listen first.")),
        "agent_later_turn": ("agent", games.agent_turn("The door is shut.")),
        "repair": ("repair", repair_turn("reset", "NameError: name 'rgn' is not defined")),
        "validator": ("validator", validator_messages(PROGRAM)),
        "judge": (
            "judge",
            judge_messages(PROGRAM, "guess", [("\\boxed{1}", "too low", 0.0), ("2", "yes", 1.0)]),
        ),
    }


def written(version: str, messages: list[ChatTurn]) -> str:
    """What a stored prompt looks like."""
    turns = "".join(f"=== {m.role}\n{m.content}\n" for m in messages)
    return f"version {PROMPT_VERSIONS[version]}\n{turns}"


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (version, messages) in stored().items():
        (FOLDER / f"{name}.txt").write_text(written(version, messages))


if __name__ == "__main__":
    main()
