-- name: held_amounts
-- What is held in accounts, by a JSON list of their IDs.
SELECT a.value, sum(h.amount)
FROM held AS h
JOIN origins AS o ON o.id = h.origin
JOIN json_each(o.accounts) AS a
WHERE a.value IN (SELECT value FROM json_each(?))
GROUP BY a.value;

-- name: own_amounts
-- Accounts' own numbers, by a JSON list of their IDs.
SELECT id, credited, spent FROM accounts WHERE id IN (SELECT value FROM json_each(?));

-- name: held_entries
-- Reservations that have not ended, newest first.
SELECT
    h.position, h.request_id, h.label, o.key_id, o.key_name, o.tenant, o.model, o.surface, o.config_version,
    0, h.amount, 0, coalesce(h.prompt_tokens, 0), coalesce(h.completion_tokens, 0),
    coalesce(h.cached_tokens, 0), 0, 0, NULL, h.at_ms, NULL, 0, 0
FROM held AS h
JOIN origins AS o ON o.id = h.origin
WHERE
    h.position < :before
    AND (:request_id IS NULL OR h.request_id = :request_id OR h.label = :request_id)
    AND (:tenant IS NULL OR o.tenant = :tenant)
    AND (:key_id IS NULL OR o.key_id = :key_id)
    AND (:model IS NULL OR o.model = :model)
    AND (:from_ms IS NULL OR h.at_ms >= :from_ms)
    AND (:before_ms IS NULL OR h.at_ms < :before_ms)
ORDER BY h.position DESC
LIMIT :limit;

-- name: ended_entries
-- Reservations that have ended, newest first.
SELECT
    e.position, e.request_id, e.label, o.key_id, o.key_name, o.tenant, o.model, o.surface, o.config_version,
    e.state, e.held, e.charged, e.prompt_tokens, e.completion_tokens,
    e.cached_tokens, e.estimated, e.overdraft, e.outcome, e.at_ms, e.ended_ms, e.first_attempt, e.attempts
FROM entries AS e
CROSS JOIN origins AS o ON o.id = e.origin
WHERE
    e.position < :before AND e.position >= :after
    AND (:state IS NULL OR e.state = :state)
    AND (:tenant IS NULL OR o.tenant = :tenant)
    AND (:key_id IS NULL OR o.key_id = :key_id)
    AND (:model IS NULL OR o.model = :model)
    AND (:from_ms IS NULL OR e.at_ms >= :from_ms)
    AND (:before_ms IS NULL OR e.at_ms < :before_ms)
ORDER BY e.position DESC
LIMIT :limit;

-- name: ended_entries_of_request
-- Ended reservations by our request ID or the caller's label, newest first.
SELECT
    e.position, e.request_id, e.label, o.key_id, o.key_name, o.tenant, o.model, o.surface, o.config_version,
    e.state, e.held, e.charged, e.prompt_tokens, e.completion_tokens,
    e.cached_tokens, e.estimated, e.overdraft, e.outcome, e.at_ms, e.ended_ms, e.first_attempt, e.attempts
FROM entries AS e
JOIN origins AS o ON o.id = e.origin
WHERE
    e.position IN (
        SELECT position FROM requests WHERE request_id = :request_id
        UNION SELECT position FROM entries WHERE label = :request_id AND label IS NOT NULL
    )
    AND e.position < :before
    AND (:state IS NULL OR e.state = :state)
    AND (:tenant IS NULL OR o.tenant = :tenant)
    AND (:key_id IS NULL OR o.key_id = :key_id)
    AND (:model IS NULL OR o.model = :model)
    AND (:from_ms IS NULL OR e.at_ms >= :from_ms)
    AND (:before_ms IS NULL OR e.at_ms < :before_ms)
ORDER BY e.position DESC
LIMIT :limit;

-- name: attempts_of
-- The attempts of an entry.
SELECT deployment, outcome, status, started_ms, first_ms, took_ms
FROM attempts
WHERE number >= ? AND number < ?
ORDER BY number;

-- name: usage
-- Sums of ended entries; what they are grouped by is put in front.
SELECT
    count(*), sum(e.prompt_tokens), sum(e.completion_tokens), sum(e.cached_tokens),
    sum(e.charged / 1000000000), sum(e.charged % 1000000000),  -- apart, so that no sum is too large
    sum(e.estimated)
FROM entries AS e
CROSS JOIN origins AS o ON o.id = e.origin
WHERE
    e.position >= :after
    AND (:tenant IS NULL OR o.tenant = :tenant)
    AND (:key_id IS NULL OR o.key_id = :key_id)
    AND (:model IS NULL OR o.model = :model)
    AND (:from_ms IS NULL OR e.at_ms >= :from_ms)
    AND (:before_ms IS NULL OR e.at_ms < :before_ms);
