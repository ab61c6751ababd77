"""One key per machine: further clients of a coordinator, each with a name and a file of its own.

A client is let in by one line of the list in ``server.key``. Taking the line out shuts that machine
out, and no other, at the next start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import zmq

from spade_async.errors import TransportError
from spade_async.transport.keys import CLIENT, SERVER, client_text, load_server_keys, write_secret

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LIST = "clients = [\n"


def add_clients(folder: Path, names: Sequence[str]) -> list[Path]:
    """Make ``NAME/client.key`` in a folder of keys and let each of them in: their paths.

    Args:
        folder: holds server.key.
        names: of machines, or whatever tells them apart.

    Raises:
        TransportError: a name that cannot be one, twice the same or there already, no server.key
            that can be read, or one whose list was written in another way. Nothing is changed then.
    """
    server = load_server_keys(folder)
    path = folder / SERVER
    for name in names:
        if not NAME.fullmatch(name):
            raise TransportError(
                f"{name!r:.80} cannot name a client: 1 to 64 letters, digits, '.', '_' or '-'"
            )
        if names.count(name) > 1:
            raise TransportError(f"client {name} is named twice: give each machine its own name")
        if os.path.lexists(folder / name):
            raise TransportError(f"{folder / name} is there already: take another name")
    text = path.read_text()
    if text.count(_LIST) != 1:
        raise TransportError(f"{path}: put `clients = [` on a line of its own, one key a line")
    pairs = [tuple(key.decode() for key in zmq.curve_keypair()) for _ in names]
    lines = [f'    "{public}",  # {name}\n' for name, (public, _) in zip(names, pairs, strict=True)]
    made = []
    for name, (public, secret) in zip(names, pairs, strict=True):
        target = folder / name / CLIENT
        write_secret(target, client_text(public, secret, server.public.decode()))
        made.append(target)
    # Last: a client that is not listed harms nobody.
    temporary = path.with_name(f".{SERVER}.new")
    temporary.unlink(missing_ok=True)
    write_secret(temporary, text.replace(_LIST, _LIST + "".join(lines)))
    os.replace(temporary, path)
    return made
