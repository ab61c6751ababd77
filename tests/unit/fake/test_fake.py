"""Dry runs: what stays of a recipe, what its model becomes, and what cannot be faked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from spade_async.config.load import resolve
from spade_async.errors import ConfigError
from spade_async.fake import folder, model
from spade_async.fake.settings import STEPS, settings
from spade_async.planning.architecture import SHAPES, known_settings

CONFIGS = Path(__file__).parents[3] / "configs"
RECIPES = ("qwen3_4b_games", "qwen3_8b_games", "qwen3_30b_a3b_games")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", RECIPES)
def test_a_dry_run_keeps_the_rules_of_its_recipe(name: str, tmp_path: Path) -> None:
    path = CONFIGS / f"{name}.toml"
    recipe = resolve(path)
    dry = resolve(path, settings(recipe, tmp_path))
    assert dry.run.fake_weights
    assert not recipe.run.fake_weights
    assert dry.run.name == f"{name}-fake"
    assert (dry.train.steps, dry.cluster.gpus, dry.learner.device) == (STEPS, 0, "cpu")
    for section in ("domain", "regret", "guards", "contract"):
        assert getattr(dry, section) == getattr(recipe, section)
    for key in ("hint", "skills", "thinking", "temperature"):
        assert getattr(dry.designer, key) == getattr(recipe.designer, key)
    assert dry.designer.reward.variant == recipe.designer.reward.variant
    assert dry.engine.kind == recipe.engine.kind
    assert dry.async_.bounds == recipe.async_.bounds
    for key in ("correction", "lora", "lr", "clip_high", "activation_checkpointing"):
        assert getattr(dry.learner, key) == getattr(recipe.learner, key)


@pytest.mark.parametrize("name", sorted(path.stem for path in SHAPES.glob("qwen3*.json")))
def test_the_tiny_model_is_of_the_same_architecture(name: str) -> None:
    real = known_settings(name)
    assert real is not None
    tiny = model.small(real, 261)
    changed = {key for key in tiny if tiny[key] != real.get(key)}
    assert changed <= {
        "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "dtype",
        "num_experts", "num_experts_per_tok",
    }  # fmt: skip
    assert (tiny["model_type"], tiny["tie_word_embeddings"]) == (
        real["model_type"], real["tie_word_embeddings"]
    )  # fmt: skip
    assert tiny["num_key_value_heads"] < tiny["num_attention_heads"]


def test_what_is_made_loads_like_any_model_and_is_made_once() -> None:
    recipe = resolve(CONFIGS / "qwen3_30b_a3b_games.toml")
    made = folder.make(recipe)
    loaded = AutoModelForCausalLM.from_pretrained(made)
    assert type(loaded).__name__ == "Qwen3MoeForCausalLM"
    tokenizer = AutoTokenizer.from_pretrained(made)
    assert loaded.config.vocab_size == len(tokenizer)
    text = "x = 'ä🙂'\n\t"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert (len(ids), tokenizer.decode(ids)) == (len(text.encode()), text)
    turns = [{"role": "user", "content": "a"}]
    shown = [
        tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=False, enable_thinking=thinking
        )
        for thinking in (True, False)
    ]
    assert shown[0] == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    assert shown[1] == shown[0] + "<think>\n\n</think>\n\n"
    before = (made / "model.safetensors").stat().st_mtime_ns
    assert folder.make(recipe) == made
    assert (made / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (None, "is no folder here, and its architecture is not built in"),
        ("{", "cannot be read"),
        ("[]", "says neither model_type nor num_attention_heads"),
        (json.dumps({"model_type": "qwen3"}), "says neither model_type nor num_attention_heads"),
        (
            json.dumps({"model_type": "nonsense", "num_attention_heads": 4}),
            "no fake of it can be made: .*nonsense",
        ),
    ],
)
def test_what_cannot_be_faked_is_one_clear_error(
    written: str | None, says: str, tmp_path: Path
) -> None:
    there = tmp_path / "model"
    if written is not None:
        there.mkdir()
        (there / "config.json").write_text(written)
    recipe = resolve(CONFIGS / "qwen3_4b_games.toml", [f"model.path={json.dumps(str(there))}"])
    with pytest.raises(ConfigError, match=says) as found:
        folder.make(recipe)
    assert "\n" not in str(found.value)
