"""Tables of the ledger and their version. Times are unix seconds, ordinals count learner steps."""

from __future__ import annotations

from spade_async.ledger import schema_3, schema_4

SCHEMA_VERSION = 4
"""Raised when a table changes; an older program refuses a newer ledger."""

UPGRADES: dict[int, str] = {
    2: """
CREATE TABLE task_times (
    task_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    group_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    arm TEXT NOT NULL,
    generator TEXT NOT NULL,
    dispatched_unix_s REAL NOT NULL,
    started_unix_s REAL NOT NULL,
    finished_unix_s REAL NOT NULL,
    queue_s REAL NOT NULL,
    engine_s REAL NOT NULL,
    num_tokens INTEGER NOT NULL,
    PRIMARY KEY (task_id, position)
);

CREATE TABLE step_times (
    ordinal INTEGER PRIMARY KEY,
    num_samples INTEGER NOT NULL,
    num_tokens INTEGER NOT NULL,
    taken_unix_s REAL NOT NULL,
    trained_unix_s REAL,
    busy_s REAL,
    published_unix_s REAL,
    loaded_unix_s REAL
);
""",
    3: "".join(schema_3.ADDED),
    4: schema_4.SCORES,
}
"""By version, what it adds to the one before. A writer adds what an older ledger lacks; a reader
takes it as it is. Adding is all that a version may do without a migration of its own."""

APPLICATION_ID = 0x53504144
"""Written into the file header ("SPAD"), so that a foreign SQLite file is told apart."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE state (key TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;

-- A branch start has the ordinal of the last step ever done, so ordinals are not unique here.
CREATE TABLE versions (
    packed INTEGER PRIMARY KEY,
    ordinal INTEGER NOT NULL,
    digest TEXT NOT NULL,
    location TEXT NOT NULL,
    checkpoint TEXT,
    created_unix_s REAL NOT NULL,
    is_abandoned INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX versions_ordinal ON versions (ordinal);

CREATE TABLE groups (
    group_id TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    kind TEXT NOT NULL,
    birth_ordinal INTEGER NOT NULL,
    parent_group TEXT,
    environment_id TEXT,
    skill TEXT NOT NULL,
    document_id TEXT NOT NULL,
    document TEXT NOT NULL,
    exemplars_json TEXT NOT NULL,
    members INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'ready', 'trained', 'missing')),
    created_unix_s REAL NOT NULL
);
CREATE INDEX groups_pending ON groups (state) WHERE state IN ('open', 'ready');
CREATE INDEX groups_parent ON groups (parent_group) WHERE parent_group IS NOT NULL;

CREATE TABLE environments (
    environment_id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    hint_mode TEXT NOT NULL,
    hint TEXT,
    leak_share REAL NOT NULL,
    labels_json TEXT NOT NULL,
    skeleton TEXT NOT NULL,
    origin TEXT NOT NULL,
    created_step INTEGER NOT NULL,
    created_unix_s REAL NOT NULL,
    estimate_json TEXT,
    missing_regret TEXT
);

-- The same program may be designed many times: one row per design sample.
CREATE TABLE designs (
    sample_id TEXT PRIMARY KEY,
    environment_id TEXT NOT NULL REFERENCES environments,
    group_id TEXT NOT NULL,
    created_step INTEGER NOT NULL
);
CREATE INDEX designs_environment ON designs (environment_id);

CREATE TABLE samples (
    number INTEGER PRIMARY KEY,
    sample_id TEXT NOT NULL UNIQUE,
    group_id TEXT NOT NULL,
    role TEXT NOT NULL,
    purpose TEXT NOT NULL CHECK (purpose IN ('train', 'measure', 'eval')),
    environment_id TEXT,
    seed INTEGER,
    arm TEXT,
    position INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL,
    episode_return REAL,
    reward REAL,
    rejection_stage TEXT,
    missing_reason TEXT,
    oldest_ordinal INTEGER,
    num_tokens INTEGER NOT NULL,
    num_trained_tokens INTEGER NOT NULL,
    created_unix_s REAL NOT NULL,
    labels_json TEXT NOT NULL,
    extra_json TEXT NOT NULL,
    trained_ordinal INTEGER,
    unused_reason TEXT
);
CREATE INDEX samples_group ON samples (group_id);
CREATE INDEX samples_trained ON samples (trained_ordinal) WHERE trained_ordinal IS NOT NULL;

CREATE TABLE traces (sample_id TEXT PRIMARY KEY, block BLOB NOT NULL);

CREATE TABLE batches (
    ordinal INTEGER PRIMARY KEY,
    branch INTEGER NOT NULL,
    step INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('planned', 'consumed', 'replay', 'abandoned')),
    replays INTEGER,
    applied INTEGER,
    quarantine TEXT,
    consumed_unix_s REAL
);
CREATE INDEX batches_pending ON batches (state) WHERE state IN ('planned', 'replay');

CREATE TABLE batch_samples (
    ordinal INTEGER NOT NULL REFERENCES batches,
    position INTEGER NOT NULL,
    sample_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    advantage REAL NOT NULL,
    staleness INTEGER NOT NULL,
    PRIMARY KEY (ordinal, position)
) WITHOUT ROWID;
CREATE INDEX batch_samples_sample ON batch_samples (sample_id);

CREATE TABLE steps (
    ordinal INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    wall_unix_s REAL NOT NULL,
    metrics_json TEXT NOT NULL
);

CREATE TABLE evals (
    packed INTEGER NOT NULL,
    level TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    num_instances INTEGER NOT NULL,
    mean REAL,
    standard_error REAL,
    PRIMARY KEY (packed, level)
) WITHOUT ROWID;

CREATE TABLE alerts (
    number INTEGER PRIMARY KEY,
    unix_s REAL NOT NULL,
    step INTEGER NOT NULL,
    text TEXT NOT NULL
);
""" + "".join(UPGRADES.values())
