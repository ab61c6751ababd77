"""The LoRA adapters inside one vLLM: each version under an id and a name of its own.

A request keeps the adapter that it was sent with, and the name says the version of its tokens. An
id or a name is never used twice, so neither a half-loaded adapter nor cached keys of another one
can be met again: vLLM's prefix cache goes by the name. vLLM reads a peft folder; ours is two small
entries beside the weight file, one of them a link to the very file that was checked.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from spade_async.config.held_model import LoraConfig
from spade_async.engine.vllm.installed import has_nvidia_gpu
from spade_async.engine.vllm.staged import StagedWeights
from spade_async.errors import ConfigError
from spade_async.types import PolicyVersion

SLOTS = 3
"""Adapters that vLLM computes with at a time: the newest, the one before it, and one whose requests
are just leaving."""
_HOST_SLOTS = 8
_NOT_ADAPTED = {"lm_head", "embed_tokens", "gate"}
"""Matrices that "all-linear" does not mean: head, embedding, router."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Sizes that vLLM knows; an adapter takes the next larger one."""


@dataclass(slots=True, eq=False)
class Adapter:
    """One version in one vLLM."""

    version: PolicyVersion
    number: int
    """vLLM's id."""
    folder: Path
    file: BinaryIO
    """Held, so that vLLM can read it again."""
    num_users: int = 0
    """Requests under way with it."""

    @property
    def name(self) -> str:
        """What vLLM keys its prefix cache by, and what `version_of` reads."""
        return f"{self.version.packed}-{self.number}"

    def request(self) -> Any:
        """As vLLM takes it: a `LoRARequest`."""
        from vllm.lora.request import LoRARequest

        return LoRARequest(self.name, self.number, str(self.folder))

    def close(self) -> None:
        """Let its folder and file go."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.file.close()


class Adapters:
    """Those of one vLLM; none until the first is added."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._held: list[Adapter] = []
        self._numbers = itertools.count(1)
        self.newest: Adapter | None = None
        """What new requests are sent with."""

    @property
    def versions(self) -> list[PolicyVersion]:
        """Those that are in vLLM, oldest first."""
        return [adapter.version for adapter in self._held]

    @contextmanager
    def use(self) -> Iterator[Adapter | None]:
        """Hold the newest one for the length of a request."""
        adapter = self.newest
        if adapter is None:
            yield None
            return
        adapter.num_users += 1
        try:
            yield adapter
        finally:
            adapter.num_users -= 1

    async def add(self, staged: StagedWeights) -> None:
        """One try to load a version; when it fails nothing of it stays.

        Raises:
            Exception: whatever vLLM says.
        """
        adapter = _write(staged, next(self._numbers))
        try:
            if not await self._llm.add_lora(adapter.request()):
                raise RuntimeError("vLLM did not take the adapter")
        except Exception:
            try:
                # It may be registered and half copied into its slot.
                await self._llm.remove_lora(adapter.number)
            finally:
                adapter.close()
            raise
        except BaseException:
            # Cancelled, as when vLLM has died: it is not asked anything more.
            adapter.close()
            raise
        self._held.append(adapter)
        self.newest = adapter

    async def drop_unused(self) -> None:
        """Remove every older one that no request is under way with."""
        for adapter in [a for a in self._held if a is not self.newest and not a.num_users]:
            await self._llm.remove_lora(adapter.number)
            self._held.remove(adapter)
            adapter.close()

    def close(self) -> None:
        """Let the files go; vLLM is gone."""
        for adapter in self._held:
            adapter.close()
        self._held = []


def version_of(name: str) -> int:
    """Packed version of the tokens of a request that vLLM ran with an adapter of that name."""
    return int(name.partition("-")[0])


def adapter_arguments(lora: LoraConfig, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """What vLLM needs to know in advance to take adapters.

    The head is left out: wrapped for adapters it ends vLLM's process at the first prompt that is
    scored beside another request (seen with 0.32.0 on a CPU: "einsum(): subscript b").

    Args:
        lora: rank, and the ends of the names of the layers.
        shapes: of the model's weights (`header.folder_shapes`).

    Raises:
        ConfigError: which layers there are cannot be told, or vLLM cannot adapt them here.
    """
    if any(".experts." in name for name in shapes) and not has_nvidia_gpu():
        raise ConfigError(
            'learner.lora.push="adapter": vLLM computes adapters of a mixture of experts on a GPU '
            'alone, and there is none: set learner.lora.push="merged"'
        )
    targets = {target.rpartition(".")[2] for target in lora.targets}
    if lora.targets == ("all-linear",):
        matrices = [name for name, shape in shapes.items() if len(shape) == 2]
        layers = {name.removesuffix(".weight").rpartition(".")[2] for name in matrices}
        targets = layers - _NOT_ADAPTED
    if not targets:
        raise ConfigError(
            "learner.lora.push: the layers of a model without safetensors files are not known; "
            'set learner.lora.push="merged", or name them in learner.lora.targets'
        )
    return {
        "enable_lora": True,
        "lora_target_modules": sorted(targets),
        "max_lora_rank": next(size for size in _RANKS if size >= lora.rank),
        "max_loras": SLOTS,
        "max_cpu_loras": _HOST_SLOTS,
    }


def _write(staged: StagedWeights, number: int) -> Adapter:
    """Make the peft folder of a checked adapter."""
    assert staged.adapter is not None
    folder = staged.folder / f".adapter-{os.getpid()}-{staged.version}-{number}"
    file = Path(staged.path).open("rb")  # noqa: SIM115 - held while the adapter is
    try:
        folder.mkdir(mode=0o700)
        config = {"peft_type": "LORA", "bias": "none", **staged.adapter}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        link = folder / "adapter_model.safetensors"
        link.symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        file.close()
        raise
    return Adapter(staged.version, number, folder, file)
