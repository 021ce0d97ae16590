-- name: claim
-- Take a name that nobody has.
INSERT INTO claims (scope, name, path, body, request_id, lease, at_ms) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, name) DO NOTHING;

-- name: claimed
-- Who has a name.
SELECT path, body, request_id, lease, answer FROM claims WHERE scope = ? AND name = ?;

-- name: unclaim
-- Let go of the name of a request that was not answered.
DELETE FROM claims WHERE scope = ? AND name = ? AND request_id = ? AND lease IS NOT NULL;

-- name: bind
-- Keep the answer of a request.
UPDATE claims SET answer = ?, lease = NULL
WHERE scope = ? AND name = ? AND request_id = ? AND lease IS NOT NULL;

-- name: running
-- Processes whose requests have names.
SELECT DISTINCT lease FROM claims WHERE lease IS NOT NULL;

-- name: drop_lease
-- Let go of the names of a process that is gone.
DELETE FROM claims WHERE lease = ?;

-- name: forget
-- Forget some old answers.
DELETE FROM claims
WHERE rowid IN (SELECT rowid FROM claims WHERE lease IS NULL AND at_ms < ? LIMIT ?);
