"""What schema 3 adds to schema 2, one text per concern; additive only."""

from __future__ import annotations

REGRETS = """
-- One row per measurement: an environment that is designed again is measured again.
CREATE TABLE regrets (
    number INTEGER PRIMARY KEY,
    group_id TEXT NOT NULL UNIQUE,
    environment_id TEXT NOT NULL,
    skill TEXT NOT NULL,
    step INTEGER NOT NULL,
    regret REAL,
    standard_error REAL,
    lower_bound REAL,
    paid_regret REAL,
    mean_with_hint REAL,
    mean_no_hint REAL,
    regret_class TEXT,
    num_planned INTEGER NOT NULL,
    num_played INTEGER NOT NULL,
    num_pairs INTEGER NOT NULL,
    is_stopped INTEGER NOT NULL,
    missing_json TEXT NOT NULL
);
CREATE INDEX regrets_environment ON regrets (environment_id);
"""
"""Measurements of regret; see `ledger/regrets.py`."""

LOOKS = """
-- What the learner said of the sampled tokens of a trained sample; leaves with its trace.
CREATE TABLE learned (sample_id TEXT PRIMARY KEY, block BLOB NOT NULL);

-- Tokens that are kept for people when no fall-back needs them any more.
CREATE TABLE looks (sample_id TEXT PRIMARY KEY, trace BLOB NOT NULL, learned BLOB);
"""
"""Tokens and their weights for `spade-async show`; see `ledger/looks.py`."""

PROMPTS = """
CREATE TABLE prompts (
    group_id TEXT NOT NULL,
    part TEXT NOT NULL,
    version TEXT NOT NULL,
    PRIMARY KEY (group_id, part)
) WITHOUT ROWID;
"""
"""Which prompt made which group; see `ledger/prompts.py`."""

PAYS = """
-- One row per design that was played. The last three are set when it is paid.
CREATE TABLE pays (
    sample_id TEXT PRIMARY KEY,
    group_id TEXT NOT NULL,
    skill TEXT NOT NULL,
    standing_json TEXT NOT NULL,
    held INTEGER NOT NULL,
    raw REAL,
    components_json TEXT,
    plays_json TEXT
);
CREATE INDEX pays_group ON pays (group_id);
"""
"""Who waits for pay, and what it was for; see `ledger/pays.py`."""

HINTS = """
CREATE TABLE hint_changes (
    number INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    skill TEXT NOT NULL,
    rule TEXT NOT NULL,
    regret REAL,
    standard_error REAL,
    num_environments INTEGER NOT NULL
);

-- Designer groups that are measured without hints.
CREATE TABLE hint_rules (group_id TEXT PRIMARY KEY, rule TEXT NOT NULL) WITHOUT ROWID;
"""
"""Skills whose hints mislead; see `ledger/hints.py`."""

MEMORY = """
-- MinHash signatures of AST features: int32, little-endian.
CREATE TABLE shapes (environment_id TEXT PRIMARY KEY, block BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE memory (
    number INTEGER PRIMARY KEY,
    environment_id TEXT NOT NULL,
    skeleton TEXT NOT NULL,
    skill TEXT NOT NULL,
    kind TEXT NOT NULL,
    rank REAL NOT NULL,
    step INTEGER NOT NULL,
    regret REAL NOT NULL,
    mean_no_hint REAL NOT NULL,
    mean_with_hint REAL NOT NULL,
    win_rate REAL NOT NULL,
    num_alike INTEGER NOT NULL,
    signature BLOB
);
CREATE INDEX memory_environment ON memory (environment_id);
CREATE INDEX memory_skeleton ON memory (skeleton);
CREATE INDEX memory_rank ON memory (kind, rank DESC, environment_id);
CREATE INDEX memory_skill ON memory (skill, kind, rank DESC, environment_id);
CREATE INDEX memory_crowded ON memory (skill, num_alike) WHERE num_alike > 0;

-- Which entries have a band of their signature in common.
CREATE TABLE memory_bands (
    key INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (key, number)
) WITHOUT ROWID;
"""
"""The environment memory; see `ledger/memory.py`."""

ADDED = (REGRETS, LOOKS, PROMPTS, PAYS, HINTS, MEMORY)
"""All of it, in order."""
