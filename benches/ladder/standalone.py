"""The jail's runner in a plain interpreter: what nsjail, bubblewrap and the others start.

``python standalone.py RUNNER [--numpy] [PATH ...]`` imports what the jail's template imports, then
serves frames on standard input and output: a little-endian u32 length and a pickle-free body,
request u8 kind + text, reply u8 outcome + text. No warming, no freeze: a process that lives for
one episode would only lose by them.
"""

import struct
import sys


def handlers(runner, numpy, paths):
    """The runner's handlers after the same imports."""
    with open(runner, "rb") as file:
        code = compile(file.read(), "<runner>", "exec")
    namespace = {"__name__": "spade_runner"}
    exec(code, namespace)
    return namespace["prepare"](["numpy"] if numpy else [], paths, 25, options={"warm": False})


def serve(calls, requests, replies):
    """Answer until the input ends."""
    while header := requests.read(4):
        body = requests.read(*struct.unpack("<I", header))
        kind, text = body[0], body[1:].decode()
        if kind == 0:
            seed, _, source = text.partition("\n")
            reply = calls[0](source, seed)
        else:
            reply = calls[kind](text) if kind < 3 else calls[3]()
        answer = bytes([reply[0]]) + (reply[1] or reply[5]).encode()
        replies.write(struct.pack("<I", len(answer)) + answer)
        replies.flush()


if __name__ == "__main__":
    rest = sys.argv[1:]
    # The runner puts others in the place of the text streams, whose end would close these.
    streams = sys.stdin.detach(), sys.stdout.detach()
    paths = [path for path in rest[1:] if path != "--numpy"]
    serve(handlers(rest[0], "--numpy" in rest, paths), *streams)
