"""Runs once in the interpreter of the children, on the host: tells what it needs to serve.

Trusted code only. Its question comes on standard input and its answer leaves on standard output,
both as JSON; a final zero byte on standard error says that all is well. Compiled code is made here
for the children and travels through the host as base64, which never loads it.
"""

import base64
import json
import marshal
import os
import sys
from typing import Any


def look() -> None:
    """Compile both programs, run the trusted start, and tell what was mapped and loaded."""
    server, runner, *arguments, options = json.load(sys.stdin)
    server = compile(server, "<server>", "exec")
    runner = compile(runner, "<runner>", "exec")
    path, executable = list(sys.path), os.path.realpath(sys.executable)
    space: dict[str, Any] = {"__name__": "spade_runner"}
    exec(runner, space)
    space["prepare"](*arguments, options=options)
    mapped = set()
    with open("/proc/self/maps") as lines:
        for line in lines:
            name = line.rstrip("\n").split(None, 5)[5:]
            if name and name[0].startswith("/") and os.path.isfile(name[0]):
                mapped.add(name[0])
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    with open("/proc/self/statm") as file:
        num_pages = int(file.read().split()[0])
    found = {
        "server": base64.b64encode(marshal.dumps(server)).decode(),
        "runner": base64.b64encode(marshal.dumps(runner)).decode(),
        "executable": executable,
        "path": path,
        "mapped": sorted(mapped),
        "loaded": sorted(name for name in loaded if type(name) is str),
        "bytes": num_pages * os.sysconf("SC_PAGE_SIZE"),
    }
    os.write(2, b"\0")
    data = json.dumps(found).encode()
    while data:
        data = data[os.write(1, data) :]
