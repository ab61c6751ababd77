"""The native core makes replies without their constructors: they are records like any other."""

import dataclasses
import pickle

import pytest

from spade_async import _sandbox_rs
from spade_async.sandbox import SandboxPolicy, SyncPool
from spade_async.types import CallReport, Outcome, Reply

pytestmark = pytest.mark.timeout(120)

SOURCE = """
class OneEnv:
    def reset(self, seed): return "begun", {}
    def step(self, action):
        if action == "raise": raise ValueError("no")
        return action, 0.5, action == "end", False, {"success": True}
"""
OUTCOMES = {outcome.value: outcome for outcome in Outcome}


@pytest.fixture(scope="module")
def replies():
    with (
        SyncPool(SandboxPolicy(num_workers=1, spares=1, wall_s_per_call=20.0)) as pool,
        pool.session(SOURCE, 3) as session,
    ):
        return {
            "loaded": session.loaded,
            "reset": session.reset(),
            "step": session.step("näh"),
            "raise": session.step("raise"),
            "end": session.step("end"),
        }


def test_every_field_of_a_reply_is_what_its_constructor_would_have_set(replies):
    def made(name, **fields):
        reply = replies[name]
        detail = {"detail": reply.detail} if name == "raise" else {}
        return Reply(**{"outcome": Outcome.FINISHED, "report": reply.report, **detail, **fields})

    assert replies["loaded"] == made("loaded")
    assert replies["reset"] == made("reset", observation="begun")
    assert replies["step"] == made("step", observation="näh", reward=0.5)
    assert replies["raise"] == made("raise", outcome=Outcome.EXCEPTION)
    assert "ValueError: no" in replies["raise"].detail
    end = made("end", observation="end", reward=0.5, terminated=True, detail="success")
    assert replies["end"] == end
    for reply in replies.values():
        assert type(reply.terminated) is bool
        assert type(reply.truncated) is bool
        assert type(reply.report) is CallReport
        assert reply.report.wall_s > 0.0
        assert reply.report.reply_bytes >= 22
        assert reply.report.cpu_s is None or reply.report.cpu_s >= 0.0


def test_a_reply_is_frozen_hashed_copied_and_pickled_like_any_record(replies):
    reply = replies["step"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        reply.reward = 1.0
    assert hash(reply) == hash(dataclasses.replace(reply))
    assert pickle.loads(pickle.dumps(reply)) == reply
    assert repr(reply) == repr(dataclasses.replace(reply))


@dataclasses.dataclass
class Loose:
    """A record without slots."""

    wall_s: float = 0.0
    cpu_s: float | None = None
    reply_bytes: int = 0


class Below(CallReport):
    """One with a base class."""


@pytest.mark.parametrize(
    ("report", "what"), [(Loose, "wall_s is no slot"), (Below, "it has a base class")]
)
def test_a_class_that_is_no_record_is_refused_by_name(report, what):
    with pytest.raises((TypeError, AttributeError), match=f"{report.__name__}.*({what}|wall_s)"):
        _sandbox_rs.use_records(OUTCOMES, Reply, report)


def test_an_outcome_that_is_missing_is_named():
    some = {name: one for name, one in OUTCOMES.items() if name != "crashed"}
    with pytest.raises(KeyError, match="crashed"):
        _sandbox_rs.use_records(some, Reply, CallReport)
