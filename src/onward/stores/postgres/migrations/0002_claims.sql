-- Requests that their callers have named, and what was answered to them.
CREATE TABLE claims (
    scope text COLLATE "C" NOT NULL,  -- ID of the API key
    name text COLLATE "C" NOT NULL,
    path text NOT NULL,
    body bytea NOT NULL,  -- SHA-256
    request_id text NOT NULL,
    lease text COLLATE "C",  -- NULL: it was answered
    at_ms bigint NOT NULL,
    answer bytea,
    PRIMARY KEY (scope, name)
);
ALTER TABLE claims ALTER COLUMN answer SET STORAGE EXTERNAL;  -- it is pressed already
CREATE INDEX running_claims ON claims (lease) WHERE lease IS NOT NULL;
CREATE INDEX answers_by_time ON claims (at_ms) WHERE lease IS NULL;

-- Take names that nobody has; who has each of them now. Everybody takes them in one order, so that nobody
-- waits in a circle.
CREATE FUNCTION claim_names(
    scopes text[], names text[], paths text[], bodies bytea[], request_ids text[], leases text[], times bigint[]
) RETURNS TABLE (place bigint, path text, body bytea, request_id text, lease text, answer bytea)
LANGUAGE plpgsql AS $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT *
        FROM unnest(scopes, names, paths, bodies, request_ids, leases, times) WITH ORDINALITY
            AS w (scope, name, path, body, request_id, lease, at_ms, place)
        ORDER BY w.scope COLLATE "C", w.name COLLATE "C", w.place
    LOOP
        LOOP
            INSERT INTO claims AS c (scope, name, path, body, request_id, lease, at_ms)
            VALUES (
                wanted.scope, wanted.name, wanted.path, wanted.body, wanted.request_id, wanted.lease,
                wanted.at_ms
            )
            ON CONFLICT ON CONSTRAINT claims_pkey DO NOTHING;
            SELECT wanted.place, c.path, c.body, c.request_id, c.lease, c.answer
            INTO place, path, body, request_id, lease, answer
            FROM claims AS c
            WHERE c.scope = wanted.scope AND c.name = wanted.name;
            EXIT WHEN FOUND;  -- else whoever had it let go in between
        END LOOP;
        RETURN NEXT;
    END LOOP;
END $$;
