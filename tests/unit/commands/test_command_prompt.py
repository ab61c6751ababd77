"""`spade-async prompt`: what a model is asked, exactly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spade_async import cli
from spade_async.commands.prompt import ALL_ROUTES
from spade_async.designer.prompt import PROMPT_VERSIONS
from spade_async.errors import ConfigError, PromptTooLong
from tests.support import qwen_like
from tests.support.tiny_chat_model import make_chat_model

RUNNER = CliRunner()
NANO = str(Path(__file__).parents[3] / "configs" / "nano.toml")
GAMES = (
    "--set",
    "domain.hook=spade_async.designer.games",
    "--set",
    "model.max_context_tokens=9000",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(qwen_like.make_qwen_like_model(tmp_path_factory.mktemp("qwen")))


def ask(*arguments: str, config: str = NANO) -> dict[str, Any]:
    answer = RUNNER.invoke(cli.app, ["prompt", config, "--json", *arguments])
    if answer.exception is not None:
        raise answer.exception
    found: dict[str, Any] = json.loads(answer.output)
    return found


@pytest.mark.parametrize("route", ALL_ROUTES)
def test_every_route_is_shown_with_its_exact_text_and_tokens(model: str, route: str) -> None:
    found = ask("--route", route, *GAMES, "--set", f"model.path={model}")
    assert found["version"] in PROMPT_VERSIONS.values()
    assert found["note"] is None
    ids = qwen_like.make_bpe_tokenizer()(found["text"], add_special_tokens=False)["input_ids"]
    assert found["tokens"] == len(ids)
    for message in found["messages"]:
        assert f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>" in found["text"]
    end = "<think>\n\n</think>\n\n" if route == "hint" else "<|im_start|>assistant\n"
    assert found["text"].endswith(end)


def test_the_memory_block_is_shown_with_a_game_to_be_inspired_by_and_one_to_avoid(
    tmp_path: Path,
) -> None:
    program = tmp_path / "old.py"
    program.write_text("class OldEnv:\n    pass\n")
    found = ask("--route", "memory", "--program", str(program), *GAMES, "--skill", "optimization")
    user = found["messages"][1]["content"]
    inspiring, avoided = user.index("Earlier game ("), user.index("Game to avoid (")
    assert inspiring < avoided
    shown = "```python\nclass OldEnv:\n    pass\n```"
    assert shown in user[inspiring:avoided]
    assert shown in user[avoided:]
    assert "Why: (why it is to be avoided)" in user[avoided:]
    assert "Earlier game (" not in ask("--route", "multi_turn", *GAMES)["messages"][1]["content"]
    old = ask("--route", "memory", *GAMES, "--set", "run.compat=reference")
    assert "Avoid games like this one: too easy, win rate 1.00" in old["messages"][1]["content"]


def test_skill_and_document_are_those_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "heaps.txt"
    file.write_text("A heap keeps the smallest item at its root.")
    for document in (str(file), file.read_text()):
        found = ask("--skill", "memory_recall", "--document", document, *GAMES)
        assert found["route"] == "single_turn"  # nano has agent.max_turns=1
        user = found["messages"][1]["content"]
        assert "trains this skill: Memory Recall: keeping" in user
        assert "<document>\nA heap keeps the smallest" in user
        assert (found["text"], found["tokens"]) == (None, None)
        assert "--set model.path=FOLDER" in found["note"]
    found = ask("--document", str(file), *GAMES, "--set", "agent.max_turns=8")
    assert (found["route"], found["version"]) == ("corpus", PROMPT_VERSIONS["corpus"])


def test_thinking_is_switched_for_the_role_of_the_route(model: str) -> None:
    for route in ("designer", "agent"):
        ends = {}
        for flag in ("--thinking", "--no-thinking"):
            found = ask("--route", route, flag, *GAMES, "--set", f"model.path={model}")
            ends[flag] = found["text"].rsplit("assistant\n", 1)[1]
        assert ends == {"--thinking": "", "--no-thinking": "<think>\n\n</think>\n\n"}
    found = ask("--route", "agent", *GAMES, "--set", f"model.path={model}",
                "--set", "agent.thinking=false")  # fmt: skip
    assert found["text"].endswith("</think>\n\n")


def test_the_prompt_of_a_domain_of_its_own_is_shown(tmp_path: Path) -> None:
    found = ask("--document", "heap queue")
    assert found["version"] == "nano/1"
    assert [m["role"] for m in found["messages"]] == ["designer"]


def test_what_was_cut_so_that_it_fits_is_said(model: str) -> None:
    whole = ask(*GAMES, "--set", f"model.path={model}", "--document", "heap " * 300)
    room = whole["tokens"] + 80 - 100
    answer = RUNNER.invoke(
        cli.app,
        ["prompt", NANO, *GAMES, "--set", f"model.path={model}", "--document", "heap " * 300,
         "--set", f"model.max_context_tokens={room}"],
    )  # fmt: skip
    assert answer.exit_code == 0
    assert "document_words_cut" in answer.output
    assert f"of {room} tokens" in answer.output


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("--route", "haiku"), ConfigError, "--route haiku: expected one of designer"),
        (("--skill", "Memory_Recal"), ConfigError, "did you mean 'Memory Recall'"),
        (("--route", "hint", "--program", "/none.py"), ConfigError, "/none.py cannot be read"),
        (("--thinking",), ConfigError, "designer.thinking=true, but the chat template of"),
        (("--set", "model.max_context_tokens=300"), PromptTooLong, "model.max_context_tokens=300"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], kind: type[Exception], words: str
) -> None:
    plain = make_chat_model(tmp_path)
    with pytest.raises(kind) as caught:
        ask(*GAMES, "--set", f"model.path={plain}", *arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (('designer.skills=["Mathematical_Reasonin"]',), "did you mean 'Mathematical Reasoning'"),
        (("agent.thinking=true", "model.path={model}"), "agent.thinking=true, but the chat"),
        (("designer.skills_per_window=2",), "designer.skill_window=0"),
    ],
)
def test_a_run_that_cannot_ask_what_it_should_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    sets: tuple[str, ...], words: str,
) -> None:  # fmt: skip
    model = make_chat_model(tmp_path / "model")
    given = [f"--set={key.format(model=model)}" for key in sets]
    run = tmp_path / "run"
    monkeypatch.setattr(sys, "argv", ["spade-async", "train", NANO, "--run-dir", str(run), *given])
    capsys.readouterr()  # the bar of writing the model
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert len(shown.splitlines()) == 1
    assert not run.exists()
