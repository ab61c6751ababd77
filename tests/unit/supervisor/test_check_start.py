"""What is told before a run has a folder or a process: prompts, template, engine, memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spade_async.config.load import resolve
from spade_async.config.schema import Config
from spade_async.domain import ChatTurn
from spade_async.engine.tokens import ChatTokens
from spade_async.engine.vllm.installed import VllmInstall
from spade_async.errors import ConfigError, WeightsError
from spade_async.supervisor import check_start as checks
from spade_async.supervisor.check_start import (
    check_engine,
    check_room_for_prompts,
    check_start,
    check_unmade_model,
)
from spade_async.weights import folder as weights_folder
from tests.support import qwen_like
from tests.support.tiny_chat_model import make_chat_model, make_chat_tokenizer

NANO = Path(__file__).parents[3] / "configs" / "nano.toml"
NO_SYSTEM = (
    "{% for m in messages %}"
    "{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}<|assistant|>"
)


def nano(*sets: str) -> Config:
    return resolve(NANO, sets)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chat_model(tmp_path_factory.mktemp("model"))


def designer_tokens(folder: Path) -> int:
    """Of the shortest prompt of the nano designer: a topic of three letters."""
    return len(ChatTokens.from_folder(folder).encode_prompt([ChatTurn("designer", "the")]))


def test_a_design_must_have_room_behind_the_shortest_prompt(folder: Path) -> None:
    least = 80 + designer_tokens(folder)
    check_room_for_prompts(nano(f"model.max_context_tokens={least}"), folder)
    with pytest.raises(ConfigError) as refused:
        check_room_for_prompts(nano(f"model.max_context_tokens={least - 1}"), folder)
    for part in ("designer.max_new_tokens=80", f"raise model.max_context_tokens={least - 1}"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([], "the agent's first prompt, before any observation, has"),
        (['designer.hint="self"'], 'the prompt for a hint (designer.hint="self"), before any'),
    ],
    ids=["agent", "hint"],
)
def test_a_prompt_that_fills_the_context_is_told_with_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sets: list[str], words: str
) -> None:
    config = nano("model.max_context_tokens=120", *sets)
    check_room_for_prompts(config, folder)
    long = [ChatTurn("user", "x" * 120)]
    kind = "hint_messages" if sets else "agent_messages"
    monkeypatch.setattr(f"spade_async.nano.domain.{kind}", lambda *_: long)
    with pytest.raises(ConfigError) as refused:
        check_room_for_prompts(config, folder)
    assert words in str(refused.value)
    assert "leaves no room for a reply: raise model.max_context_tokens=120" in str(refused.value)


def test_the_games_prompt_does_not_fit_the_nano_context(folder: Path) -> None:
    sets = ['domain.hook="spade_async.designer.games"', "model.max_context_tokens=512"]
    with pytest.raises(ConfigError, match=r"prompt has at least \d+ tokens.*raise model"):
        check_room_for_prompts(nano(*sets, 'designer.skills=["Optimization"]'), folder)


def test_a_model_that_is_not_made_yet_is_judged_by_its_tokenizer() -> None:
    check_unmade_model(nano())
    with pytest.raises(ConfigError, match=r"designer\.max_new_tokens=80.*max_context_tokens=82"):
        check_unmade_model(nano("model.max_context_tokens=82"))
    for key in ("designer.thinking", "agent.thinking"):
        with pytest.raises(ConfigError, match=rf"{key}=true.*no switch enable_thinking"):
            check_unmade_model(nano(f"{key}=true"))
    check_unmade_model(nano("model.path=unknown", "agent.thinking=true"))


def test_a_thinking_switch_must_be_in_the_template(folder: Path, tmp_path: Path) -> None:
    switched = qwen_like.make_qwen_like_model(tmp_path / "switched", context=512)
    for key in ("designer.thinking", "agent.thinking"):
        config = nano(f"{key}=true")
        with pytest.raises(ConfigError, match=rf"{key}=true.*{folder}.*no switch"):
            check_room_for_prompts(config, folder)
        check_room_for_prompts(config, switched)


def test_a_tokenizer_without_a_template_or_of_another_digest_is_told(tmp_path: Path) -> None:
    plain = make_chat_model(tmp_path / "plain", tokenizer=make_chat_tokenizer(""))
    with pytest.raises(ConfigError, match="has no chat template: use a chat model"):
        check_room_for_prompts(nano(), plain)
    other = make_chat_model(tmp_path / "other")
    (other / "tokenizer_hash.txt").write_text("0" * 64)
    with pytest.raises(ConfigError, match="not the one this model was trained with"):
        check_room_for_prompts(nano(), other)


def test_a_template_that_refuses_a_role_is_told(tmp_path: Path) -> None:
    folder = make_chat_model(tmp_path, tokenizer=make_chat_tokenizer(NO_SYSTEM))
    config = nano('domain.hook="spade_async.smollm2.domain"')
    with pytest.raises(ConfigError, match=r"refuses messages with the roles system, user: no sys"):
        check_room_for_prompts(config, folder)


def test_the_quick_tokenizer_makes_the_same_prompts(folder: Path, tmp_path: Path) -> None:
    asked = [ChatTurn("system", "be brief"), ChatTurn("user", "2 + 2?\n<think>")]
    for path in (folder, qwen_like.make_qwen_like_model(tmp_path)):
        quick, whole = (ChatTokens.from_folder(path, quick=q) for q in (True, False))
        assert quick.encode_prompt(asked) == whole.encode_prompt(asked)
        assert quick.stop_token_ids == whole.stop_token_ids


@pytest.fixture
def with_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if vLLM's build for CPUs were installed."""
    found = VllmInstall("0.32.0", is_cpu_build=True, has_gpu=False, problem=None)
    monkeypatch.setattr(checks, "look", lambda: found)


