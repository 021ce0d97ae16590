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
WHERE id > $1
ORDER BY id
LIMIT $2;

-- name: key
-- One key.
SELECT
    id, name, sha256, tenant, models, monthly_cap, requests_per_minute, tokens_per_minute, concurrency,
    prefix, created_ms, last_used_ms, revoked_ms
FROM keys
WHERE id = $1;

-- name: add_key
-- A new key.
INSERT INTO keys (
    id, name, sha256, tenant, models, monthly_cap, requests_per_minute, tokens_per_minute, concurrency,
    prefix, created_ms
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: change_key
-- Replace what can change of a living key.
UPDATE keys
SET
    name = $1, tenant = $2, models = $3, monthly_cap = $4, requests_per_minute = $5, tokens_per_minute = $6,
    concurrency = $7
WHERE id = $8 AND revoked_ms IS NULL
RETURNING id;

-- name: revoke_key
-- From now on it is refused.
UPDATE keys SET revoked_ms = $1 WHERE id = $2 AND revoked_ms IS NULL RETURNING id;

-- name: touch_keys
-- Note keys' last use. Everybody locks them by ID, so that nobody waits in a circle.
WITH used AS (
    SELECT k.id, u.at_ms
    FROM keys AS k
    JOIN unnest($1::text[], $2::bigint[]) AS u (id, at_ms) ON u.id = k.id
    WHERE coalesce(k.last_used_ms, 0) < u.at_ms
    ORDER BY k.id
    FOR UPDATE OF k
)
UPDATE keys AS k SET last_used_ms = used.at_ms FROM used WHERE k.id = used.id;

-- name: tenants
-- All tenants.
SELECT name, status, prepaid, monthly_budget, agreements FROM tenants ORDER BY name;

-- name: add_tenant
-- A new tenant, if its name is free.
INSERT INTO tenants (name, status, prepaid, monthly_budget, agreements, created_ms)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: change_tenant
-- Replace all but a tenant's name.
UPDATE tenants SET status = $1, prepaid = $2, monthly_budget = $3, agreements = $4 WHERE name = $5
RETURNING name;

-- name: cancel
-- A request that has not ended is to end.
UPDATE held SET cancelled = true WHERE request_id = $1 RETURNING request_id;

-- name: cancelled
-- Requests that are to end and have not.
SELECT request_id FROM held WHERE cancelled;

-- name: open_account
-- An account, if it is new.
INSERT INTO accounts (id) VALUES ($1) ON CONFLICT (id) DO NOTHING;

-- name: lock_account
-- An account's numbers, which stay as they are until this transaction ends.
SELECT credited, spent, held FROM accounts WHERE id = $1 FOR UPDATE;

-- name: noted_credit
-- Whether a tenant has used a word.
SELECT 1 FROM credits WHERE tenant = $1 AND once = $2;

-- name: note_credit
-- Note that a balance changed.
INSERT INTO credits (tenant, amount, note, at_ms, once) VALUES ($1, $2, $3, $4, $5);

-- name: credit
-- Write what was paid into a balance.
UPDATE accounts SET credited = $2 WHERE id = $1;
