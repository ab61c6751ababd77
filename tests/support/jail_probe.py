"""What tests of the jail's profiles share: a policy, and a source around a few statements."""

import textwrap

from spade_async.sandbox import SandboxPolicy

LIMITS = {
    "num_workers": 4, "spares": 1, "wall_s_per_call": 20.0, "cpu_s_per_call": 10.0,
    "load_wall_s": 20.0,
}  # fmt: skip


def policy(*profiles, **more):
    """A small pool of these profiles with generous limits of time."""
    return SandboxPolicy(**{**LIMITS, "profiles": profiles, **more})


def source(body):
    """An environment whose step runs `body`, which gives its answer as `out`."""
    return (
        "import os, sys\n"
        "class ProbeEnv:\n"
        "    def reset(self, seed=None):\n        return 'start', {}\n"
        "    def step(self, action):\n        out = None\n"
        + textwrap.indent(textwrap.dedent(body), " " * 8)
        + "\n        return repr(out), 0.0, False, False, {}\n"
    )


def errno_of(call):
    """Text of a body that gives the error number of `call`, or 0."""
    return f"try:\n    {call}\n    out = 0\nexcept OSError as error:\n    out = error.errno"


def runner(pool):
    """A function that runs one step of `body` in a fresh worker: its answer, or a failed reply."""

    def run(profile, body):
        with pool.session(source(body), 1, profile=profile) as session:
            assert session.loaded.ok, session.loaded
            assert session.reset().ok
            reply = session.step("go")
            return eval(reply.observation) if reply.ok else reply

    return run
