"""Whole scripted runs in which weights change while samples are sampled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spade_async.ledger import LedgerReader
from spade_async.types import NO_VERSION
from tests.support.whole_run import whole_run

# Episodes of 0.3 s in mean against steps of about 0.2 s: most samples see a swap.
SLOW = {
    "scripted__token_s": 0.01,
    "scripted__episode_tokens": 30,
    "scripted__design_tokens": 30,
    "scripted__turns": 2,
    "scripted__jail": "false",
    "agent__max_turns": 3,
    "scripted__learner_s": 0.2,
    "train__steps": 8,
    "async__staleness": 4,
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("in_flight", ["swap", "finish"])
def test_ages_in_the_ledger_are_of_the_oldest_trained_token(tmp_path: Path, in_flight: str) -> None:
    with whole_run(tmp_path / "run", None, **SLOW | {"async__in_flight": in_flight}) as run:
        run.finish()
        report = run.report()
        assert report["samples_over_bound"] == report["tokens_discarded_for_age"] == 0
        num_versions = []
        with LedgerReader.open(run.folder.ledger) as ledger:
            ordinals = {row.version.packed: row.ordinal for row in ledger.versions()}
            for sample in ledger.iterate_samples(purpose="train"):
                trace = ledger.trace(sample.sample_id)
                if trace is None:
                    continue
                trained = np.unique(trace.versions[trace.loss_mask == 1])
                assert NO_VERSION not in trained
                assert sample.oldest_ordinal == min(ordinals[int(v)] for v in trained)
                num_versions.append(len(trained))
    assert len(num_versions) > 50
    assert (max(num_versions) > 1) == (in_flight == "swap")
