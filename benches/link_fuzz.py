"""More than two million hostile frames at the link: none hangs, none grows, each has its reason.

A million straight into the decoder, and 350,000 over real sockets at each of coordinator,
generator and learner. ``--quick`` sends 1 % of them. Fails when a frame is not counted, a good
message between them is lost or delivered twice, memory grows, or a good peer is not served.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from benches.wire.fuzz import ENDS

FRAMES = {"decoder": 1_000_000, "coordinator": 350_000, "generator": 350_000, "learner": 350_000}
SEED = 20_261_130
MOST_GROWN_BYTES = 64 << 20
"""Queues of ZeroMQ fill and empty; a leak of one frame in ten would be ten times this."""


def run(quick: bool) -> dict[str, Any]:
    """Every end with fixed seeds."""
    logging.disable(logging.WARNING)
    try:
        share = 100 if quick else 1
        ends = [asdict(ENDS[end](count // share, SEED)) for end, count in FRAMES.items()]
    finally:
        logging.disable(logging.NOTSET)
    return {"seed": SEED, "frames": sum(end["frames"] for end in ends), "ends": ends}


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"{'end':<12} {'frames':>9} {'frames/s':>9} {'grown MiB':>9} {'delivered':>9} "
        f"{'doubled':>8}  refused by reason"
    ]
    for end in result["ends"]:
        reasons = ", ".join(f"{name} {n:,}" for name, n in sorted(end["refused"].items()))
        lines.append(
            f"{end['end']:<12} {end['frames']:>9,} {end['frames'] / end['seconds']:>9,.0f} "
            f"{end['grown_bytes'] / (1 << 20):>9.1f} {end['delivered']:>9,} "
            f"{end['duplicates']:>8,}  {reasons}"
        )
    lines.append(f"{result['frames']:,} frames in all")
    return "\n".join(lines)


def failures(result: dict[str, Any]) -> list[str]:
    """What should not have happened, one line each."""
    found = [f"{end['end']}: {fault}" for end in result["ends"] for fault in end["faults"]]
    found += [
        f"{end['end']}: memory grew by {end['grown_bytes'] >> 20} MiB"
        for end in result["ends"]
        if end["grown_bytes"] > MOST_GROWN_BYTES
    ]
    return found
