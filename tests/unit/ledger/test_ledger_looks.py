from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spade_async.errors import LedgerError
from spade_async.ledger import LedgerReader
from spade_async.ledger.looks import MOST_WORDS_BYTES, Learned, pack_learned, unpack_learned
from tests.support.ledger_rows import report
from tests.support.viewed_run import BOTH_WIN, HINT_HELPS, SEEDS, RunMaker

DESIGN, FIRST = "d-0000000.0", "d-0000000.0.play.no_hint.0"


@pytest.fixture
def maker(tmp_path: Path) -> RunMaker:
    made = RunMaker(tmp_path / "run")
    made.environment([HINT_HELPS, BOTH_WIN, BOTH_WIN, BOTH_WIN])
    return made


def consume(maker: RunMaker, sample_ids: list[str], logprobs: list[float], weights: list[float]):
    """A step whose report says so much of its tokens (four of each sample)."""
    maker.steps += 1
    ledger, step = maker.ledger, maker.steps
    from spade_async.ledger import BatchSample

    with ledger.transaction():
        rows = [BatchSample(s, s.rsplit(".", 1)[0], 0.5, 0) for s in sample_ids]
        ledger.plan_batch(step, 0, step, rows)
    said = {
        "token_logprobs": np.array(logprobs, np.float32),
        "token_weights": np.array(weights, np.float32),
    }
    with ledger.transaction(full=True):
        ledger.consume_batch(step, report(0, step, sample_ids, **said), 1.0)


def test_figures_of_the_learner_go_to_the_sample_they_are_of(maker):
    nan = float("nan")
    consume(maker, [FIRST, DESIGN], [nan] * 4 + [-1, -2, -3, -4], [nan] * 4 + [1, 0.5, 2, 0])
    look = maker.ledger.look(DESIGN)
    assert look.learned.logprobs.tolist() == [-1, -2, -3, -4]
    assert look.learned.weights.tolist() == [1, 0.5, 2, 0]
    # Nothing was computed for it: its advantage was 0.
    assert maker.ledger.look(FIRST).learned is None


def test_figures_for_other_tokens_are_left_out(maker):
    consume(maker, [DESIGN], [-1.0] * 3, [1.0] * 3)
    assert maker.ledger.look(DESIGN).learned is None


def test_what_people_look_at_stays_when_traces_are_dropped(maker):
    second = FIRST[:-1] + "1"
    consume(maker, [DESIGN, FIRST, second], [-1.0] * 12, [1.0] * 12)
    with maker.ledger.transaction():
        assert maker.ledger.drop_traces(100) == 3
    with LedgerReader.open(maker.folder / "ledger.sqlite") as reader:
        for kept in (DESIGN, FIRST):
            look = reader.look(kept)
            assert look.trace.token_ids.tolist() == list(range(7))
            assert look.learned.weights.tolist() == [1.0] * 4
            # What a resume reads is gone all the same.
            assert reader.trace(kept) is None
        # Its words were not kept, so its tokens are not.
        assert reader.look(second) is None
        assert reader.query("SELECT COUNT(*) FROM learned")[0][0] == 0


def test_many_words_are_thinned_and_few_are_not(maker):
    ledger = maker.ledger
    long = "x" * (MOST_WORDS_BYTES // 4)
    maker.environment([HINT_HELPS] * 4, words_of=(0, 1, 2, 3))
    maker.environment([HINT_HELPS] * 4, words_of=(0, 1, 2, 3), action=long)
    few, many = "d-0000001.0.play", "d-0000002.0.play"
    with ledger.transaction():
        assert ledger.thin_words(few, [0, 2]) == 0
        assert ledger.thin_words(many, [0, 2]) == 4
        assert ledger.thin_words(many, [0, 2]) == 0
    with_words = {s.seed for s in ledger.samples_of(many) if "transcript" in s.extra_json}
    assert with_words == {SEEDS[0], SEEDS[2]}


def test_bytes_come_back_and_damage_is_told(maker):
    said = Learned(np.array([-0.5, -1.5], np.float32), np.array([1.0, 0.25], np.float32))
    block = pack_learned(said)
    back = unpack_learned(block)
    assert back.logprobs.tolist() == [-0.5, -1.5]
    assert back.weights.tolist() == [1.0, 0.25]
    for bad in (b"", block[:8], b"XXXX" + block[4:], block[:-1], block[:-2] + b"zz"):
        with pytest.raises(ValueError, match=r"bytes|magic|checksum|Error|incomplete|incorrect"):
            unpack_learned(bad)
    consume(maker, [DESIGN], [-1.0] * 4, [1.0] * 4)
    with maker.ledger.transaction():
        maker.ledger._db.execute("UPDATE learned SET block = ?", (b"LRN1",))
    with pytest.raises(LedgerError, match=r"tokens of 'd-0000000\.0': 4 bytes are too few"):
        maker.ledger.look(DESIGN)
