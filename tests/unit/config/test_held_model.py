"""How the learner holds its model: what cannot go together is named, both keys of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from spade_async.config.schema import Config


@pytest.mark.parametrize(
    ("learner", "named"),
    [
        ({"attention": "flash_attention_2"}, r'learner\.attention.*learner\.device="cuda"'),
        (
            {"attention": "flash_attention_3", "device": "cuda"},
            r'learner\.attention="flash_attention_3" needs .*learner\.dtype="bfloat16"',
        ),
        ({"critic": {"enabled": True}, "ranks": 2}, r"learner\.critic\.enabled.*learner\.ranks=2"),
        ({"critic": {"enabled": True}, "dtype": "bfloat16"}, r'learner\.dtype="bfloat16"'),
        ({"critic": {"enabled": True}, "device": "cuda"}, r'learner\.device="cuda"'),
    ],
)
def test_a_clash_names_both_keys(learner: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        Config.model_validate({"learner": learner})


def test_what_goes_together_is_taken() -> None:
    held = {"device": "cuda", "dtype": "bfloat16", "attention": "flash_attention_2", "ranks": 8}
    learner = Config.model_validate({"learner": held}).learner
    assert learner.is_sharded
    assert learner.first_device == "cpu"
    assert not Config().learner.is_sharded


@pytest.mark.parametrize(
    ("lora", "engine", "named"),
    [
        ({"push": "adapter"}, "vllm", r"learner\.lora\.rank=0"),
        ({"push": "adapter", "rank": 4}, "builtin", r'engine\.kind="vllm", and it is "builtin"'),
        ({"push": "adapter", "rank": 513}, "vllm", r"learner\.lora\.rank=513.*512"),
        ({"push": "adapter", "rank": 4, "targets": ["lm_head"]}, "vllm", "lm_head"),
    ],
)
def test_an_adapter_that_cannot_be_pushed_is_refused(
    lora: dict[str, Any], engine: str, named: str
) -> None:
    with pytest.raises(ValidationError, match=named):
        Config.model_validate({"learner": {"lora": lora}, "engine": {"kind": engine}})


@pytest.mark.parametrize(
    ("lora", "alone"),
    [({"rank": 4}, False), ({"rank": 4, "push": "adapter"}, True), ({"rank": 0}, False)],
)
def test_an_adapter_is_pushed_alone_where_that_is_asked_for(
    lora: dict[str, Any], alone: bool
) -> None:
    config = Config.model_validate({"learner": {"lora": lora}, "engine": {"kind": "vllm"}})
    assert config.learner.lora.pushes_adapter is alone