@pytest.mark.usefixtures("with_vllm")
@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([], "has heads of size 8, and vLLM's attention on a CPU knows 32"),
        (['engine.vllm.transfer="ipc"'], 'engine.vllm.transfer="ipc" needs a GPU'),
    ],
    ids=["head", "ipc"],
)
def test_what_vllm_cannot_do_with_a_model_is_told_before_it_starts(
    folder: Path, sets: list[str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        check_engine(nano('engine.kind="vllm"', *sets), folder)
    check_engine(nano(), folder)


def test_shared_memory_too_small_for_the_weight_sets_is_told_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def check(needed_bytes: int = 0, root: Path = weights_folder.SHARED_MEMORY) -> None:
        asked.append(needed_bytes)
        if needed_bytes:
            raise WeightsError("too small")

    monkeypatch.setattr("spade_async.supervisor.room.check_shared_memory", check)
    config = nano(f'model.path="{folder}"', "weights.keep=4")
    with pytest.raises(WeightsError, match="too small"):
        check_start(config)
    # Five sets, each at most twice the file: it may be stored in half precision.
    assert asked == [5 * 2 * (folder / "model.safetensors").stat().st_size]
    check_start(nano(f'model.path="{folder}"', 'weights.location="run_folder"'))


def test_the_doctor_tells_each_of_them(folder: Path, tmp_path: Path) -> None:
    from spade_async.commands.doctor_config import config_findings

    def found(**keys: Any) -> dict[str, Any]:
        file = tmp_path / "run.toml"
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        file.write_text(f'extends = "{NANO}"\n[model]\n{lines}')
        return {f.name: f for f in config_findings(file)}

    assert "prompts" not in found(path=str(folder))
    for path in (str(folder), "nano"):
        short = found(path=path, max_context_tokens=82)["prompts"]
        assert (short.ok, short.needed) == (False, True)
        assert "raise model.max_context_tokens=82" in short.detail
