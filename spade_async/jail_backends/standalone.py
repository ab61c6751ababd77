# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# Nothing here may cost an import: the interpreter starts anew for each episode.
"""Serves frames inside a child: a plain interpreter, without our package and compiled module.

Compiled and started by `survey.py`. Trusted until the first load: then untrusted code
shares the interpreter and can change whatever it reaches, which harms nobody but its own replies.
What the loop needs is bound in its closure before that. Requests come on descriptor 0, replies
leave on descriptor 1; the frames are those of `frame.py`.
"""

import math
import os
import struct
import sys
import types

EXCEPTION, BAD_VALUE, OVER_OUTPUT = 1, 2, 5
DETAIL_BYTES = 4096
HEAD = struct.Struct("<IIBBdI")


def reply(sequence, code, text=b"", reward=None, terminated=False, truncated=False, detail=b"",
          pack=HEAD.pack, size=len):  # fmt: skip
    """One reply frame."""
    flags = (1 if terminated else 0) | (2 if truncated else 0) | (4 if reward is not None else 0)
    length = 18 + size(text) + size(detail)
    reward = 0.0 if reward is None else reward
    return pack(length, sequence, code, flags, reward, size(text)) + text + detail


def write_all(frame, write=os.write, size=len):
    """Write a whole frame to descriptor 1."""
    done = 0
    while done < size(frame):
        done += write(1, frame[done:])


def read_exactly(count, read=os.read, size=len):
    """That many bytes of descriptor 0, or None at its end."""
    parts, have = [], 0
    while have < count:
        part = read(0, count - have if count - have < 1 << 20 else 1 << 20)
        if not part:
            return None
        parts.append(part)
        have += size(part)
    return b"".join(parts)


def start(runner_code, arguments, options, reply_bytes, request_cap, limits):
    """Prepare the runner, limit the process, say so with a frame of sequence 0, and serve.

    `arguments` and `options` are those of the runner's `prepare`; `limits` is pairs of a
    resource limit's number and its value. Never returns.
    """
    try:
        module = types.ModuleType("spade_runner")
        sys.modules["spade_runner"] = module
        exec(runner_code, module.__dict__)
        os.environ.pop("LD_LIBRARY_PATH", None)  # it has served, and names folders of the host
        import resource

        sys.modules.pop("resource")
        handlers = module.prepare(*arguments, options=options)
        sys.modules.pop("spade_runner", None)
        main = sys.modules["__main__"].__dict__
        for name in [name for name in main if not name.startswith("__")]:
            del main[name]
        serve = make_loop(handlers, reply_bytes, request_cap)
        for which, value in limits:
            resource.setrlimit(which, (value, value))
    except BaseException as error:
        detail = f"the runner cannot start: {type(error).__name__}: {error}"
        write_all(reply(0, EXCEPTION, detail=detail.encode("utf-8", "replace")[:DETAIL_BYTES]))
        os._exit(1)
    os.close(2)  # it leads to the host's log, which only trusted code may write
    write_all(reply(0, 0))
    serve()


def make_loop(handlers, reply_bytes, request_cap, leave=os._exit, isfinite=math.isfinite,
              type=type, str=str, float=float, bool=bool, int=int, tuple=tuple, len=len,
              BaseException=BaseException, write_all=write_all, read_exactly=read_exactly,
              reply=reply):  # fmt: skip
    """The loop over requests, with everything it needs in its closure."""
    load, reset, step, hint = handlers[:4]

    def invoke(kind, body):
        if kind == 0:
            seed_hex, _, source = body.partition(b"\n")
            return load(source.decode(), seed_hex.decode())
        if kind == 1:
            return reset(body.decode())
        if kind == 2:
            return step(body.decode())
        if kind == 3:
            return hint()
        return (0, "", None, False, False, "")  # a ping

    def answer(sequence, kind, body):
        try:
            code, text, reward, terminated, truncated, detail = invoke(kind, body)
            if type(text) is not str or type(detail) is not str or type(code) is not int:
                return reply(sequence, EXCEPTION, detail=b"in runner: TypeError")
            if reward is not None and not isfinite(reward):
                return reply(sequence, BAD_VALUE, detail=b"reward is not finite")
            text, detail = text.encode(), detail.encode("utf-8", "replace")[:DETAIL_BYTES]
            detail = detail.decode("utf-8", "ignore").encode()
            if len(text) > reply_bytes:
                detail = f"reply of {len(text)} bytes, limit {reply_bytes}".encode()
                return reply(sequence, OVER_OUTPUT, detail=detail)
            return reply(sequence, code, text, reward, terminated, truncated, detail)
        except BaseException as error:
            detail = f"in runner: {type(error).__name__}".encode("utf-8", "replace")
            return reply(sequence, EXCEPTION, detail=detail[:200])

    def serve():
        while True:
            try:
                header = read_exactly(4)
                if header is None:
                    leave(0)
                length = int.from_bytes(header, "little")
                if not 5 <= length <= request_cap:
                    leave(70)
                frame = read_exactly(length)
                if frame is None:
                    leave(0)
                sequence, kind = int.from_bytes(frame[:4], "little"), frame[4]
                write_all(answer(sequence, kind, frame[5:]))
                frame = None
            except BaseException:
                leave(71)  # its pipes are gone, or it has destroyed its own loop

    return serve
