"""Whether this machine has the GPUs that a configuration asks for; nothing heavy is imported."""

from __future__ import annotations

import os
import re
from pathlib import Path

from spade_async.cluster.placement import VISIBLE, place
from spade_async.config.schema import Config
from spade_async.errors import ConfigError

_DEVICES = Path("/dev")
_DEVICE = re.compile(r"nvidia\d+")


def num_gpus(devices: Path = _DEVICES) -> int:
    """GPUs of this machine, or as many of them as CUDA_VISIBLE_DEVICES leaves visible."""
    found = sum(1 for file in devices.glob("nvidia*") if _DEVICE.fullmatch(file.name))
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return found
    return min(found, len([word for word in visible.split(",") if word.strip()]))


def check_gpus(config: Config, devices: Path = _DEVICES) -> None:
    """See that the placement holds together and its GPUs are there.

    Raises:
        ConfigError: fewer GPUs than `cluster.gpus`, or a placement that contradicts itself.
    """
    wanted = place(config).gpus
    if not wanted:
        return
    there = num_gpus(devices)
    if there < wanted:
        visible = os.environ.get(VISIBLE)
        hidden = "" if visible is None else f" (with {VISIBLE}={visible!r})"
        raise ConfigError(
            f"cluster.gpus={wanted}, but this machine shows {there} NVIDIA GPUs{hidden}: run it on "
            "a machine that has them, lower cluster.gpus, or set cluster.gpus=0 and "
            'learner.device="cpu" (spade-async plan works without any)'
        )
