"""A process that knows the address of a run's link: throws frames at the coordinator, and stands
between it and every part that connects anew, to throw frames at these as well.

``python -m tests.support.hostile_proxy COUNT SEED``: reads the link's ipc path from stdin; the real
socket is moved aside. Prints one line of JSON per end once COUNT frames were thrown at it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

import zmq

from benches.wire.messages import samples
from benches.wire.mutations import Mutator, Parts
from spade_async.config.schema import LinkConfig
from spade_async.transport.codec import FrameError, decode
from spade_async.transport.messages import Hello

CAP = 1 << 16
BURST = 50
"""Frames between two looks at the ordinary traffic."""
PAUSE_S = 0.002
GREETED = 3
"""Frames of its coordinator after which a part is under fire. Before its welcome, one of another
program's version ends it by name, as it should."""


def refused(frames: Iterator[Parts]) -> Iterator[Parts]:
    """Those that no message can be read from: a whole message of whom a part takes for its
    coordinator is obeyed; against such a one there are keys (CURVE)."""
    for parts in frames:
        try:
            decode(parts, CAP)
        except FrameError:
            yield parts


def reason_at_coordinator(parts: Parts) -> str:
    """What a coordinator with its ordinary caps must count a stranger's frames as."""
    try:
        decode(parts, LinkConfig().max_message_bytes)
    except FrameError as error:
        return error.code
    # Whole, and of another life than that of the part it takes the name of.
    return "other_incarnation"


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    path = sys.stdin.readline().strip()
    real = f"{path}.real"
    os.rename(path, real)
    context = zmq.Context()
    front = context.socket(zmq.ROUTER)
    # A ROUTER drops what is above its mark, and every frame that was thrown has to arrive.
    front.setsockopt(zmq.SNDHWM, 0)
    front.bind(f"ipc://{path}")
    # A hello would be one of a part: whoever says it right is one. All else is not.
    up = [s for s in samples() if s.to_coordinator and not isinstance(s, Hello)]
    down = [s for s in samples() if s.from_coordinator]
    stranger = context.socket(zmq.DEALER)
    stranger.setsockopt(zmq.ROUTING_ID, b"gen-0-f0f0")
    stranger.connect(f"ipc://{real}")
    attacks = {b"coordinator": iter(Mutator("f0f0", up, CAP, seed))}
    reasons: Counter[str] = Counter()
    thrown, heard = {b"coordinator": 0}, {b"coordinator": GREETED}
    backs: dict[bytes, zmq.Socket[bytes]] = {}
    poller = zmq.Poller()
    poller.register(front, zmq.POLLIN)
    print("ready", flush=True)
    while True:
        busy = {socket for socket, _ in poller.poll(int(PAUSE_S * 1000))}
        while front in busy and front.poll(0):
            name, *parts = front.recv_multipart()
            if name not in backs:
                backs[name] = context.socket(zmq.DEALER)
                backs[name].setsockopt(zmq.ROUTING_ID, name)
                backs[name].connect(f"ipc://{real}")
                poller.register(backs[name], zmq.POLLIN)
                attacks[name] = refused(iter(Mutator("0", down, CAP, seed)))
                thrown[name] = heard[name] = 0
            backs[name].send_multipart(parts)
        for name, back in backs.items():
            while back in busy and back.poll(0):
                front.send_multipart([name, *back.recv_multipart()])
                heard[name] += 1
        while stranger.poll(0):
            stranger.recv_multipart()
        for name, frames in attacks.items():
            if heard[name] < GREETED:
                continue
            for _ in range(min(BURST, count - thrown[name])):
                parts = next(frames)
                if name == b"coordinator":
                    reasons[reason_at_coordinator(parts)] += 1
                    stranger.send_multipart(parts)
                else:
                    front.send_multipart([name, *parts])
                thrown[name] += 1
                if thrown[name] == count:
                    told = {"end": name.decode(), "frames": count, "unix_s": time.time()}
                    if name == b"coordinator":
                        told["reasons"] = reasons
                    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
