"""Poisoning of the compile cache: what a source leaves on the host is the compiler's work alone."""

import pytest

from tests.attacks.arena import SEED, SIBLING, Arenas
from tests.attacks.case import FINISHED, OVER_OUTPUT, PRELUDE, TIMED_OUT, VIOLATION

COUNTER = 0


def unique(text: str) -> str:
    """The same source with a comment that no earlier test has sent."""
    global COUNTER
    COUNTER += 1
    return f"{text}\n# {COUNTER} {id(text)}\n"


FORGE = (
    PRELUDE
    + """
import marshal, struct
def code_frame(code, sequence=1):
    return struct.pack("<IIB", 5 + len(code), sequence, 255) + code
def reply_frame(sequence=1):
    return struct.pack("<IIBBdI", 18, sequence, 0, 0, 0.0, 0)
def say(text):
    source = f"class AEnv:\\n def reset(self, s): return {text!r}, {{}}\\n"
    return compile(source, "<environment>", "exec")
class AEnv:
    def reset(self, seed): return "honest", {}
    def step(self, action): return "honest", 0.0, False, False, {}
"""
)

LATE = {
    "code-of-ones-own": "send(code_frame(marshal.dumps(say('forged'))))",
    "garbage": "send(code_frame(b'\\xff' * 100))",
    "nothing": "send(code_frame(b''))",
    "a-megabyte": "send(code_frame(bytes(1 << 20)))",
    "twice": "send(code_frame(marshal.dumps(say('forged'))) * 2)",
    "after-the-reply": "send(reply_frame() + code_frame(marshal.dumps(say('forged'))))",
    "another-call": "send(code_frame(marshal.dumps(say('forged')), 2))",
    "a-state-to-remember": "send(code_frame(marshal.dumps(say(str(random.random())))))",
}


@pytest.mark.parametrize("name", LATE)
def test_a_source_cannot_write_its_own_code_frame(arenas: Arenas, name: str) -> None:
    """Its code runs only after the compiler's frame is out; a second frame is no frame at all."""
    arena = arenas.get("plain")
    arena.check()
    source = unique(FORGE + LATE[name])
    for _ in range(3):  # compiled here first, then loaded as the host kept it
        with arena.session(source) as session:
            assert session.loaded.outcome in (VIOLATION, OVER_OUTPUT, FINISHED)
            if session.loaded.ok:
                reply = session.reset()
                assert reply.outcome in (FINISHED, VIOLATION)
                assert reply.observation in ("honest", "")
    arena.fresh()
    arena.check_at_rest()


@pytest.mark.parametrize("when", ["reset", "step", "constructor"])
def test_code_frames_at_other_times_are_violations(arenas: Arenas, when: str) -> None:
    arena = arenas.get("plain")
    number = {"constructor": 1, "reset": 2, "step": 3}[when]
    method = {"constructor": "__init__(self)", "reset": "reset(self, s)", "step": "step(self, a)"}
    source = unique(
        FORGE
        + f"class BEnv(AEnv):\n def {method[when]}:\n"
        + f"  send(code_frame(marshal.dumps(say('forged')), {number})); time.sleep(1000)\n"
        + "del AEnv\n"
    )
    for _ in range(2):
        with arena.session(source) as session:
            reply = session.loaded
            if reply.ok:
                reply = session.reset()
            if reply.ok:
                reply = session.step("x")
            assert reply.outcome in (VIOLATION, TIMED_OUT), reply
            assert "forged" not in reply.observation
    arena.check_at_rest()


def test_no_source_can_pass_for_another(arenas: Arenas) -> None:
    """Sources that end, hash or print alike are still two sources."""
    arena = arenas.get("plain")
    base = "class AEnv:\n def reset(self, s): return {!r}, {{}}\n"
    texts = ["one", "two", "one\0"[:3] + " ", "ONE", "о" + "ne", "one\u200b", "n\u0303", "\xf1"]
    for _ in range(2):
        for text in texts:
            with arena.session(base.format(text)) as session:
                assert session.reset().observation == text


def test_code_is_the_same_from_source_and_from_the_cache(arenas: Arenas) -> None:
    """First load compiles, later ones do not: line numbers, names and randomness are alike."""
    arena = arenas.get("plain")
    source = unique(
        SIBLING
        + "    def step(self, action):\n"
        + "        if action == 'raise': return {}['gold']\n"
        + "        text = repr((self.rng.random(), self.step.__code__.co_firstlineno))\n"
        + "        return text, 0.0, False, False, {}\n"
    )
    seen = set()
    for _ in range(4):
        with arena.session(source, SEED) as session:
            said = [session.loaded.detail, session.reset().observation]
            said += [session.step("x").observation, session.step("raise").detail]
            seen.add(tuple(said))
    assert len(seen) == 1
    assert "line" in next(iter(seen))[3]


def test_many_sources_do_not_fill_the_host(arenas: Arenas) -> None:
    """Each is new: the cache drops the oldest and stays below its bound."""
    arena = arenas.get("plain")
    filler = "x = [" + "1, " * 20_000 + "]\n"
    for number in range(60):
        with arena.session(unique(f"{filler}y = {number}\n" + SIBLING), SEED) as session:
            assert session.reset().observation == arena.expected[0]
    arena.check_at_rest()


def test_code_that_is_hostile_to_its_loader(arenas: Arenas) -> None:
    """Sources whose compiled form is large, deep or odd load again as they loaded first."""
    arena = arenas.get("plain")
    odd = [
        "x = " + "(" * 90 + "1" + ",)" * 90,
        "x = " + "+".join(["'a'"] * 3000),
        "x = " + repr("\U0010ffff" * 1000),
        "x = b'" + "\\\\x00" * 20_000 + "'",
        "".join(f"def f{n}(): pass\n" for n in range(2000)),
        "x = lambda: (lambda: (lambda: (lambda: 1)))",
        "x = 1e400, -1e400, 1e400 - 1e400, 10**1000, 1j",
    ]
    for text in odd:
        outcomes = set()
        for _ in range(2):
            with arena.session(text + "\n" + SIBLING, SEED) as session:
                outcomes.add((session.loaded.outcome, session.reset().observation))
        assert len(outcomes) == 1, text[:60]
