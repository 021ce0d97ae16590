-- Amounts are in units of 10^-9 of the currency, times in Unix milliseconds. Texts that only have to be
-- found are compared byte by byte. All of it lies in the schema that `search_path` names.

CREATE TABLE counters (
    name text PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO counters VALUES ('revision', 1);  -- grows with every change of a key or tenant

CREATE TABLE tenants (
    name text COLLATE "C" PRIMARY KEY,
    status text NOT NULL,
    prepaid boolean NOT NULL,
    monthly_budget bigint,
    agreements text[] NOT NULL,
    created_ms bigint NOT NULL
);

CREATE TABLE keys (
    id text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    sha256 bytea NOT NULL,
    prefix text NOT NULL,
    tenant text,
    models text[],  -- NULL: all
    monthly_cap bigint,
    requests_per_minute bigint,
    tokens_per_minute bigint,
    concurrency bigint,
    created_ms bigint NOT NULL,
    last_used_ms bigint,
    revoked_ms bigint
);
CREATE UNIQUE INDEX living_keys_by_name ON keys (name) WHERE revoked_ms IS NULL;

-- `held` is the sum over the table of that name: both change in one transaction.
CREATE TABLE accounts (
    id text COLLATE "C" PRIMARY KEY,
    credited bigint NOT NULL DEFAULT 0,
    spent bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE credits (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    amount bigint NOT NULL,
    note text NOT NULL,
    at_ms bigint NOT NULL,
    once text,
    UNIQUE (tenant, once)
);

CREATE TABLE leases (
    id text COLLATE "C" PRIMARY KEY,
    until_ms bigint NOT NULL  -- by this database's clock
);

-- What many requests share, so that an entry is small: who asked which model, and who pays.
CREATE TABLE origins (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    key_id text COLLATE "C",
    key_name text COLLATE "C",
    tenant text COLLATE "C",
    model text COLLATE "C" NOT NULL,
    surface text COLLATE "C" NOT NULL,
    config_version text NOT NULL,
    accounts text[] NOT NULL
);

-- Reservations that have not ended.
CREATE TABLE held (
    request_id text COLLATE "C" PRIMARY KEY,
    position bigint GENERATED ALWAYS AS IDENTITY,
    label text COLLATE "C",
    lease text COLLATE "C" NOT NULL,
    origin bigint NOT NULL,
    amount bigint NOT NULL,
    at_ms bigint NOT NULL,
    charge bigint NOT NULL DEFAULT 0,  -- of the last mark of progress
    prompt_tokens bigint,              -- NULL: there was none
    completion_tokens bigint,
    cached_tokens bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX held_by_lease ON held (lease);

-- Reservations that have ended.
CREATE TABLE entries (
    position bigint PRIMARY KEY,
    request_id text COLLATE "C" NOT NULL UNIQUE,
    label text COLLATE "C",
    origin bigint NOT NULL,
    state smallint NOT NULL,  -- 1 settled, 2 released, 3 expired
    held bigint NOT NULL,
    charged bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    estimated boolean NOT NULL,
    overdraft boolean NOT NULL,
    outcome text NOT NULL,
    at_ms bigint NOT NULL,
    ended_ms bigint NOT NULL
);
CREATE INDEX entries_by_time ON entries (at_ms, position);
CREATE INDEX entries_by_label ON entries (label) WHERE label IS NOT NULL;

CREATE TABLE attempts (
    entry bigint NOT NULL,  -- its position
    number integer NOT NULL,
    deployment text NOT NULL,
    outcome text NOT NULL,
    status integer,
    started_ms bigint NOT NULL,
    first_ms bigint,
    took_ms bigint NOT NULL,
    PRIMARY KEY (entry, number)
);
CREATE INDEX attempts_by_time ON attempts USING brin (started_ms) WITH (pages_per_range = 16);

-- Lock what a batch touches and read it, in one go. Accounts come first and by ID, then holds by ID:
-- everybody who locks does so in this order, so that nobody waits in a circle. Each statement sees
-- what was committed before it began, so the numbers are those behind the lock.
CREATE FUNCTION ledger_load(
    account_ids text[],   -- of the reservations that are asked for
    request_ids text[],   -- everything that a batch names
    lease_ids text[],     -- leases that it expires
    reserve_ids text[],   -- request IDs that it reserves
    OUT ids text[], OUT credited bigint[], OUT spent bigint[], OUT held bigint[],
    OUT missing text[],   -- accounts that do not exist yet; then the rest means nothing
    OUT holds text[], OUT leases text[], OUT origins bigint[], OUT amounts bigint[], OUT charges bigint[],
    OUT prompts bigint[], OUT completions bigint[], OUT cached bigint[], OUT paid_from text[],
    OUT ended text[]      -- of the IDs that it reserves
) LANGUAGE plpgsql
-- Tables that are nearly empty when a plan is made grow later: indexes are used from the start. And a plan
-- is made once, as making one takes longer than what it is for.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    hold_ids text[];
    wanted text[];
BEGIN
    SELECT array_agg(h.request_id), coalesce(array_agg(DISTINCT h.origin), '{}')
    INTO hold_ids, origins
    FROM held AS h
    WHERE h.request_id = ANY (request_ids) OR h.lease = ANY (lease_ids);

    SELECT array_agg(a.id) INTO wanted
    FROM (
        SELECT unnest(account_ids) AS id
        UNION
        SELECT unnest(o.accounts) FROM origins AS o WHERE o.id = ANY (ledger_load.origins)
    ) AS a;

    SELECT array_agg(a.id), array_agg(a.credited), array_agg(a.spent), array_agg(a.held)
    INTO ids, credited, spent, held
    FROM (SELECT * FROM accounts WHERE id = ANY (wanted) ORDER BY id FOR UPDATE) AS a;

    IF cardinality(wanted) <> coalesce(cardinality(ids), 0) THEN
        SELECT array_agg(w.id) INTO missing FROM unnest(wanted) AS w (id) WHERE w.id <> ALL (coalesce(ids, '{}'));
        RETURN;
    END IF;

    SELECT
        array_agg(h.request_id), array_agg(h.lease), array_agg(h.origin), array_agg(h.amount),
        array_agg(h.charge), array_agg(h.prompt_tokens), array_agg(h.completion_tokens),
        array_agg(h.cached_tokens), array_agg(array_to_json(o.accounts)::text)
    INTO holds, leases, origins, amounts, charges, prompts, completions, cached, paid_from
    FROM (SELECT * FROM held WHERE request_id = ANY (hold_ids) ORDER BY request_id FOR UPDATE) AS h
    JOIN origins AS o ON o.id = h.origin;

    SELECT array_agg(e.request_id) INTO ended FROM entries AS e WHERE e.request_id = ANY (reserve_ids);
END $$;

-- Write what was decided about a batch, if what it was decided on holds: then true. Else false, and
-- nothing is written.
CREATE FUNCTION ledger_write(
    -- The accounts that were looked at: as they are believed to be, and as they are from now on.
    ids text[], credited bigint[], spent bigint[], held bigint[], new_spent bigint[], new_held bigint[],
    -- Holds that are believed to be there.
    known text[],
    -- Opened.
    o_ids text[], o_labels text[], o_leases text[], o_origins bigint[], o_amounts bigint[], o_at bigint[],
    -- Marked.
    m_ids text[], m_charges bigint[], m_prompts bigint[], m_completions bigint[], m_cached bigint[],
    -- Ended, which may have been opened just now.
    e_ids text[], e_states smallint[], e_charged bigint[], e_prompts bigint[], e_completions bigint[],
    e_cached bigint[], e_estimated boolean[], e_overdraft boolean[], e_outcomes text[], e_at bigint[],
    -- Attempts of those that ended.
    a_ids text[], a_numbers integer[], a_deployments text[], a_outcomes text[], a_statuses integer[],
    a_started bigint[], a_first bigint[], a_took bigint[]
) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    found_rows bigint;
BEGIN
    SELECT count(*) INTO found_rows
    FROM (
        SELECT 1
        FROM unnest(ids, credited, spent, held) AS b (id, credited, spent, held)
        JOIN accounts AS a
            ON a.id = b.id AND a.credited = b.credited AND a.spent = b.spent AND a.held = b.held
        ORDER BY a.id
        FOR UPDATE OF a
    ) AS same;
    IF found_rows <> cardinality(ids) THEN
        RETURN false;
    END IF;

    IF cardinality(known) > 0 THEN
        SELECT count(*) INTO found_rows
        FROM (SELECT 1 FROM held AS h WHERE h.request_id = ANY (known) ORDER BY h.request_id FOR UPDATE) AS there;
        IF found_rows <> cardinality(known) THEN
            RETURN false;
        END IF;
    END IF;

    IF cardinality(o_ids) > 0 THEN
        IF EXISTS (SELECT 1 FROM entries AS e WHERE e.request_id = ANY (o_ids))
            OR EXISTS (SELECT 1 FROM held AS h WHERE h.request_id = ANY (o_ids))
        THEN
            RETURN false;
        END IF;
        INSERT INTO held (request_id, label, lease, origin, amount, at_ms)
        SELECT * FROM unnest(o_ids, o_labels, o_leases, o_origins, o_amounts, o_at);
    END IF;

    IF cardinality(m_ids) > 0 THEN
        UPDATE held AS h
        SET
            charge = m.charge, prompt_tokens = m.prompt, completion_tokens = m.completion,
            cached_tokens = m.cached
        FROM unnest(m_ids, m_charges, m_prompts, m_completions, m_cached)
            AS m (id, charge, prompt, completion, cached)
        WHERE h.request_id = m.id;
    END IF;

    IF cardinality(e_ids) > 0 THEN
        IF cardinality(a_ids) > 0 THEN
            INSERT INTO attempts
            SELECT h.position, a.number, a.deployment, a.outcome, a.status, a.started, a.first, a.took
            FROM unnest(a_ids, a_numbers, a_deployments, a_outcomes, a_statuses, a_started, a_first, a_took)
                AS a (id, number, deployment, outcome, status, started, first, took)
            JOIN held AS h ON h.request_id = a.id;
        END IF;
        INSERT INTO entries
        SELECT
            h.position, h.request_id, h.label, h.origin, e.state, h.amount, e.charged, e.prompt, e.completion,
            e.cached, e.estimated, e.overdraft, e.outcome, h.at_ms, e.at_ms
        FROM unnest(
            e_ids, e_states, e_charged, e_prompts, e_completions, e_cached, e_estimated, e_overdraft,
            e_outcomes, e_at
        ) AS e (id, state, charged, prompt, completion, cached, estimated, overdraft, outcome, at_ms)
        JOIN held AS h ON h.request_id = e.id;
        DELETE FROM held AS h WHERE h.request_id = ANY (e_ids);
    END IF;

    UPDATE accounts AS a
    SET spent = b.spent, held = b.held
    FROM unnest(ids, new_spent, new_held) AS b (id, spent, held)
    WHERE a.id = b.id AND (a.spent <> b.spent OR a.held <> b.held);
    RETURN true;
END $$;
