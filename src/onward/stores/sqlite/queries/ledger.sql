-- name: all_held
-- Every reservation that has not ended.
SELECT
    h.position, h.origin, h.request_id, h.label, h.lease, h.amount, h.at_ms,
    h.charge, h.prompt_tokens, h.completion_tokens, h.cached_tokens,
    o.key_id, o.key_name, o.tenant, o.model, o.surface, o.config_version, o.accounts
FROM held AS h
JOIN origins AS o ON o.id = h.origin
ORDER BY h.position;

-- name: last_position
-- The largest position that was ever given.
SELECT max(
    coalesce((SELECT max(position) FROM held), 0),
    coalesce((SELECT max(position) FROM entries), 0)
);

-- name: last_attempt
-- The largest number that an attempt ever had.
SELECT max(
    coalesce((SELECT max(number) FROM attempts), 0),
    (SELECT value FROM counters WHERE name = 'attempts')
);

-- name: tallies
-- Accounts by a JSON list of their IDs.
SELECT id, credited, spent
FROM accounts
WHERE id IN (SELECT value FROM json_each(?));

-- name: known_requests
-- Those of a JSON list of request IDs that were ever admitted.
SELECT request_id
FROM requests
WHERE request_id IN (SELECT value FROM json_each(?));

-- name: find_origin
-- The number of what many requests share.
SELECT id
FROM origins
WHERE
    key_id IS ? AND key_name IS ? AND tenant IS ? AND model IS ? AND surface IS ?
    AND config_version IS ? AND accounts IS ?;

-- name: add_origin
-- A new one of what many requests share.
INSERT INTO origins (key_id, key_name, tenant, model, surface, config_version, accounts)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: add_request
-- Note a request ID for ever; one that is known is an error of integrity.
INSERT INTO requests (request_id, position) VALUES (?, ?);

-- name: hold
-- Write a reservation.
INSERT INTO held (position, request_id, lease, origin, amount, at_ms)
VALUES (?, ?, ?, ?, ?, ?);

-- name: hold_labelled
-- Write a reservation of a request that its caller gave a label.
INSERT INTO held (position, request_id, label, lease, origin, amount, at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: mark
-- What a running request used so far.
UPDATE held
SET charge = ?, prompt_tokens = ?, completion_tokens = ?, cached_tokens = ?
WHERE position = ?;

-- name: let_go
-- A reservation has ended.
DELETE FROM held WHERE position = ?;

-- name: add_settled
-- Write what became of a reservation that was settled as most are: no label, no overdraft, outcome 'ok'.
INSERT INTO entries VALUES (?, ?, NULL, ?, 1, ?, ?, ?, ?, ?, ?, 0, 'ok', ?, ?, ?, ?);

-- name: add_entry
-- Write what became of a reservation. '' is no label: binding NULL takes Python longer than the rest of a row.
INSERT INTO entries VALUES (?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_attempt
-- Write one try of a request.
INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: spend
-- Write what an account has spent.
INSERT INTO accounts (id, spent) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET spent = excluded.spent;

-- name: renew_lease
-- A lease's process lives.
INSERT INTO leases (id, until_ms) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET until_ms = max(until_ms, excluded.until_ms);

-- name: living_leases
-- Leases that have not run out.
SELECT id FROM leases WHERE until_ms >= ?;

-- name: forget_all_leases
-- Nobody lives.
DELETE FROM leases;

-- name: forget_leases
-- Leases that ran out hold nothing any more; a JSON list of those to keep.
DELETE FROM leases WHERE until_ms < ? AND id NOT IN (SELECT value FROM json_each(?));

-- name: attempts_after
-- The next attempts by number, to see which are old.
SELECT number, started_ms FROM attempts WHERE number > ? ORDER BY number LIMIT ?;

-- name: forget_attempt
-- An old attempt.
DELETE FROM attempts WHERE number = ?;

-- name: note_forgotten_attempts
-- No number of an attempt is given twice.
UPDATE counters SET value = max(value, ?) WHERE name = 'attempts';
