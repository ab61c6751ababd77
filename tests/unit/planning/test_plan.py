"""The plan: closed forms, what cannot fit with its key, rates, disk, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from spade_async.commands import plan as command
from spade_async.config.load import resolve
from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.errors import ConfigError, LedgerError
from spade_async.ledger import Ledger, StepTime, TaskTime
from spade_async.planning.architecture import architecture_of
from spade_async.planning.holding import Holding
from spade_async.planning.memory import FP32
from spade_async.planning.plan import Plan, make_plan
from spade_async.planning.rates import Rates, hourly, measured, work_of
from spade_async.simulate.durations import LogNormal
from spade_async.simulate.natural_age import role_ages
from spade_async.simulate.startup import SIGMA, bound_lines, load_of

CONFIGS = Path(__file__).parents[3] / "configs"


def plan(name: str, *sets: str, rates: Rates | None = None) -> Plan:
    config = resolve(CONFIGS / f"{name}.toml", sets)
    return make_plan(config, rates or Rates())


TURNS = ("", "generators", "learner")


def items(made: Plan, device: int = -1) -> dict[str, int]:
    return {item.name: item.num_bytes for item in made.devices[device].items}


def test_nano_on_a_cpu_by_hand() -> None:
    """0.889 M numbers in fp32; 64 slots of 256 positions of 4 layers x 4 heads x 32, twice."""
    made = plan("nano")
    weights = FP32 * made.shape.num_weights
    found = items(made)
    assert found["gen-0 weights"] == found["learner gradients"] == weights
    assert found["learner optimizer"] == 2 * weights
    assert found["learner copy that undoes an update"] == 3 * weights
    assert found["gen-0 KV"] == 64 * 256 * (2 * 4 * 4 * 32) * 4
    assert made.fits
    assert [device.name for device in made.devices] == ["host memory"]


def test_checkpointing_keeps_the_inputs_of_the_layers_and_one_layer() -> None:
    config = resolve(CONFIGS / "qwen3_4b_games.toml")
    shape = architecture_of(config)
    found = Holding.of(config, shape).activation_bytes
    # One sample of the whole context is longer than the micro-batch budget.
    assert found == 32768 * (36 * 2 * 2560 + shape.saved_bytes_per_token(2))


def test_a_tensor_parallel_engine_splits_weights_and_heads() -> None:
    one, two = (
        Holding.of(config, architecture_of(config))
        for config in (
            resolve(CONFIGS / "qwen3_30b_a3b_games.toml", [f"engine.vllm.tensor_parallel={n}"])
            for n in (1, 2)
        )
    )
    assert two.engine_weight_bytes == one.engine_weight_bytes // 2
    assert two.kv_bytes_per_token == one.kv_bytes_per_token // 2
    assert two.whole_engine_bytes == one.whole_engine_bytes


@pytest.mark.parametrize(
    ("name", "sets", "words"),
    [
        ("nano", ["cluster.host_memory=1GB"], "host memory holds 1 GB and would need"),
        (
            "qwen3_4b_games",
            ["learner.activation_checkpointing=false"],
            "activations.*set learner.activation_checkpointing=true",
        ),
        ("qwen3_8b_games", ["learner.ranks=2"], "GPU 0.*raise learner.ranks, or train an adapter"),
        (
            "qwen3_30b_a3b_games",
            ["engine.vllm.transfer=ipc"],
            'GPU 4.*CUDA IPC.*set engine.vllm.transfer="file"',
        ),
        (
            "qwen3_30b_a3b_games",
            ["engine.vllm.tensor_parallel=1"],
            "one sequence of model.max_context_tokens=32768 takes.*tensor_parallel",
        ),
        (
            "qwen3_8b_games",
            ["engine.vllm.gpu_memory_utilization=0.95"],
            "lower engine.vllm.gpu_memory_utilization",
        ),
        ("qwen3_8b_games", ["model.max_context_tokens=65536"], "more than the 40960 positions"),
        ("qwen3_4b_games", ["cluster.host_memory=40GB"], "host memory.*lower learner.ranks"),
    ],
)
def test_what_cannot_fit_names_the_item_and_the_key(name: str, sets: list[str], words: str) -> None:
    import re

    found = plan(name, *sets).problems
    assert any(re.search(words, line) for line in found), found


def test_the_start_model_of_the_kl_term_takes_what_the_weights_take() -> None:
    made = items(plan("qwen3_8b_games"), 0)
    assert made["learner rank 0 start model"] == made["learner rank 0 weights (fp32)"]
    without = items(plan("qwen3_8b_games", "learner.kl_to_start=0"), 0)
    assert "learner rank 0 start model" not in without


def test_one_gpu_holds_both_and_says_so() -> None:
    sets = ["cluster.gpus=1", "learner.ranks=1", "generator.count=1", "learner.lora.rank=16"]
    sets += ["engine.vllm.gpu_memory_utilization=0.3"]
    made = plan("qwen3_4b_games", *sets)
    assert made.devices[0].processes == ["gen-0", "learner"]
    assert any("share GPU 0" in line for line in made.remarks)
    assert made.devices[0].fits


def test_parts_that_take_turns_need_the_larger_of_both() -> None:
    sets = ["cluster.gpus=1", "learner.ranks=1", "generator.count=1", "learner.lora.rank=16"]
    sets += ["engine.vllm.gpu_memory_utilization=0.8"]
    gpu, host = (plan("qwen3_4b_games", *sets).devices[n] for n in (0, -1))
    sums = {turn: sum(i.num_bytes for i in gpu.items if i.turn == turn) for turn in TURNS}
    assert min(sums.values()) > 0
    assert gpu.total == sums[""] + max(sums["generators"], sums["learner"])
    assert gpu.largest.turn in ("", max(TURNS[1:], key=lambda turn: sums[turn]))
    weights = {i.name: i.num_bytes for i in gpu.items}["gen-0 weights"]
    assert {i.name: i.num_bytes for i in host.items}["gen-0 weights while it sleeps"] == weights

    both = plan("qwen3_4b_games", *sets, "cluster.turns=false").devices[0]
    assert both.total == sum(i.num_bytes for i in both.items) > gpu.total
    # The learner's own weights leave the device only when that is asked for.
    away, kept = (
        plan("qwen3_4b_games", *sets, f"learner.offload={word}") for word in ("true", "false")
    )
    moved = {i.name for i in kept.devices[0].items} - {i.name for i in away.devices[0].items}
    assert moved == {"learner weights (fp32)", "learner gradients", "learner optimizer"}
    assert moved <= {i.name for i in away.devices[-1].items}
    assert away.devices[0].total < kept.devices[0].total


def test_an_adapter_alone_is_what_is_published() -> None:
    """33,030,144 weights of rank 16 on Qwen3-4B, two bytes each, in weights.keep + 1 files."""
    sets = ["learner.lora.rank=16", 'learner.dtype="bfloat16"', "weights.keep=3"]
    name = "published weights in /dev/shm"
    alone, merged = (
        items(plan("qwen3_4b_games", *sets, f'learner.lora.push="{push}"'), -1)[name]
        for push in ("adapter", "merged")
    )
    assert alone == 4 * 2 * 33_030_144
    assert merged > 100 * alone


def test_an_idle_gpu_is_a_remark() -> None:
    made = plan("qwen3_4b_games", "generator.count=5")
    assert made.fits
    assert any("GPU 7 would be idle" in line for line in made.remarks)


RATES = Rates(
    generator_tokens_per_s=2000.0,
    learner_tokens_per_s=1000.0,
    design_tokens=50.0,
    episode_tokens=10.0,
)


def test_an_hour_by_hand() -> None:
    """Nano: 20 designs, 25 plays of 8 seeds, of which 16 also with the hint.

    Sampled 20 * 50 + (200 + 128) * 10 = 4,280 tokens, 2.14 s of a generator; trained 20 * 50 +
    200 * 10 = 3,000 tokens, 3 s of the learner, which sets the pace.
    """
    config = resolve(CONFIGS / "nano.toml")
    work = work_of(config, RATES)
    assert (work.designs, work.episodes, work.trained_episodes) == (20, 328, 200)
    assert (work.sampled_tokens, work.trained_tokens) == (4280.0, 3000.0)
    pace = hourly(config, work, RATES)
    assert pace is not None
    assert (pace.step_s, pace.slower) == (3.0, "learner")
    assert pace.episodes == pytest.approx(1200 * 328)
    two = resolve(CONFIGS / "nano.toml", ["async.staleness=0"])
    turns = hourly(two, work_of(two, RATES), RATES)
    assert turns is not None
    assert turns.step_s == pytest.approx(3.0 + 2.14)


def test_a_run_is_measured_by_the_times_in_its_ledger(tmp_path: Path) -> None:
    """Two generators, 10 s from the first task to the last result: 2 designs of 40 tokens, 4 plays
    of 30. The learner trained 90 tokens in 3 s; a step without its own time says nothing."""

    def task(number: int, kind: str, tokens: int) -> TaskTime:
        return TaskTime(
            task_id=f"t{number}", position=0, group_id="g", kind=kind, arm="",
            generator=f"gen-{number % 2}", dispatched_unix_s=0.0,
            started_unix_s=100.0 + number, finished_unix_s=105.0 + number, queue_s=0.0,
            engine_s=1.0, num_tokens=tokens,
        )  # fmt: skip

    tasks = [task(n, "design", 40) for n in (0, 5)] + [task(n, "play", 30) for n in (1, 2, 3, 4)]
    steps = [StepTime(ordinal=1, num_samples=1, num_tokens=90, taken_unix_s=1.0, busy_s=3.0),
             StepTime(ordinal=2, num_samples=1, num_tokens=999, taken_unix_s=2.0)]  # fmt: skip
    path = RunFolder(tmp_path).ledger
    with Ledger.open(path, create=True, config_digest="c") as ledger, ledger.transaction():
        ledger.put_step_times(steps[1:])
    with pytest.raises(LedgerError, match="has no timed step yet; name a run that trained"):
        measured(tmp_path)
    with Ledger.open(path, create=False, config_digest="c") as ledger, ledger.transaction():
        ledger.add_task_times(tasks)
        ledger.put_step_times(steps)
    found = measured(tmp_path)
    assert found.generator_tokens_per_s == pytest.approx(200 / 10 / 2)
    assert found.learner_tokens_per_s == pytest.approx(30.0)
    assert (found.design_tokens, found.episode_tokens) == (40.0, 30.0)
    # What is given goes before what was measured, and the source says so.
    both = Rates(episode_tokens=7.0).over(found)
    assert (both.episode_tokens, both.design_tokens) == (7.0, 40.0)
    assert both.source == f"given, the rest measured in {tmp_path}"


def test_the_age_follows_from_the_lengths_that_are_known() -> None:
    """Little's law: what is in flight over what a step takes, in tokens of the given lengths."""
    config = resolve(CONFIGS / "nano.toml")
    assert plan("nano").staleness == bound_lines(config)
    for designs, episodes in ((50.0, 10.0), (500.0, 10.0)):
        rates = Rates(design_tokens=designs, episode_tokens=episodes)
        load = load_of(
            config,
            design=LogNormal.of_mean(designs, SIGMA),
            episode=LogNormal.of_mean(episodes, SIGMA),
        )
        for line, age in zip(plan("nano", rates=rates).staleness, role_ages(load), strict=True):
            assert f"about {age:.1f} steps old by themselves" in line
    sync = plan("nano", "async.staleness=0", rates=RATES).staleness
    assert sync == ["staleness: both bounds are 0, the synchronous mode"]


