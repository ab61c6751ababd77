"""What leaves the device between steps; the GPU itself is not here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

from spade_async.config.held_model import HeldModel
from spade_async.learner import sharding
from spade_async.learner.ranks import ALONE


@pytest.mark.parametrize(
    ("device", "offload", "policy"),
    [
        ("cuda", True, CPUOffloadPolicy),
        ("cuda", False, OffloadPolicy),
        ("cpu", True, OffloadPolicy),
    ],
)
def test_weights_go_to_the_host_where_that_is_another_place(
    device: str, offload: bool, policy: type[OffloadPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(sharding, "join", lambda _: ALONE)
    monkeypatch.setattr(sharding, "init_device_mesh", lambda *_: None)
    monkeypatch.setattr(sharding, "repeated_layers", lambda _: [torch.nn.Linear(1, 1)])
    monkeypatch.setattr(
        sharding, "fully_shard", lambda _, **keys: given.append(keys["offload_policy"])
    )
    held = HeldModel.model_validate({"device": device, "offload": offload})
    sharding.shard(torch.nn.Linear(1, 1), None, held)  # type: ignore[arg-type]
    assert [type(one) for one in given] == [policy, policy]


def test_a_model_that_is_offloaded_is_held_by_fsdp() -> None:
    assert HeldModel.model_validate({"offload": True}).is_sharded
    assert HeldModel.model_validate({"offload": True, "device": "cuda"}).first_device == "cpu"
    assert not HeldModel().is_sharded
