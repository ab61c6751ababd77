"""Chosen experts in messages: most of their bytes, and the only ones that can be done without."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from spade_async.transport.messages import no_experts

log = logging.getLogger(__name__)

_TOLD: set[int] = set()
"""Rooms that this process has called too small."""


def sent_experts(
    experts: NDArray[np.int16] | None, max_message_bytes: int, whose: str
) -> NDArray[np.int16]:
    """What a message carries: all of them, or none when they take more than half of its room.

    Args:
        experts: [tokens, routers, k], or nothing known (None or empty).
        max_message_bytes: `link.max_message_bytes`.
        whose: of what, for the log.
    """
    if experts is None or not experts.size:
        return no_experts()
    if experts.nbytes > max_message_bytes // 2:
        # Once: every sample after it would say the same.
        level = logging.DEBUG if max_message_bytes in _TOLD else logging.WARNING
        _TOLD.add(max_message_bytes)
        log.log(
            level,
            "%s: its chosen experts take %d bytes, more than half of link.max_message_bytes=%d, "
            "and are left out: the learner's routers choose. Raise it to replay them",
            whose, experts.nbytes, max_message_bytes,
        )  # fmt: skip
        return no_experts()
    return experts
