"""Which codec each prompt of a generator is made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spade_async.config.schema import Config
from spade_async.domain import ChatTurn
from spade_async.errors import ConfigError
from spade_async.generator.engines import make_tokens
from tests.support import qwen_like
from tests.support.tiny_chat_model import make_chat_model

OPEN, CLOSED = "assistant\n", "assistant\n<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen_like.make_qwen_like_model(tmp_path_factory.mktemp("qwen"))


@pytest.mark.parametrize(
    ("agent", "designer", "ends"),
    [
        (None, None, (OPEN, OPEN, CLOSED)),
        (True, False, (OPEN, CLOSED, CLOSED)),
        (False, True, (CLOSED, OPEN, CLOSED)),
        (False, None, (CLOSED, OPEN, CLOSED)),
    ],
)
def test_each_role_thinks_as_it_is_told_and_hints_do_not(
    folder: Path, agent: bool | None, designer: bool | None, ends: tuple[str, ...]
) -> None:
    config = Config.model_validate(
        {"agent": {"thinking": agent}, "designer": {"thinking": designer}}
    )
    codecs = make_tokens(config, folder)
    found: list[Any] = [codecs.agent, codecs.designer, codecs.brief]
    for codec, end in zip(found, ends, strict=True):
        text = codec.exact_text(codec.encode_prompt([ChatTurn("user", "2+2?")]))
        assert text.endswith(f"<|im_start|>{end}")


def test_without_a_switch_all_prompts_are_made_alike_and_asking_for_one_fails(
    tmp_path: Path,
) -> None:
    plain = make_chat_model(tmp_path)
    codecs = make_tokens(Config(), plain)
    assert codecs.agent is codecs.designer is codecs.brief
    for role in ("agent", "designer"):
        with pytest.raises(ConfigError, match=rf"{role}\.thinking=true"):
            make_tokens(Config.model_validate({role: {"thinking": True}}), plain)
