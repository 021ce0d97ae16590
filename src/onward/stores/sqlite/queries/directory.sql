-- name: revision
-- A number that grows with every change of a key or tenant, and every cancelled request.
SELECT value FROM counters WHERE name = 'revision';

-- name: revise
-- A key or tenant has changed, or a request was cancelled.
UPDATE counters SET value = value + 1 WHERE name = 'revision';

-- name: living_keys
-- Keys that were not revoked.
SELECT
    id, name, sha256, tenant, models, monthly_cap, requests_per_minute, tokens_per_minute, concurrency,
    prefix, created_ms, last_used_ms, revoked_ms
FROM keys
WHERE revoked_ms IS NULL
ORDER BY id;

-- name: keys_after
-- A page of all keys.
SELECT
    id, name, sha256, tenant, models, monthly_cap, requests_per_minute, tokens_per_minute, concurrency,
    prefix, created_ms, last_used_ms, revoked_ms
FROM keys
WHERE id > ?
ORDER BY id
LIMIT ?;

-- name: key
-- One key.
SELECT
    id, name, sha256, tenant, models, monthly_cap, requests_per_minute, tokens_per_minute, concurrency,
    prefix, created_ms, last_used_ms, revoked_ms
FROM keys
WHERE id = ?;

-- name: add_key
-- A new key.
INSERT INTO keys (
    id, name, sha256, tenant, models, monthly_cap, requests_per_minute, tokens_per_minute, concurrency,
    prefix, created_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: change_key
-- Replace what can change of a living key.
UPDATE keys
SET
    name = ?, tenant = ?, models = ?, monthly_cap = ?, requests_per_minute = ?, tokens_per_minute = ?,
    concurrency = ?
WHERE id = ? AND revoked_ms IS NULL;

-- name: revoke_key
-- From now on it is refused.
UPDATE keys SET revoked_ms = ? WHERE id = ? AND revoked_ms IS NULL;

-- name: touch_key
-- Note a key's last use.
UPDATE keys SET last_used_ms = max(coalesce(last_used_ms, 0), ?) WHERE id = ?;

-- name: tenants
-- All tenants.
SELECT name, status, prepaid, monthly_budget, agreements FROM tenants ORDER BY name;

-- name: add_tenant
-- A new tenant, if its name is free.
INSERT INTO tenants (name, status, prepaid, monthly_budget, agreements, created_ms)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO NOTHING;

-- name: change_tenant
-- Replace all but a tenant's name.
UPDATE tenants SET status = ?, prepaid = ?, monthly_budget = ?, agreements = ? WHERE name = ?;

-- name: cancel
-- A request that has not ended is to end.
UPDATE held SET cancelled = 1 WHERE position = (SELECT position FROM requests WHERE request_id = ?);

-- name: cancelled
-- Requests that are to end and have not.
SELECT request_id FROM held WHERE cancelled;

-- name: noted_credit
-- Whether a tenant's balance was changed with this word.
SELECT 1 FROM credits WHERE tenant = ? AND once = ?;

-- name: note_credit
-- Note that a balance changed, and why.
INSERT INTO credits (tenant, amount, note, at_ms, once) VALUES (?, ?, ?, ?, ?);

-- name: credit
-- Write what was paid into a balance.
INSERT INTO accounts (id, credited) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET credited = excluded.credited;
