"""Which prompt made what: noted with the group, counted for the report, unknown of older runs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from spade_async.ledger import Ledger, LedgerReader


def test_prompts_of_groups_come_back_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, create=True, config_digest="c") as ledger, ledger.transaction():
        ledger.add_prompts("d-1", {"designer": "corpus/1", "hint": "hint/1"})
        ledger.add_prompts("d-2", {"designer": "corpus/2"})
        ledger.add_prompts("d-3", {"designer": "corpus/2"})
        ledger.add_prompts("d-3", {"designer": "corpus/9"})  # a resume repeats, never changes
        ledger.add_prompts("p-1", {})
        assert ledger.prompts_of("d-1") == {"designer": "corpus/1", "hint": "hint/1"}
    with LedgerReader.open(path) as reader:
        assert reader.prompts_of("d-3") == {"designer": "corpus/2"}
        assert reader.prompts_of("p-1") == {}
        assert reader.prompt_counts() == {
            "designer": {"corpus/1": 1, "corpus/2": 2},
            "hint": {"hint/1": 1},
        }


def test_an_older_ledger_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path, create=True, config_digest="c").close()
    raw = sqlite3.connect(path)
    raw.executescript("DROP TABLE prompts; UPDATE meta SET value = '2' WHERE key = 'schema'")
    raw.close()
    with LedgerReader.open(path) as reader:
        assert reader.prompts_of("d-1") == {}
        assert reader.prompt_counts() == {}
