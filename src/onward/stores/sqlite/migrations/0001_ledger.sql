-- Amounts are in units of 10^-9 of the currency, times in Unix milliseconds.

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters VALUES
    ('revision', 1),  -- grows with every change of a key or tenant
    ('attempts', 0);  -- the last number of an attempt that was forgotten: none is used again

CREATE TABLE tenants (
    name TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    prepaid INTEGER NOT NULL,
    monthly_budget INTEGER,
    agreements TEXT NOT NULL,  -- JSON: model IDs
    created_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 BLOB NOT NULL,
    prefix TEXT NOT NULL,
    tenant TEXT,
    models TEXT,  -- JSON: model IDs; NULL: all
    monthly_cap INTEGER,
    requests_per_minute INTEGER,
    tokens_per_minute INTEGER,
    concurrency INTEGER,
    created_ms INTEGER NOT NULL,
    last_used_ms INTEGER,
    revoked_ms INTEGER
) WITHOUT ROWID;
CREATE UNIQUE INDEX living_keys_by_name ON keys (name) WHERE revoked_ms IS NULL;

CREATE TABLE accounts (
    id TEXT PRIMARY KEY,
    credited INTEGER NOT NULL DEFAULT 0,
    spent INTEGER NOT NULL DEFAULT 0
    -- What is held is the sum over the table of that name: it cannot differ from it.
) WITHOUT ROWID;

CREATE TABLE credits (
    number INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    amount INTEGER NOT NULL,
    note TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    once TEXT,
    UNIQUE (tenant, once)
);

CREATE TABLE leases (
    id TEXT PRIMARY KEY,
    until_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- What many requests share, so that an entry is small: who asked which model, and who pays.
CREATE TABLE origins (
    id INTEGER PRIMARY KEY,
    key_id TEXT,
    key_name TEXT,
    tenant TEXT,
    model TEXT NOT NULL,
    surface TEXT NOT NULL,
    config_version TEXT NOT NULL,
    accounts TEXT NOT NULL  -- JSON: IDs
);
CREATE INDEX origins_by_key_and_model ON origins (key_id, model);

-- Every request ID that was ever admitted.
CREATE TABLE requests (
    request_id TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;

-- Reservations that have not ended. Positions grow in the order of admission, and are at least
-- the time times 4096.
CREATE TABLE held (
    position INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL,
    label TEXT,
    lease TEXT NOT NULL,
    origin INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    charge INTEGER NOT NULL DEFAULT 0,  -- of the last mark of progress
    prompt_tokens INTEGER,              -- NULL: there was none
    completion_tokens INTEGER,
    cached_tokens INTEGER
);

-- Reservations that have ended.
CREATE TABLE entries (
    position INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL,
    label TEXT,
    origin INTEGER NOT NULL,
    state INTEGER NOT NULL,  -- 1 settled, 2 released, 3 expired
    held INTEGER NOT NULL,
    charged INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    overdraft INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    ended_ms INTEGER NOT NULL,
    first_attempt INTEGER NOT NULL,  -- its attempts have this number and those after it
    attempts INTEGER NOT NULL
);
CREATE INDEX entries_by_label ON entries (label) WHERE label IS NOT NULL;

CREATE TABLE attempts (
    number INTEGER PRIMARY KEY,
    deployment TEXT NOT NULL,
    outcome TEXT NOT NULL,
    status INTEGER,
    started_ms INTEGER NOT NULL,
    first_ms INTEGER,
    took_ms INTEGER NOT NULL
);
