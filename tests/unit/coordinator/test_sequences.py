"""Episodes of several token sequences through the coordinator: one sample each, a row per turn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from spade_async.grpo.samples import whole_ids
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from tests.support.probe_world import ProbeRun
from tests.support.scripted_run import ScriptedGenerator, arrays

TURNS = 3


class ThinkingGenerator(ScriptedGenerator):
    """Every episode has three turns, each a sequence of a prompt token and three sampled ones."""

    def _episode(self, task: m.PlayTask, index: int) -> m.EpisodeResult:
        result = super()._episode(task, index)
        fields: dict[str, Any] = {f: getattr(result, f) for f in result.__slots__}
        parts = [arrays(self.version) for _ in range(TURNS)]
        joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        return m.EpisodeResult(**fields | joined | {"starts": [0, 4, 8], "num_turns": TURNS})


def test_an_episode_is_one_sample_and_each_of_its_turns_is_trained(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", **{"async": {"staleness": 1, "straggler_s": 60.0}})
    run.go(ThinkingGenerator(), limit_s=60.0)
    assert len(run.batches) == 6
    with LedgerReader.open(run.folder.ledger) as ledger:
        for batch in run.batches:
            named = Counter(name.partition("#")[0] for name in batch.sample_ids)
            for sample_id, count in named.items():
                row = ledger.sample(sample_id)
                assert row is not None
                assert row.trained_ordinal == batch.step
                assert count == (TURNS if row.role == "agent" else 1)
                assert row.num_trained_tokens == 3 * count
            assert np.diff(batch.offsets).tolist() == [4] * len(batch.sample_ids)
            # Full advantage for each turn, the same for all turns of an episode.
            for sample_id in named:
                rows = [i for i, s in enumerate(batch.sample_ids) if whole_ids([s]) == [sample_id]]
                assert len({float(batch.advantages[i]) for i in rows}) == 1
                assert len({int(batch.staleness[i]) for i in rows}) == 1
        assert ledger.trained_twice() == 0
        trained = {name for batch in run.batches for name in whole_ids(batch.sample_ids)}
        assert ledger.num_trained() == len(trained)
    run.check()


def test_a_replayed_batch_has_the_same_sequences(tmp_path: Path) -> None:
    run = ProbeRun(tmp_path / "run", **{"async": {"staleness": 1, "straggler_s": 60.0}})
    planned: list[Any] = []

    def dies(coordinator: Any) -> bool:
        planned[:] = coordinator.core.ledger.unfinished_batches()
        return coordinator.core.step == 3 and bool(planned)

    run.go(ThinkingGenerator(), limit_s=60.0, dies_when=dies)
    done = len(run.batches)
    run.go(ThinkingGenerator(), limit_s=60.0)
    again = run.batches[done]
    assert whole_ids(again.sample_ids) == [row.sample_id for row in planned[0].samples]
    run.check()
