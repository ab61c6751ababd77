"""The conversion of the package's GGUF file; skipped without it, but not by `.ci/vllm`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from spade_async.errors import ConfigError
from spade_async.planning.architecture import architecture
from spade_async.smollm2.convert import convert, find_package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        file, _ = find_package()
    except ConfigError as missing:
        if "SPADE_REQUIRE_SMOLLM2" in os.environ:
            raise
        pytest.skip(str(missing))
    made = tmp_path_factory.mktemp("smollm2")
    convert(file, made)
    return made


def test_a_folder_loads_like_any_other_and_ends_a_turn(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    settings = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in settings
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    counted = sum(p.numel() for p in model.parameters())
    assert counted == architecture(settings, "smollm2").num_weights == 134_515_008
    tokenizer = AutoTokenizer.from_pretrained(folder)
    source = "class A:\n    def step(self, action):\n        return 1.0\n"
    ids = tokenizer(source, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == source
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "The sky is"}]
    prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert prompt.endswith("<|im_start|>assistant\n")
    assert prompt.count("<|im_start|>") == 3
    with torch.no_grad():
        logits = model(**tokenizer("The capital of France is", return_tensors="pt")).logits[0, -1]
    # The weights are those of a language model, not of a network of the same shape.
    assert tokenizer.decode([int(logits.argmax())]).strip() == "Paris"
