from __future__ import annotations

import json

import numpy as np
import pytest

from spade_async.errors import LedgerError
from spade_async.ledger import Ledger, LedgerReader
from spade_async.ledger.traces import pack_trace, unpack_trace
from spade_async.types import Environment, MissingRegret, PolicyVersion, RegretClass, RegretEstimate
from tests.support.ledger_rows import group, sample, trace


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite", create=True, config_digest="c") as opened:
        yield opened


def reopened(ledger: Ledger) -> Ledger:
    ledger.close()
    return Ledger.open(ledger._db.path, create=False, config_digest="c")


def test_rows_come_back_as_they_were(ledger):
    a_group = group(
        "g", kind="play", parent_group="d", environment_id="e", skill="s", document_id="doc",
        document="text", exemplars_json="[1]", members=8, birth_ordinal=3,
    )  # fmt: skip
    a_sample = sample(
        "s", "g", environment_id="e", seed=2**62, arm="no_hint", index=4, detail="x",
        reward=None, rejection_stage=None, missing_reason=None, oldest_ordinal=2, num_tokens=5,
        num_trained_tokens=5, labels_json='{"family": "sort"}', extra_json='{"a": 1}',
    )  # fmt: skip
    with ledger.transaction():
        assert ledger.add_group(a_group)
        assert ledger.add_sample(a_sample, trace())
        ledger.put_state("cursor", {"at": [1, 2]})
        ledger.add_alert(5.0, 3, "look")
        ledger.add_eval(0, PolicyVersion(0, 0), "1", 128, 0.25, 0.03)
        ledger.add_eval(0, PolicyVersion(0, 0), "2", 0, None, None)
        ledger.add_version(0, PolicyVersion(0, 0), "d", "shm", None, 1.0)
        ledger.add_step(1, 1, 2.0, {"loss": 0.5})
    with reopened(ledger) as again:
        assert again.group("g") == a_group
        assert again.samples_of("g") == [a_sample] == list(again.iterate_samples(role="agent"))
        assert list(again.iterate_samples(role="designer")) == []
        found = again.trace("s")
        assert found is not None
        assert found.generator_logprobs.tobytes() == trace().generator_logprobs.tobytes()
        assert found.versions.tolist() == trace().versions.tolist()
        assert again.get_state("cursor") == {"at": [1, 2]}
        assert again.get_state("none", 7) == 7
        assert [alert.text for alert in again.alerts()] == ["look"]
        assert [(e.level, e.mean) for e in again.evals()] == [("1", 0.25), ("2", None)]
        assert again.versions()[0].version == PolicyVersion(0, 0)
        assert again.steps()[0].metrics == {"loss": 0.5}


def test_the_same_sample_again_changes_nothing(ledger):
    with ledger.transaction():
        assert ledger.add_sample(sample("s", "g", episode_return=1.0), trace(5))
        assert not ledger.add_sample(sample("s", "g", episode_return=-1.0), trace(9))
        assert ledger.add_group(group("g"))
        assert not ledger.add_group(group("g", members=99))
    assert [s.episode_return for s in ledger.samples_of("g")] == [1.0]
    assert len(ledger.trace("s").token_ids) == 5
    assert ledger.has_sample("s")
    assert not ledger.has_sample("t")


def test_a_missing_return_stays_none(ledger):
    with ledger.transaction():
        ledger.add_sample(sample("s", "g", episode_return=None, missing_reason="engine died"), None)
    found = ledger.sample("s")
    assert found.episode_return is None
    assert ledger.trace("s") is None
    assert ledger.sample_counts().missing == 1


def test_a_block_that_raises_leaves_nothing(ledger):
    def fail() -> None:
        with ledger.transaction():
            ledger.add_sample(sample("s", "g"), trace())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not ledger.has_sample("s")
    with ledger.transaction():
        with pytest.raises(LedgerError, match="nest"), ledger.transaction():
            pass
        ledger.add_sample(sample("s", "g"), trace())
    assert ledger.has_sample("s")


