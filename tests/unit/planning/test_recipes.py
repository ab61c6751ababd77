"""The recipes for real models: the table's numbers, placement, prompts, and that they fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from spade_async.cluster.placement import place
from spade_async.commands import doctor_config
from spade_async.commands.doctor_config import config_findings
from spade_async.config.load import resolve
from spade_async.config.schema import Config
from spade_async.designer.skills import chosen_skills, domain_skills
from spade_async.domain import DesignRequest, design_prompt, load_domain
from spade_async.errors import ConfigError
from spade_async.planning.architecture import known_settings
from spade_async.planning.plan import make_plan
from spade_async.planning.rates import Rates
from tests.unit.planning.test_architecture import CLASSES

CONFIGS = Path(__file__).parents[3] / "configs"
TABLE: dict[str, dict[str, Any]] = {
    "qwen3_4b_games": {
        "model.path": "Qwen/Qwen3-4B-Instruct-2507",
        "designer.max_new_tokens": 16384,
        "learner.kl_to_start": 0.0,
        "agent.thinking": None,
    },
    "qwen3_8b_games": {
        "model.path": "Qwen/Qwen3-8B",
        "designer.max_new_tokens": 20000,
        "learner.kl_to_start": 0.005,
        "agent.thinking": True,
    },
    "qwen3_30b_a3b_games": {
        "model.path": "Qwen/Qwen3-30B-A3B-Instruct-2507",
        "designer.max_new_tokens": 16384,
        "learner.kl_to_start": 0.0,
        "agent.thinking": None,
    },
}
SHARED: dict[str, Any] = {
    "train.steps": 400,
    "cluster.gpus": 8,
    "agent.groups_per_step": 24,
    "agent.seeds_per_environment": 8,
    "agent.temperature": 0.6,
    "agent.max_turns": 25,
    "agent.max_new_tokens_per_turn": 8192,
    "designer.temperature": 0.6,
    "designer.skills_per_window": 3,
    "designer.reward.variant": "blend",
    "designer.reward.delay": 4,
    "designer.reward.weight_plateau": 0.6,
    "designer.reward.weight_regret": 0.4,
    "designer.reward.plateau_low": 0.4,
    "designer.reward.plateau_high": 0.6,
    "designer.reward.plateau_ramp": 0.25,
    "designer.reward.regret_norm": 0.15,
    "designer.reward.regret_range": "floor",
    "grounding.max_document_words": 6000,
    "grounding.memory_capacity": 200,
    "learner.betas": (0.9, 0.98),
    "learner.weight_decay": 0.1,
    "learner.clip_low": 0.2,
    "learner.clip_high": 0.28,
    "learner.micro_batch_tokens": 8192,
    "learner.activation_checkpointing": True,
    "model.max_context_tokens": 32768,
    "checkpoint.every": 16,
}


def recipe(name: str) -> Config:
    return resolve(CONFIGS / f"{name}.toml")


def value(config: Config, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", TABLE)
def test_numbers_are_those_of_the_table(name: str) -> None:
    config = recipe(name)
    wanted = {**SHARED, **TABLE[name]}
    assert {key: value(config, key) for key in wanted} == wanted
    assert config.designer.groups_per_step * config.designer.group_size == 24
    assert config.designer.skill_window * config.designer.group_size == 24


@pytest.mark.parametrize("name", TABLE)
def test_every_value_says_where_it_comes_from(name: str) -> None:
    lines = (CONFIGS / f"{name}.toml").read_text().splitlines()
    assigned = [line for line in lines if re.match(r"^[a-z_]+ = ", line)]
    own = [line for line in assigned if not line.startswith(("name =", "hook ="))]
    assert len(own) > 60
    silent = [line for line in own if not re.search(r"# \[(table|all|paper|ours)\]", line)]
    assert silent == []


@pytest.mark.parametrize("name", TABLE)
def test_it_is_asynchronous_and_every_gpu_has_work(name: str) -> None:
    config = recipe(name)
    agent, designer = config.async_.bounds
    assert agent > 0
    assert designer > config.designer.reward.delay
    placed = place(config)
    assert placed.idle == ()
    assert not placed.is_shared
    plan = make_plan(config, Rates())
    assert all("is free" in line for line in plan.staleness)


@pytest.mark.parametrize("name", TABLE)
def test_it_fits_and_its_weights_are_those_of_the_network(name: str) -> None:
    """Weights, moments and engine weights per device against the network on the meta device."""
    config = recipe(name)
    settings = known_settings(config.model.path)
    assert settings is not None
    kind = CLASSES[settings["model_type"]]
    plain = {k: v for k, v in settings.items() if k not in ("model_type", "architectures", "dtype")}
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(kind(**plain))
    plan = make_plan(config, Rates())
    assert plan.problems == []
    items = {item.name: item.num_bytes for device in plan.devices for item in device.items}
    ranks, width = config.learner.ranks, config.engine.vllm.tensor_parallel
    in_fp32 = sum(4 * p.numel() for p in network.parameters())
    in_bf16 = sum(2 * p.numel() for p in network.parameters())
    assert items["gen-0 weights"] == in_bf16 // width
    held = items["learner rank 0 weights (fp32)"]
    if config.learner.lora.rank:
        adapter = held * ranks - in_fp32
        assert 0 < adapter < 0.01 * in_fp32
        assert items["learner rank 0 optimizer"] == pytest.approx(2 * adapter / ranks, rel=1e-6)
        return
    assert held == in_fp32 // ranks
    optimizer = torch.optim.AdamW(network.parameters())
    for parameter in network.parameters():
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    moments = sum(
        t.numel() * t.element_size()
        for state in optimizer.state.values()
        for key, t in state.items()
        if key != "step"
    )
    assert items["learner rank 0 optimizer"] == moments // ranks


@pytest.mark.parametrize("name", TABLE)
def test_the_doctor_says_that_the_gpus_are_not_here(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**_: int) -> None:
        raise ConfigError("vLLM is not there: install it")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(doctor_config, "check_vllm", missing)
    found = {f.name: f for f in config_findings(CONFIGS / f"{name}.toml")}
    assert found["engine"].needed
    assert "install it" in found["engine"].detail
    assert found["GPUs"].needed
    assert "cluster.gpus=8, but this machine shows 0 NVIDIA GPUs" in found["GPUs"].detail
    assert found["model"].ok


@pytest.mark.parametrize("name", [*TABLE, "smollm2"])
def test_prompts_can_be_made(name: str) -> None:
    config = recipe(name)
    domain = load_domain(config.domain.hook)
    skills = chosen_skills(config.designer.skills, domain_skills(domain))
    assert [s.name for s in skills] == list(config.designer.skills)
    for skill in skills:
        turns = design_prompt(
            domain,
            DesignRequest(
                skill=skill.name, document="Sorting is ordering.", max_turns=config.agent.max_turns
            ),
        )
        assert any("orting" in turn.content or "sort" in turn.content for turn in turns)
    assert domain.agent_messages("x", None) != domain.agent_messages("x", "y")
