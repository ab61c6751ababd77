"""Where the parts of a run meet: what `link.endpoint` and `link.keys` may say together."""

from __future__ import annotations

import ipaddress

IPC = "ipc"
"""A private local socket, made for each run."""


def split_tcp(endpoint: str) -> tuple[str, str] | None:
    """(host, port) of tcp://HOST:PORT, brackets of IPv6 taken off; None for anything else."""
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port:
        return None
    return host.strip("[]"), port


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach it; names are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_any(host: str) -> bool:
    """Whether it stands for every address of this machine."""
    try:
        return host == "*" or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def problem(endpoint: str, keys: str | None) -> str | None:
    """One sentence that names both keys when they do not go together, None when they do."""
    if endpoint == IPC:
        if keys is None:
            return None
        return (
            f'link.keys="{keys}" is for tcp, but link.endpoint="{IPC}" is a private local socket: '
            "set link.endpoint=tcp://HOST:PORT or leave link.keys out"
        )
    address = split_tcp(endpoint)
    if address is None or not (address[1].isdecimal() and 0 < int(address[1]) < 65536):
        return (
            f'link.endpoint="{endpoint}": must be "{IPC}" or tcp://ADDRESS:PORT with a port from 1 '
            "to 65535, e.g. tcp://127.0.0.1:7711"
        )
    host = address[0]
    try:
        ipaddress.ip_address("0.0.0.0" if host == "*" else host)
    except ValueError:
        return (
            f'link.endpoint="{endpoint}": {host!r} is a name; write the address of the '
            "coordinator's machine in numbers (127.0.0.1 for this one, * for all of it)"
        )
    if keys is None and not is_loopback(host):
        return (
            f'link.endpoint="{endpoint}" can be reached from other machines, which needs link.keys '
            "(CURVE): make them with `spade-async keys DIR` and set link.keys=DIR"
        )
    return None