def test_an_environment_may_be_designed_twice(ledger):
    environment = Environment("e1", "class Env: ...", labels=(("family", "sort"),), skeleton="k")
    with ledger.transaction():
        assert ledger.add_environment(environment, "g1", "s1", 3)
        assert not ledger.add_environment(environment, "g2", "s2", 9)
        ledger.add_environment(Environment("e2", "x", origin="seed"), None, None, 0)
    row = ledger.environment("e1")
    assert row.environment == environment
    assert (row.num_designs, row.created_step, row.estimate) == (2, 3, None)
    assert ledger.environment_of_design("s2") == "e1"
    assert [r.environment.environment_id for r in ledger.environments()] == ["e2", "e1"]
    assert [r.num_designs for r in ledger.environments(1, origin="seed")] == [0]


def test_an_estimate_is_kept_until_a_newer_one(ledger):
    estimate = RegretEstimate(0.5, None, 0.4, 0.9, 0.4, 1, RegretClass.FRONTIER)
    with ledger.transaction():
        ledger.add_environment(Environment("e", "x"), None, None, 0)
        ledger.set_estimate("e", MissingRegret("no pair"))
        assert ledger.environments(with_estimate=True) == []
        assert ledger.environment("e").missing_regret == "no pair"
        ledger.set_estimate("e", estimate)
        with pytest.raises(LedgerError, match="never added"):
            ledger.set_estimate("f", estimate)
    row = ledger.environments(with_estimate=True)[0]
    assert row.missing_regret is None
    assert row.estimate["standard_error"] is None
    assert RegretEstimate(**row.estimate) == estimate


def test_hostile_text_is_stored(ledger):
    text = "a\ud800b\x00c" + "é" * 10
    with ledger.transaction():
        ledger.add_sample(sample("s", "g", detail=text, extra_json=json.dumps(text)), None)
    found = ledger.sample("s")
    assert found.detail == "a\\ud800b\x00c" + "é" * 10
    assert json.loads(found.extra_json) == text


def test_open_groups_are_those_not_trained_and_not_given_up(ledger):
    with ledger.transaction():
        for name, state in [("a", "open"), ("b", "ready"), ("c", "missing"), ("d", "trained")]:
            ledger.add_group(group(name, parent_group="p"))
            ledger.set_group_state(name, state)
        with pytest.raises(ValueError, match="lost"):
            ledger.set_group_state("a", "lost")
        with pytest.raises(LedgerError, match="never added"):
            ledger.set_group_state("z", "open")
    assert [g.group_id for g in ledger.open_groups()] == ["a", "b"]
    assert len(ledger.children_of("p")) == 4


def test_traces_of_unused_samples_are_dropped(ledger):
    with ledger.transaction():
        for name in "ab":
            ledger.add_sample(sample(name, "g"), trace())
        assert ledger.mark_unused(["a"], "lost_to_rollback") == 1
        assert ledger.drop_traces(100) == 1
    assert ledger.trace("a") is None
    assert ledger.trace("b") is not None
    assert ledger.sample_counts().unused == {"lost_to_rollback": 1}


def test_a_reader_sees_commits_of_a_living_writer(ledger):
    with LedgerReader.open(ledger._db.path) as reader:
        with ledger.transaction():
            ledger.add_sample(sample("s", "g"), None)
            assert not reader.has_sample("s")
        assert reader.has_sample("s")
        assert reader.query("SELECT COUNT(*) FROM samples")[0][0] == 1
        with pytest.raises(LedgerError):
            reader.query("DELETE FROM samples")


def test_a_trace_is_small_and_damage_is_seen():
    stored = pack_trace(trace(400))
    assert len(stored) < 400 * 17 / 2
    assert unpack_trace(stored).token_ids.tolist() == list(range(400))
    assert len(unpack_trace(pack_trace(trace(0))).versions) == 0
    for at in range(0, len(stored), 7):
        damaged = stored[:at] + bytes([stored[at] ^ 0x5A]) + stored[at + 1 :]
        with pytest.raises(ValueError, match=r".+"):
            unpack_trace(damaged)
        with pytest.raises(ValueError, match=r".+"):
            unpack_trace(stored[:at])


def test_a_trace_of_the_wrong_type_is_refused():
    good = trace()
    with pytest.raises(ValueError, match="versions"):
        pack_trace(type(good)(good.token_ids, good.loss_mask, good.generator_logprobs, np.zeros(3)))
