"""What is reported as a sample's age: from its oldest trained token, to the step that trains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade_async.config.schema import Config
from spade_async.coordinator.versions import VersionBook
from spade_async.ledger import LedgerReader
from spade_async.transport import messages as m
from spade_async.types import NO_VERSION, PolicyVersion
from tests.support.probe_world import ProbeRun
from tests.support.scripted_run import ScriptedGenerator, arrays


class MixedGenerator(ScriptedGenerator):
    """Samples begin under the version their task asks for and end under the newest (a swap)."""

    def _arrays(self, task: m.DesignTask | m.PlayTask) -> dict[str, np.ndarray]:
        found = arrays(self.version)
        found["versions"][1] = task.min_version
        return found

    def _design(self, task: m.DesignTask) -> m.DesignResult:
        return _with(super()._design(task), **self._arrays(task))

    def _episode(self, task: m.PlayTask, index: int) -> m.EpisodeResult:
        return _with(super()._episode(task, index), **self._arrays(task))


class LyingGenerator(ScriptedGenerator):
    """Every 20th episode claims to be of the first version, whatever its task asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.num = 0

    def _episode(self, task: m.PlayTask, index: int) -> m.EpisodeResult:
        self.num += 1
        result = super()._episode(task, index)
        return _with(result, **arrays(0)) if self.num % 20 == 0 else result


def _with(message: Any, **changes: Any) -> Any:
    return type(message)(**{f: getattr(message, f) for f in message.__slots__} | changes)


def ordinals(batch: m.TrainingBatch) -> list[int]:
    """Per sample: ordinal of its oldest trained token, read from the message alone."""
    found = []
    for first, last in zip(batch.offsets, batch.offsets[1:], strict=False):
        versions = batch.versions[first:last][batch.loss_mask[first:last] == 1]
        found.append(min(int(v) & 0xFFFFFFFF for v in versions))
    return found


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_sample_of_several_versions_is_as_old_as_its_oldest_trained_token(
    tmp_path: Path, staleness: int
) -> None:
    run = ProbeRun(tmp_path / "run", **{"async": {"staleness": staleness, "straggler_s": 60.0}})
    run.go(MixedGenerator(validity=0.8), limit_s=60.0)
    ages: dict[str, list[int]] = {"agent": [], "designer": []}
    for batch in run.batches:
        expected = [batch.step - 1 - ordinal for ordinal in ordinals(batch)]
        assert batch.staleness.tolist() == expected
        for role, age in zip(batch.roles, expected, strict=True):
            ages[role].append(age)
    agent, designer = run.config.async_.bounds
    assert max(ages["agent"]) <= agent
    assert max(ages["designer"]) <= designer
    _metrics_agree(run)


def _metrics_agree(run: ProbeRun) -> None:
    with LedgerReader.open(run.folder.ledger) as ledger:
        shown = {row.step: row.metrics for row in ledger.steps()}
    run.check()
    for batch in run.batches:
        for role in ("agent", "designer"):
            ages = batch.staleness[np.array(batch.roles) == role]
            if len(ages):
                assert shown[batch.step][f"staleness/{role}_mean"] == pytest.approx(ages.mean())
                assert shown[batch.step][f"staleness/{role}_max"] == ages.max()


def test_an_over_age_sample_is_a_named_fault_that_is_counted_and_never_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its tags show that it is older than asked; here the line behind that check is tried.
    monkeypatch.setattr("spade_async.coordinator.core.tag_problem", lambda *_: None)
    bound = {"staleness": 2, "straggler_s": 60.0}
    run = ProbeRun(tmp_path / "run", **{"async": bound, "train": {"steps": 12}})
    run.go(LyingGenerator(), limit_s=60.0)
    assert len(run.batches) == 12
    assert max(batch.staleness_max for batch in run.batches) <= 4
    with LedgerReader.open(run.folder.ledger) as ledger:
        assert ledger.over_bound({"agent": 2, "designer": 4}) == 0
        counters = ledger.get_state("counters")
        assert counters["samples_over_bound"] > 0
        assert counters["tokens_discarded_for_age"] == 3 * counters["samples_over_bound"]
        texts = [alert.text for alert in ledger.alerts()]
        unused = ledger.sample_counts().unused["ours: over its staleness bound"]
    assert unused == counters["samples_over_bound"]
    assert "fault of the schedule: sample " in "".join(texts)
    assert "steps old, its bound is 2; it was not trained" in "".join(texts)


def test_tokens_without_a_loss_do_not_age_a_sample() -> None:
    book = VersionBook()
    for step in range(4):
        book.add(PolicyVersion(0, step), step)
    versions = np.array([NO_VERSION, 0, 2, 3], dtype=np.int64)
    assert book.oldest_ordinal(versions, np.array([0, 0, 1, 1], np.uint8)) == 2
    assert book.oldest_ordinal(versions, np.zeros(4, np.uint8)) is None
    with pytest.raises(KeyError):
        book.oldest_ordinal(np.array([9], np.int64), np.ones(1, np.uint8))


def test_the_configuration_states_both_bounds() -> None:
    assert Config.model_validate({"async": {"staleness": 3}}).async_.bounds == (3, 6)
