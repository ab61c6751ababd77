"""Hosts made of network namespaces: one for the coordinator, one per part, a bad cable to each.

Needs root (or CAP_NET_ADMIN and CAP_SYS_ADMIN) and `ip`. Delay, loss, doubling and reordering of
packets need `tc` with netem; a kernel without it gets a cable so thin that its queue overflows
(tbf), which delays and loses packets too. `why_not` says what is missing. Everything is removed at
the end, also after a failure.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PARTS = ("gen-0", "learner")
PORT = 7711
_BAD = (
    "netem delay 5ms 3ms loss 3% duplicate 2% reorder 20%",
    "tbf rate 3mbit burst 16kb limit 24kb",
)
"""Ways to spoil a cable; the first that the kernel knows is taken."""


def sweep() -> list[str]:
    """Remove the hosts whose maker is dead: one killed by -9 leaves them. Their names."""
    folder = Path("/run/netns")
    left = []
    for path in sorted(folder.glob("spade-*-*")) if folder.is_dir() else ():
        pid = path.name.split("-")[1]
        if pid.isdigit() and not Path("/proc", pid).exists():
            subprocess.run(["ip", "netns", "del", path.name], capture_output=True, check=False)
            left.append(path.name)
    return left


def why_not() -> str | None:
    """Why hosts cannot be made here; None when they can."""
    if shutil.which("ip") is None:
        return "no `ip` (iproute2) here"
    name = f"spade-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces are not permitted here: {made.stderr.strip()[:200]}"
    pair = ["ip", "link", "add", "spadetry0", "netns", name, "type", "veth", "peer", "spadetry1"]
    pair += ["netns", name]
    linked = subprocess.run(pair, capture_output=True, text=True, check=False)
    _ip("netns", "del", name)
    if linked.returncode:
        return f"virtual cables are not permitted here: {linked.stderr.strip()[:200]}"
    return None


class Hosts:
    """The hosts and their cables, as a context."""

    def __init__(self) -> None:
        self._tag = f"spade-{os.getpid()}"
        self.hub = f"{self._tag}-hub"
        self.trouble: str | None = None
        """How the cables are spoiled, in the words of tc; None when this kernel cannot."""

    def __enter__(self) -> Hosts:
        try:
            self._make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.remove()

    def name(self, part: str) -> str:
        """Namespace of a part."""
        return f"{self._tag}-{part}"

    def address(self, part: str) -> str:
        """Address of the coordinator as this part sees it."""
        return f"10.77.{PARTS.index(part)}.1"

    def _make(self) -> None:
        sweep()
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "set", "lo", "up")
        for index, part in enumerate(PARTS):
            name = self.name(part)
            _ip("netns", "add", name)
            _ip(
                "link", "add", f"h{index}", "netns", self.hub,
                "type", "veth", "peer", "p0", "netns", name,
            )  # fmt: skip
            _ip("-n", self.hub, "addr", "add", f"10.77.{index}.1/24", "dev", f"h{index}")
            _ip("-n", name, "addr", "add", f"10.77.{index}.2/24", "dev", "p0")
            _ip("-n", self.hub, "link", "set", f"h{index}", "up")
            _ip("-n", name, "link", "set", "p0", "up")
        if shutil.which("tc") is not None:
            self.trouble = next((way for way in _BAD if self._shape(way)), None)

    def heal(self) -> None:
        """Let every cable behave well."""
        if self.trouble is not None:
            self._shape("pfifo")

    def _shape(self, way: str) -> bool:
        for part in PARTS:
            argv = ["ip", "netns", "exec", self.name(part), "tc", "qdisc", "replace", "dev", "p0"]
            done = subprocess.run([*argv, "root", *way.split()], capture_output=True, check=False)
            if done.returncode:
                return False
        return True

    def unplug(self, part: str, seconds: float) -> None:
        """Pull the cable of one part for a while."""
        _ip("-n", self.name(part), "link", "set", "p0", "down")
        time.sleep(seconds)
        _ip("-n", self.name(part), "link", "set", "p0", "up")

    def remove(self) -> None:
        """Remove the namespaces; their cables go with them."""
        for name in (self.hub, *map(self.name, PARTS)):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def start(self, role: str, endpoint: str, keys: Path, seed: int) -> subprocess.Popen[str]:
        """Start `benches.wire.node` on a host."""
        name = self.hub if role == "hub" else self.name(role)
        argv = ["ip", "netns", "exec", name, sys.executable, "-m", "benches.wire.node"]
        return subprocess.Popen(
            [*argv, role, endpoint, str(keys), str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip


def over_hosts(seconds: float, seed: int, server_keys: Path, client_keys: Path) -> dict[str, Any]:
    """Hosts talk with CURVE for `seconds` over bad cables that are pulled now and then."""
    rng = random.Random(seed)
    with Hosts() as hosts:
        nodes = {"hub": hosts.start("hub", f"tcp://0.0.0.0:{PORT}", server_keys, seed)}
        try:
            _hear(nodes["hub"], "up")
            for part in PARTS:
                endpoint = f"tcp://{hosts.address(part)}:{PORT}"
                nodes[part] = hosts.start(part, endpoint, client_keys, seed)
            for part in PARTS:
                _hear(nodes[part], "up")
            end_s, pulls = time.monotonic() + seconds, 0
            while time.monotonic() < end_s:
                time.sleep(rng.uniform(0.5, 2.0))
                hosts.unplug(rng.choice(PARTS), rng.choice((0.1, 0.5, 1.5)))
                pulls += 1
            hosts.heal()
            reports = _end(nodes)
        finally:
            for node in nodes.values():
                node.kill()
                node.communicate()
        return _judge(reports) | {
            "seconds": seconds, "seed": seed, "cables": hosts.trouble,
            "pulled_cables": pulls,
        }  # fmt: skip


def _end(nodes: dict[str, subprocess.Popen[str]]) -> dict[str, Any]:
    for order, answer in (("stop", "flushed"), ("end", None)):
        for node in nodes.values():
            assert node.stdin is not None
            print(order, file=node.stdin, flush=True)
        if answer is not None:
            for node in nodes.values():
                _hear(node, answer)
    return {name: json.loads(_hear(node)) for name, node in nodes.items()}


def _hear(node: subprocess.Popen[str], expected: str | None = None) -> str:
    assert node.stdout is not None
    line = node.stdout.readline().strip()
    if not line or (expected is not None and line != expected):
        raise RuntimeError(f"{node.args} said {line!r}, expected {expected}")
    return line


def _judge(reports: dict[str, Any]) -> dict[str, Any]:
    sent = {way: n for report in reports.values() for way, n in report["sent"].items()}
    came = {way: pair for report in reports.values() for way, pair in report["came"].items()}
    unique = {way: came.get(way, [0, 0])[0] for way in sent}
    return {
        "sent": sum(sent.values()),
        "lost": sum(n - unique[way] for way, n in sent.items()),
        "doubled": sum(total - number for number, total in came.values()),
        "resent": sum(r["counters"]["resent"] for r in reports.values()),
        "duplicates_refused": sum(r["counters"]["duplicates"] for r in reports.values()),
        "connections_ended": sum(r["counters"]["connections_ended"] for r in reports.values()),
        "refused": {k: v for r in reports.values() for k, v in r["refused"].items()},
        "failed_handshakes": {
            k: v for r in reports.values() for k, v in r["failed_handshakes"].items()
        },
    }


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