def test_prompts_that_leave_no_room_are_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    options = command.Options(sets=["model.max_context_tokens=82"])
    code = command.plan(CONFIGS / "nano.toml", options, as_json=True, console=Console())
    told = json.loads(capsys.readouterr().out)
    assert (code, told["fits"]) == (1, False)
    (line,) = told["problems"]
    assert "raise model.max_context_tokens=82 or lower designer.max_new_tokens" in line


def test_disk_grows_with_the_pace_and_checkpoints_do_not() -> None:
    slow, fast = (
        plan("nano", rates=Rates(
            generator_tokens_per_s=s, learner_tokens_per_s=s, design_tokens=50, episode_tokens=10
        )).disk
        for s in (1000.0, 2000.0)
    )  # fmt: skip
    assert slow.ledger_per_day is not None
    assert fast.ledger_per_day == pytest.approx(2 * slow.ledger_per_day, rel=1e-6)
    assert fast.checkpoints == slow.checkpoints == 4 * 12 * plan("nano").shape.num_weights
    assert plan("nano").disk.ledger_per_day is None


def test_without_speeds_nothing_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.plan(CONFIGS / "nano.toml", command.Options(), as_json=True, console=Console())
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["per_hour"] is None
    assert told["disk"]["ledger_per_day"] is None
    assert told["rates"]["generator_tokens_per_s"] is None


def test_the_text_names_devices_items_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["learner.activation_checkpointing=false"]
    options = command.Options(sets=sets, given=RATES)
    code = command.plan(
        CONFIGS / "qwen3_4b_games.toml", options, as_json=False, console=Console(width=140)
    )
    told = capsys.readouterr().out
    assert code == 1
    for words in ("GPU 0", "gen-5", "rank 0 copy that undoes", "per hour (given)", "cannot run"):
        assert words in told


def test_unknown_models_and_speeds_are_said() -> None:
    with pytest.raises(ConfigError, match=r"model\.path='no-such-model'.*smollm2"):
        make_plan(Config.model_validate({"model": {"path": "no-such-model"}}), Rates())
    options = command.Options(given=Rates(learner_tokens_per_s=0.0))
    with pytest.raises(ConfigError, match="--learner-tokens-per-s=0: must be above 0"):
        command.plan(CONFIGS / "nano.toml", options, as_json=True, console=Console())


def test_a_folder_of_any_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({
            "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
            "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 50,
        })
    )  # fmt: skip
    made = plan("nano", f'model.path="{tmp_path}"')
    assert made.shape.layers == 2
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        plan("nano", f'model.path="{tmp_path}"')
