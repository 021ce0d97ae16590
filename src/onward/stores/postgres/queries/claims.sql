-- name: claim
-- Take names; who has them, in the order in which they were asked for.
SELECT path, body, request_id, lease, answer
FROM claim_names($1, $2, $3, $4, $5, $6, $7)
ORDER BY place;

-- name: unclaim
-- Let go of the names of requests that were not answered.
DELETE FROM claims AS c
USING unnest($1::text[], $2::text[], $3::text[]) AS w (scope, name, request_id)
WHERE c.scope = w.scope AND c.name = w.name AND c.request_id = w.request_id AND c.lease IS NOT NULL;

-- name: bind
-- Keep the answer of a request.
UPDATE claims SET answer = $1, lease = NULL
WHERE scope = $2 AND name = $3 AND request_id = $4 AND lease IS NOT NULL;

-- name: drop_leases
-- Let go of the names of processes that are gone.
DELETE FROM claims WHERE lease = ANY ($1::text[]);

-- name: forget
-- Forget some old answers.
DELETE FROM claims
WHERE ctid = ANY (ARRAY(SELECT ctid FROM claims WHERE lease IS NULL AND at_ms < $1 LIMIT $2));
