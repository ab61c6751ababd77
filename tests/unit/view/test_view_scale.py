"""What is looked at costs so many queries however long the run was."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from spade_async.commands.html import build_page
from spade_async.commands.show import figures
from spade_async.ledger import connection
from tests.support.viewed_run import BOTH_LOSE, BOTH_WIN, HINT_HELPS, RunMaker


def make(folder: Path, environments: int) -> Path:
    maker = RunMaker(folder)
    for number in range(environments):
        maker.environment([HINT_HELPS, BOTH_WIN, [BOTH_LOSE, HINT_HELPS][number % 2], BOTH_LOSE])
        maker.step([f"d-{number:07d}.0"], {"regret/mean": 0.5})
    return maker.close()


def queries(monkeypatch: pytest.MonkeyPatch, work) -> int:
    seen: list[str] = []
    connect = connection._connect

    def watched(path: Path, *, read_only: bool, alone: bool) -> sqlite3.Connection:
        raw = connect(path, read_only=read_only, alone=alone)
        raw.set_trace_callback(seen.append)
        return raw

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_connect", watched)
        work()
    return len(seen)


@pytest.mark.parametrize("work", [build_page, lambda run: figures(run, "best", None)])
def test_queries_do_not_grow_with_the_run(tmp_path, monkeypatch, work):
    short, long = make(tmp_path / "short", 10), make(tmp_path / "long", 40)
    few = queries(monkeypatch, lambda: work(short))
    assert few > 0
    assert queries(monkeypatch, lambda: work(long)) == few
