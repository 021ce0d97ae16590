-- name: load
-- Lock and read what a batch touches.
SELECT * FROM ledger_load($1, $2, $3, $4);

-- name: write
-- Write what was decided, if what it was decided on holds.
SELECT ledger_write(
    $1::text::text[], $2::text::int8[], $3::text::int8[], $4::text::int8[], $5::text::int8[],
    $6::text::int8[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[],
    $11::text::int8[], $12::text::int8[], $13::text::int8[], $14::text::text[], $15::text::int8[],
    $16::text::int8[], $17::text::int8[], $18::text::int8[], $19::text::text[], $20::text::int2[],
    $21::text::int8[], $22::text::int8[], $23::text::int8[], $24::text::int8[], $25::text::bool[],
    $26::text::bool[], $27::text::text[], $28::text::int8[], $29::text::text[], $30::text::int4[],
    $31::text::text[], $32::text::text[], $33::text::int4[], $34::text::int8[], $35::text::int8[],
    $36::text::int8[]
);

-- name: add_accounts
-- Accounts that do not exist yet, in the order in which everybody adds them.
INSERT INTO accounts (id)
SELECT id FROM unnest($1::text[]) AS new (id) ORDER BY id COLLATE "C"
ON CONFLICT (id) DO NOTHING;

-- name: origin
-- The number of what many requests share.
INSERT INTO origins (digest, key_id, key_name, tenant, model, surface, config_version, accounts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest
RETURNING id;

-- name: renew_lease
-- A lease's process lives.
INSERT INTO leases (id, until_ms) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET until_ms = greatest(leases.until_ms, excluded.until_ms);

-- name: leases_over
-- Leases that ran out, or never were renewed, and hold something: money, or the name of a request.
SELECT h.lease
FROM (SELECT lease FROM held UNION SELECT lease FROM claims WHERE lease IS NOT NULL) AS h
WHERE
    h.lease <> ALL ($2::text[])
    AND NOT EXISTS (SELECT 1 FROM leases AS l WHERE l.id = h.lease AND l.until_ms >= $1)
ORDER BY h.lease;

-- name: forget_leases
-- Leases that ran out hold nothing any more.
DELETE FROM leases WHERE until_ms < $1 AND id <> ALL ($2::text[]);

-- name: forget_attempts
-- Some old attempts.
DELETE FROM attempts
WHERE ctid = ANY (ARRAY(SELECT ctid FROM attempts WHERE started_ms < $1 LIMIT $2));

-- name: now
-- The database's own time, in Unix milliseconds.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
