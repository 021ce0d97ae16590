-- name: money
-- Accounts by their IDs.
SELECT id, credited, spent, held FROM accounts WHERE id = ANY ($1::text[]);

-- name: held_entries
-- Reservations that have not ended, newest first.
SELECT
    h.position, h.request_id, h.label, o.key_id, o.key_name, o.tenant, o.model, o.surface, o.config_version,
    0::smallint AS state, h.amount, 0::bigint AS charged, coalesce(h.prompt_tokens, 0) AS prompt_tokens,
    coalesce(h.completion_tokens, 0) AS completion_tokens, coalesce(h.cached_tokens, 0) AS cached_tokens,
    false AS estimated, false AS overdraft, NULL::text AS outcome, h.at_ms, NULL::bigint AS ended_ms
FROM held AS h
JOIN origins AS o ON o.id = h.origin
WHERE
    (h.at_ms, h.position) < ($1::bigint, $2::bigint)
    AND ($3::text IS NULL OR h.request_id = $3 OR h.label = $3)
    AND ($4::text IS NULL OR o.tenant = $4)
    AND ($5::text IS NULL OR o.key_id = $5)
    AND ($6::text IS NULL OR o.model = $6)
    AND h.at_ms >= $7::bigint AND h.at_ms < $8::bigint
ORDER BY h.at_ms DESC, h.position DESC
LIMIT $9;

-- name: ended_entries
-- Reservations that have ended, newest first.
SELECT
    e.position, e.request_id, e.label, o.key_id, o.key_name, o.tenant, o.model, o.surface, o.config_version,
    e.state, e.held, e.charged, e.prompt_tokens, e.completion_tokens, e.cached_tokens, e.estimated,
    e.overdraft, e.outcome, e.at_ms, e.ended_ms
FROM entries AS e
JOIN origins AS o ON o.id = e.origin
WHERE
    (e.at_ms, e.position) < ($1::bigint, $2::bigint)
    AND ($3::text IS NULL OR e.request_id = $3 OR e.label = $3)
    AND ($4::text IS NULL OR o.tenant = $4)
    AND ($5::text IS NULL OR o.key_id = $5)
    AND ($6::text IS NULL OR o.model = $6)
    AND e.at_ms >= $7::bigint AND e.at_ms < $8::bigint
    AND ($10::smallint IS NULL OR e.state = $10)
ORDER BY e.at_ms DESC, e.position DESC
LIMIT $9;

-- name: attempts
-- The attempts of entries.
SELECT entry, deployment, outcome, status, started_ms, first_ms, took_ms
FROM attempts
WHERE entry = ANY ($1::bigint[])
ORDER BY entry, number;

-- name: usage
-- Sums of ended entries; what they are grouped by is put in front.
SELECT
    count(*), sum(e.prompt_tokens), sum(e.completion_tokens), sum(e.cached_tokens), sum(e.charged),
    count(*) FILTER (WHERE e.estimated)
FROM entries AS e
JOIN origins AS o ON o.id = e.origin
WHERE
    e.at_ms >= $1::bigint AND e.at_ms < $2::bigint
    AND ($3::text IS NULL OR o.tenant = $3)
    AND ($4::text IS NULL OR o.key_id = $4)
    AND ($5::text IS NULL OR o.model = $5)
