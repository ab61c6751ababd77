"""What schema 4 adds to schema 3; additive only."""

from __future__ import annotations

SCORES = """
-- One row per instance that was scored; those that are missing have none.
CREATE TABLE eval_scores (
    packed INTEGER NOT NULL,
    key TEXT NOT NULL,
    level TEXT NOT NULL,
    episode_return REAL NOT NULL,
    PRIMARY KEY (packed, key)
) WITHOUT ROWID;
"""
"""Held-out instances; see `ledger/scores.py`."""
