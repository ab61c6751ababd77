"""GPUs that are asked for where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.cluster.gpus import check_gpus, num_gpus
from spade_async.config.schema import Config
from spade_async.errors import ConfigError

TWO = Config.model_validate(
    {"cluster": {"gpus": 2}, "engine": {"kind": "vllm"}, "learner": {"device": "cuda"}}
)


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with two GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return tmp_path


def test_only_numbered_devices_count(devices: Path) -> None:
    assert num_gpus(devices) == 2
    check_gpus(TWO, devices)


@pytest.mark.parametrize(("visible", "there"), [("1", 1), ("", 0), ("0,1,2,3", 2)])
def test_hidden_ones_do_not_count(
    devices: Path, monkeypatch: pytest.MonkeyPatch, visible: str, there: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert num_gpus(devices) == there


def test_fewer_than_asked_is_one_line_with_the_keys(devices: Path) -> None:
    (devices / "nvidia1").unlink()
    with pytest.raises(ConfigError, match=r"cluster\.gpus=2, but this machine shows 1 .*lower"):
        check_gpus(TWO, devices)


def test_a_run_on_the_cpu_asks_for_none(tmp_path: Path) -> None:
    check_gpus(Config(), tmp_path)
