"""The link for minutes over a network that drops, delays, doubles, reorders and cuts.

First through two bad layers in one process, message by message and byte by byte; then between hosts
made of network namespaces, with CURVE, over bad cables that are pulled now and then. Fails when one
message is lost or delivered twice.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from typing import Any

from benches._scratch import scratch
from benches.wire.hosts import over_hosts, why_not
from benches.wire.traffic import over_bad_network
from spade_async.transport.keys import write_keys

SEED = 20_261_130


def run(quick: bool) -> dict[str, Any]:
    """Both settings; three minutes each, five seconds with `quick`."""
    seconds = 5.0 if quick else 180.0
    logging.disable(logging.WARNING)
    try:
        found: dict[str, Any] = {"proxy": asyncio.run(over_bad_network(seconds, SEED))}
        reason = why_not()
        if reason is not None:
            return found | {"namespaces": None, "why_not": reason}
        with scratch() as folder:
            server, client = folder / "server", folder / "client"
            write_keys(server)
            client.mkdir()
            shutil.copy(server / "client.key", client / "client.key")
            return found | {"namespaces": over_hosts(seconds, SEED, server, client)}
    finally:
        logging.disable(logging.NOTSET)


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = []
    for name in ("proxy", "namespaces"):
        row = result[name]
        if row is None:
            lines.append(f"{name}: not run: {result['why_not']}")
            continue
        lines.append(
            f"{name}: {row['seconds']:g} s, {row['sent']:,} messages: lost {row['lost']}, doubled "
            f"{row['doubled']}; sent again {row['resent']:,.0f}, duplicates dropped "
            f"{row['duplicates_refused']:,.0f}"
        )
        trouble = row.get("network") or {
            "cables": row["cables"], "pulled": row["pulled_cables"],
        }  # fmt: skip
        lines.append("  " + ", ".join(f"{key} {value}" for key, value in trouble.items()))
    return "\n".join(lines)


def failures(result: dict[str, Any]) -> list[str]:
    """What should not have happened, one line each."""
    return [
        f"{name}: {row['lost']} messages lost, {row['doubled']} delivered twice"
        for name in ("proxy", "namespaces")
        if (row := result[name]) is not None and (row["lost"] or row["doubled"])
    ]
