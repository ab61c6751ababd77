"""GPUs to processes, for every count of `cluster.gpus`, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from spade_async.cluster.placement import Placement, place
from spade_async.config.schema import Config
from spade_async.errors import ConfigError


def config(gpus: int, ranks: int = 1, count: int = 1, width: int = 1, **learner: Any) -> Config:
    return Config.model_validate(
        {
            "cluster": {"gpus": gpus},
            "engine": {"kind": "vllm", "vllm": {"tensor_parallel": width}},
            "generator": {"count": count},
            "learner": {"ranks": ranks, "device": "cuda" if gpus else "cpu", **learner},
        }
    )


def test_on_a_cpu_nobody_gets_a_device() -> None:
    placed = place(Config.model_validate({"generator": {"count": 3}}))
    assert placed == Placement(0, (), ((), (), ()))
    assert not placed.is_shared
    assert placed.idle == ()
    assert placed.environment("learner") == {}


def test_one_gpu_is_shared() -> None:
    placed = place(config(1))
    assert (placed.learner, placed.generators) == ((0,), ((0,),))
    assert placed.is_shared


@pytest.mark.parametrize(
    ("gpus", "ranks", "count", "width", "learner", "generators"),
    [
        (2, 1, 1, 1, (0,), ((1,),)),
        (4, 2, 2, 1, (0, 1), ((2,), (3,))),
        (4, 2, 1, 2, (0, 1), ((2, 3),)),
        (8, 2, 6, 1, (0, 1), ((2,), (3,), (4,), (5,), (6,), (7,))),
        (8, 4, 2, 2, (0, 1, 2, 3), ((4, 5), (6, 7))),
    ],
)
def test_ranks_first_then_generators_and_nobody_shares(
    gpus: int, ranks: int, count: int, width: int,
    learner: tuple[int, ...], generators: tuple[tuple[int, ...], ...],
) -> None:  # fmt: skip
    placed = place(config(gpus, ranks, count, width))
    assert (placed.learner, placed.generators) == (learner, generators)
    assert not placed.is_shared
    assert placed.idle == ()


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_no_device_is_given_twice_and_all_exist(gpus: int, width: int) -> None:
    for ranks in range(1, gpus):
        for count in range(1, (gpus - ranks) // width + 1):
            placed = place(config(gpus, ranks, count, width))
            taken = [*placed.learner, *(d for own in placed.generators for d in own)]
            assert len(set(taken)) == len(taken) == ranks + count * width
            assert {*taken, *placed.idle} == set(range(gpus))


def test_each_part_sees_its_own_devices_and_the_coordinator_none() -> None:
    placed = place(config(8, 4, 2, 2))
    seen = {part: placed.environment(part) for part in ("learner", "gen-1", "coordinator")}
    assert seen == {
        "learner": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        "gen-1": {"CUDA_VISIBLE_DEVICES": "6,7"},
        "coordinator": {"CUDA_VISIBLE_DEVICES": ""},
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (config(4, 2, 3), "cluster.gpus=4, but learner.ranks=2 and generator.count=3"),
        (config(2, 1, 1, 2), "ask for 3"),
        (config(1, 2), "cluster.gpus=1, but learner.ranks=2"),
        (config(1, 1, 2), "cluster.gpus=1, but generator.count=2"),
        (config(2, device="cpu"), 'cluster.gpus=2, but learner.device="cpu"'),
        (
            Config.model_validate({"cluster": {"gpus": 4, "turns": True}}),
            "cluster.turns=true is for a device",
        ),
        (config(0, device="cuda"), 'learner.device="cuda" with cluster.gpus=0'),
        (
            Config.model_validate({"cluster": {"gpus": 2}, "learner": {"device": "cuda"}}),
            'cluster.gpus=2, but engine.kind="builtin"',
        ),
    ],
    ids=[
        "too many",
        "too wide",
        "ranks on one",
        "engines on one",
        "cpu",
        "turns",
        "no gpu",
        "builtin",
    ],
)
def test_what_contradicts_itself_names_both_keys(wrong: Config, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        place(wrong)
