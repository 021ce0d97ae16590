-- Requests that their callers have named, and what was answered to them.
CREATE TABLE claims (
    scope TEXT NOT NULL,  -- ID of the API key
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    body BLOB NOT NULL,  -- SHA-256
    request_id TEXT NOT NULL,
    lease TEXT,  -- NULL: it was answered
    at_ms INTEGER NOT NULL,
    answer BLOB,
    PRIMARY KEY (scope, name)
);
CREATE INDEX running_claims ON claims (lease) WHERE lease IS NOT NULL;
CREATE INDEX answers_by_time ON claims (at_ms) WHERE lease IS NULL;
