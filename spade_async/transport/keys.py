"""CURVE keys for tcp: two small files, one secret each, that only their owner can read.

``server.key`` is the coordinator's: its secret and the public keys of the clients it lets in.
``client.key`` is for generators and the learner: their secret and the coordinator's public key.
Each side thus knows the other before the first byte; nobody else gets in or is spoken to. TOML, so
that a further client's public key can be added by hand.
"""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from spade_async.errors import TransportError

SERVER, CLIENT = "server.key", "client.key"
_KEY_CHARS = 40
"""A CURVE key in Z85."""
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """The coordinator's side; keys in Z85."""

    secret: bytes
    public: bytes
    clients: frozenset[bytes]
    """Public keys that are let in."""


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """The side of generators and the learner; keys in Z85."""

    secret: bytes
    public: bytes
    server: bytes
    """Public key of the coordinator, the only one spoken to."""


def write_keys(folder: Path) -> tuple[Path, Path]:
    """Make both files (mode 0600) in a folder (made with 0700 if it is not there): their paths.

    Raises:
        TransportError: one of them is there already, or they cannot be written.
    """
    paths = folder / SERVER, folder / CLIENT
    for path in paths:
        if os.path.lexists(path):
            raise TransportError(f"{path} is there already: move it away or name another folder")
    server_public, server_secret = (key.decode() for key in zmq.curve_keypair())
    client_public, client_secret = (key.decode() for key in zmq.curve_keypair())
    texts = (
        "# For the coordinator's machine. Secret: whoever reads it can pose as the coordinator.\n"
        'kind = "server"\n'
        f'public = "{server_public}"\nsecret = "{server_secret}"\n'
        "# Public keys that are let in; one more line lets in one more.\n"
        f'clients = [\n    "{client_public}",\n]\n',
        client_text(client_public, client_secret, server_public),
    )
    for path, text in zip(paths, texts, strict=True):
        write_secret(path, text)
    return paths


def client_text(public: str, secret: str, server_public: str) -> str:
    """Content of a client.key; keys in Z85."""
    return (
        "# For generators and the learner, on every machine. Secret: whoever reads it is let in.\n"
        'kind = "client"\n'
        f'public = "{public}"\nsecret = "{secret}"\n'
        f'# Public key of the coordinator.\nserver = "{server_public}"\n'
    )


def write_secret(path: Path, text: str) -> None:
    """Make a file that its owner alone can read; its folder too, when it is not there.

    Raises:
        TransportError: it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            os.fchmod(fd, 0o600)
            file.write(text)
    except OSError as cause:
        raise TransportError(f"keys cannot be written to {path.parent}: {cause}") from cause


def load_server_keys(folder: Path) -> ServerKeys:
    """The coordinator's keys. Raises TransportError: missing, open to others, or malformed."""
    path = folder / SERVER
    found = _read(path, "server")
    clients = found.get("clients")
    if not isinstance(clients, list) or not clients:
        raise TransportError(f"{path}: clients must list the public keys that are let in")
    allowed = frozenset(_key(path, "clients", client) for client in clients)
    return ServerKeys(*_pair(path, found), allowed)


def load_client_keys(folder: Path) -> ClientKeys:
    """A client's keys. Raises TransportError: missing, open to others, or malformed."""
    path = folder / CLIENT
    found = _read(path, "client")
    return ClientKeys(*_pair(path, found), _key(path, "server", found.get("server")))


def check_keys(folder: Path) -> None:
    """What the coordinator's machine needs: both files, that know each other.

    Raises:
        TransportError: one is missing or malformed, or they are of two different pairs.
    """
    server, client = load_server_keys(folder), load_client_keys(folder)
    if client.server != server.public:
        raise TransportError(
            f"{folder / CLIENT}: its server key is not that of {folder / SERVER}: the two files "
            "must come from one `spade-async keys`"
        )
    if client.public not in server.clients:
        raise TransportError(
            f"{folder / SERVER}: clients does not list the public key of {folder / CLIENT}: add it"
        )


def _read(path: Path, kind: str) -> dict[str, Any]:
    advice = "make keys with `spade-async keys DIR`, copy them where they are needed, set link.keys"
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(_MOST_BYTES)
    except OSError as cause:
        raise TransportError(f"{path}: {cause.strerror}: {advice}") from cause
    if mode & 0o077:
        raise TransportError(f"{path} can be read by others (mode {mode:o}): chmod 600 it")
    try:
        found = tomllib.loads(text.decode())
    except ValueError as cause:
        raise TransportError(f"{path} is not a key file ({cause}): {advice}") from cause
    if found.get("kind") != kind:
        raise TransportError(f"{path} is not a {kind} key: kind is {found.get('kind')!r:.40}")
    return found


def _pair(path: Path, found: dict[str, Any]) -> tuple[bytes, bytes]:
    secret = _key(path, "secret", found.get("secret"))
    public = _key(path, "public", found.get("public"))
    if zmq.curve_public(secret) != public:
        raise TransportError(f"{path}: public does not belong to secret; make new keys")
    return secret, public


def _key(path: Path, name: str, value: Any) -> bytes:
    if isinstance(value, str) and len(value) == _KEY_CHARS and value.isascii():
        key = value.encode()
        try:
            if len(z85.decode(key)) == 32:
                return key
        except (KeyError, ValueError):
            pass
    raise TransportError(f"{path}: {name} is not a key of {_KEY_CHARS} characters; make new keys")
