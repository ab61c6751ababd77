"""A whole run of a mixture of experts: what the engine chose reaches the learner's gradient."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spade_async.config.run_folder import RunFolder
from spade_async.ledger import LedgerReader
from spade_async.types import NO_EXPERT
from tests.support.whole_run import spade

RECIPE = Path(__file__).parents[2] / "configs" / "qwen3_30b_a3b_games.toml"
pytestmark = pytest.mark.timeout(400)


def test_a_mixture_is_trained_through_the_experts_of_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run, recipe = tmp_path / "run", tmp_path / "recipe.toml"
    # vLLM cannot say on a CPU; the built-in engine can.
    text = RECIPE.read_text().replace('kind = "vllm" ', 'kind = "builtin" ')
    recipe.write_text(re.sub(r"(?ms)^\[engine\.vllm\]\n.*?(?=^\[)", "", text))
    ended = spade("train", recipe, "--fake-weights", "--run-dir", run, timeout_s=360)
    assert ended.code == 0, ended.err
    report = json.loads(spade("report", run, "--json").out)
    assert (report["steps"], report["samples_lost"], report["samples_over_bound"]) == (2, 0, 0)
    with LedgerReader.open(run / "ledger.sqlite") as ledger:
        names = [s.sample_id for batch in ledger.batches() for s in batch.samples]
        traces = [ledger.trace(name) for name in names]
    assert traces
    for trace in traces:
        assert trace is not None
        assert trace.experts is not None
        assert trace.experts.shape[0] == len(trace.token_ids)
        # All but the last token of a sequence was read.
        assert (trace.experts[:-1] != NO_EXPERT).all()
        assert np.unique(trace.experts).size > 2
    events = EventAccumulator(str(RunFolder(run).tensorboard))
    events.Reload()
    assert {e.value for e in events.Scalars("learner/experts_replayed_share")} == {1.0}
    # The learner's routers have the same weights or those of a step later.
    assert all(e.value < 0.5 for e in events.Scalars("learner/experts_changed_share"))
