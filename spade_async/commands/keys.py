"""`spade-async keys`: make both key files and say which machine needs which."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from spade_async.errors import TransportError
from spade_async.transport.client_keys import add_clients
from spade_async.transport.keys import SERVER, write_keys

MOST_CLIENTS = 1000


def keys(folder: Path, *, clients: Sequence[str] = (), console: Console) -> None:
    """Make the keys in `folder`, or add named clients to those that are there.

    Raises:
        TransportError: a file is there already, or a name cannot be one.
    """
    if not clients:
        say(_both(folder), console)
        return
    lines = [] if (folder / SERVER).exists() else _both(folder)
    for path in add_clients(folder, clients):
        lines.append(
            f"{path}  secret of {path.parent.name}: goes to that machine alone, as client.key"
        )
    lines.append(
        f"{folder / SERVER} lets them in from the next start on; take a line out of its list to "
        "shut one of them out"
    )
    say(lines, console)


def names(clients: str) -> list[str]:
    """What --clients says: "3" is machine-1 to machine-3, anything else names between commas.

    Raises:
        TransportError: no client at all, or more than 1,000.
    """
    if clients.isdigit():
        if not 1 <= int(clients) <= MOST_CLIENTS:
            raise TransportError(f"--clients {clients}: 1 to {MOST_CLIENTS} keys at once")
        return [f"machine-{number}" for number in range(1, int(clients) + 1)]
    return [name.strip() for name in clients.split(",")] if clients else []


def say(lines: Sequence[str], console: Console) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _both(folder: Path) -> list[str]:
    server, client = write_keys(folder)
    return [
        f"{server}  secret of the coordinator: stays on the machine that runs `spade-async train`",
        f"{client}  secret of generators and learner: that machine needs it too, and every other "
        "machine of the run",
        "Copy client.key by a way you trust (scp -p). Then, on every machine:",
        f"  link.endpoint=tcp://ADDRESS:PORT  link.keys={folder}",
    ]
