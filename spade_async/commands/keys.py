"""`spade-async keys`: make both key files and say which machine needs which."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from spade_async.transport.keys import write_keys


def keys(folder: Path, *, console: Console) -> None:
    """Make the keys in `folder`. Raises TransportError when one of them is there already."""
    server, client = write_keys(folder)
    for line in (
        f"{server}  secret of the coordinator: stays on the machine that runs `spade-async train`",
        f"{client}  secret of generators and learner: that machine needs it too, and every other "
        "machine of the run",
        "Copy client.key by a way you trust (scp -p). Then, on every machine:",
        f"  link.endpoint=tcp://ADDRESS:PORT  link.keys={folder}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
