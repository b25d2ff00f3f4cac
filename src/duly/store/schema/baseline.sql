-- The schema: everything that is created once, in the groups of docs/reference/tables.md. The next change is migration 2. Functions, views
-- and triggers stand in functions/ and are applied behind this file; those here are parts of a table, an index or a policy, or are replaced
-- in databases for tests. role.sql comes before it.

-- The only clock of the moves. Databases for tests replace it by one that tests move.
create function duly.clock_now() returns timestamptz language sql volatile parallel safe as $$ select clock_timestamp() $$;

create type duly.outcome as enum
    ('succeeded', 'failed', 'timed_out', 'lost', 'cancelled', 'snoozed', 'fenced', 'skipped');
create type duly.state as enum
    ('scheduled', 'blocked', 'ready', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired', 'skipped');
-- The reason for which a run in `blocked` waits.
create type duly.wait as enum ('concurrency', 'rate', 'destination', 'workflow', 'dependency', 'recall');
-- A subqueue as a claim sees it: the number of its queue among those requested, the due moment of its first run, its tenant's weight,
-- whether it comes under a limit, and how many were taken of it already.
create type duly.subqueue as
    (number integer, queue text, tenant integer, priority smallint, due_at timestamptz, weight integer, is_limited boolean, taken integer);

-- One number per claim statement. Cache 1: a cached block per session would hand out fences that go down.
create sequence duly.fences cache 1;
-- The numbers of runs in FIFO order of a concurrency key.
create sequence duly.fifo_numbers cache 1;

------------------------------------------------------------------------------------- what indexes and policies are made of

-- The tenant of this session; none outside of one.
create function duly.current_tenant() returns integer language sql stable parallel safe as $$
    select nullif(current_setting('duly.tenant', true), '')::integer
$$;

-- Return whether a job or run, by its id, is this session's, in any box: for rows beside runs that have no tenant.
create function duly.owns(p_id uuid) returns boolean
language plpgsql stable security definer cost 1000 set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    return duly.is_our_job(p_id) or duly.our_runs(array[p_id]) <> '{}'
        or exists (select from duly.attempts where attempts.run_id = p_id and duly.is_ours(attempts.tenant));
end $$;

-- A run in FIFO order carries its number; without one it comes after all that have one and are due at the same moment.
create function duly.fifo_number(p_options jsonb) returns bigint language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_options->'fifo') = 'number' then (p_options->>'fifo')::bigint else 9223372036854775807 end
$$;

-- The moment after which a run is not started; null: it is never too late.
create function duly.expiry(p_scheduled_at timestamptz, p_options jsonb) returns timestamptz language sql immutable parallel safe as $$
    select least(case when p_options ? 'expires_at' then to_timestamp(least(greatest((p_options->>'expires_at')::double precision, 0), 253370764800)) end,
                 p_scheduled_at + make_interval(secs => (p_options->>'expires_seconds')::double precision))
$$;

-- Where a webhook's attempt was sent to, as its detail says.
create function duly.reported_origin(p_detail jsonb) returns text language sql immutable parallel safe as $$
    select substring(p_detail->>'to' from '^[a-z]+://[^/?#]+')
$$;

-------------------------------------------------------------------------------------------------------------- the boxes

-- A run is one row that lives in exactly one of timers, blocked, ready, leased and dead; the table is its state. No foreign keys: each
-- insert would lock its parent row. The boxes share their first sixteen columns, which are listed here and nowhere else: in functions,
-- {run} is replaced by them (in_force.py).
create table duly.run (
    run_id                uuid        not null,
    job_id                uuid        not null,
    scheduled_at          timestamptz not null,
    due_at                timestamptz not null,
    previous_scheduled_at timestamptz,                  -- of a next fire: the last moment staged, never to be staged again
    generation            integer     not null,
    tenant                integer     not null,
    attempt               integer     not null default 0,       -- attempts used up
    priority              smallint    not null default 5,
    losses                smallint    not null default 0,       -- losses in which this run was named
    suspect               boolean     not null default false,   -- lost beside others: runs alone, in a child process
    payload_stored        boolean     not null default false,   -- the payload is in payloads, under (job_id, generation)
    queue                 text        not null collate "C",
    handler               text        not null collate "C",
    payload               jsonb,
    options               jsonb,
    constraint has_no_rows check (false)
);

create table duly.timers (
    like duly.run including defaults,
    shard         smallint not null,
    every_seconds integer,
    cohort        bigint,
    -- the last run created for this job: while it is active, the next one overlaps
    last_run_id   uuid,
    overlap       text check (overlap in ('allow', 'concurrency', 'cancel_running', 'after_end')), -- null: skip
    jitter        text check (jitter in ('job', 'occurrence')), -- null: none; else one delay per job, or per occurrence
    runs_left     integer check (runs_left >= 0),
    grace_seconds integer,                      -- null: 60
    check (due_at >= scheduled_at),
    check ((run_id is null) = (every_seconds is not null or cohort is not null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200000,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 5);
alter table duly.timers alter column run_id drop not null;      -- null: the next fire of job_id, its mutex and its cursor
create index timers_by_due on duly.timers (shard, due_at);
-- Each fire stores its key once more, so the pages of new jobs have room: else the first fires of many jobs would split them all.
create unique index timers_next_fire on duly.timers (job_id) with (fillfactor = 70) where run_id is null;
create unique index timers_by_run on duly.timers (run_id) where run_id is not null;
-- A tenant's runs, in each box and in history, newest first. Leased has none: it is never large.
create index timers_of_tenant on duly.timers (tenant, run_id) where run_id is not null;
create index timers_by_job on duly.timers (job_id, run_id) where run_id is not null and run_id <> job_id;
create index timers_by_fifo_number on duly.timers (tenant, ((options->'concurrency'->>0) collate "C"), due_at, duly.fifo_number(options))
 where options ? 'fifo';
-- Runs that expire, box by box. A row that never does is in none of them; nor is a next fire, which is no run.
create index timers_expiring on duly.timers (duly.expiry(scheduled_at, options))
 where options ?| array['expires_at', 'expires_seconds'] and run_id is not null;
-- The next fire of a schedule that has staged its last occurrence ahead of its moment: it stays until that one starts.
create index timers_spent on duly.timers (runs_left) where run_id is null and runs_left = 0;

create table duly.blocked (
    like duly.run,
    waits_for     duly.wait not null,
    key           text collate "C" not null,    -- the concurrency key, rate limit, origin or workflow; else empty
    blocked_at    timestamptz not null,
    primary key (run_id)
);
-- One for each kind of wait that has an order of its own; others are found by their run.
create index blocked_by_key on duly.blocked (tenant, key, due_at, run_id) where waits_for = 'concurrency';
create index blocked_by_rate on duly.blocked (tenant, key, due_at, run_id) where waits_for = 'rate';
create index blocked_by_origin on duly.blocked (tenant, key, due_at, run_id) where waits_for = 'destination';
create index blocked_of_tenant on duly.blocked (tenant, run_id);
create index blocked_by_job on duly.blocked (job_id, run_id) where run_id <> job_id;
-- Lines, as they stand in each box. They hold FIFO rows alone, so that others pay nothing.
create index blocked_by_fifo_number on duly.blocked (tenant, key, due_at, duly.fifo_number(options), run_id)
 where waits_for = 'concurrency' and options ? 'fifo';
-- Runs that wait for a reservation, by handler.
create index blocked_by_taker on duly.blocked (tenant, key, queue, handler, suspect, due_at, run_id) where waits_for = 'rate';
create index blocked_expiring on duly.blocked (duly.expiry(scheduled_at, options))
 where options ?| array['expires_at', 'expires_seconds'];
-- Runs that a worker gave back on request wait here until the caller has decided; nothing claims them meanwhile.
create index blocked_recalled on duly.blocked (blocked_at) where waits_for = 'recall';

create table duly.ready (
    like duly.run,
    is_unroutable      boolean not null default false -- Still ready, and in no subqueue.
) with (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 1000000,
        autovacuum_analyze_scale_factor = 0);
create unique index ready_by_run on duly.ready (run_id);
create index ready_of_tenant on duly.ready (tenant, run_id);
create index ready_by_job on duly.ready (job_id, run_id) where run_id <> job_id;
-- Reservations that were given and not taken.
create index ready_reserved on duly.ready (tenant, ((options->'rate'->>0) collate "C"), due_at) where options ? 'rate';
create index ready_expiring on duly.ready (duly.expiry(scheduled_at, options))
 where options ?| array['expires_at', 'expires_seconds'];
-- A subqueue is what waits of a queue, a tenant and a priority, the oldest first. Which subqueues there are is found by this index alone.
create index ready_claimable on duly.ready (queue, tenant, priority, due_at) where not is_unroutable;
-- Unroutable runs, by handler; and their subqueues, for the return to claims.
create index ready_unroutable on duly.ready (queue, handler, tenant, priority, due_at) where is_unroutable;

create table duly.leased (
    like duly.run,
    fence         bigint not null,
    worker_id     uuid not null,
    claimed_at    timestamptz not null,
    check (attempt >= 1)
) with (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 1000000,
        autovacuum_analyze_scale_factor = 0);
create unique index leased_by_run on duly.leased (run_id);
create index leased_by_worker on duly.leased (worker_id);

create table duly.dead (
    like duly.run,
    buried_at     timestamptz not null,
    reason        text not null,
    replays       integer not null default 0,
    primary key (run_id)
);
create index dead_of_tenant on duly.dead (tenant, run_id);
create index dead_by_job on duly.dead (job_id, run_id) where run_id <> job_id;
create index dead_by_time on duly.dead (tenant, buried_at, run_id);

---------------------------------------------------------------------------------------------------------------- history

-- One row per attempt, and one per stretch of skipped occurrences. Successes and failures are kept for different times, so they
-- stand in different day partitions, which are dropped whole.

create table duly.attempts (
    run_id         uuid not null,
    job_id         uuid not null,
    scheduled_at   timestamptz not null,
    due_at         timestamptz not null,
    started_at     timestamptz,
    finished_at    timestamptz not null,
    fence          bigint,
    tenant         integer not null,
    attempt        integer not null,
    outcome        duly.outcome not null,
    became         duly.state not null,                      -- what the run became by this attempt
    queue          text collate "C" not null,
    handler        text collate "C" not null,
    worker_id      uuid,
    reason         text,
    result         jsonb,
    -- an error with its traceback, or first, last and count of what was skipped
    detail         jsonb,
    -- A run's options end with it; its tags stay with its record.
    metadata       jsonb,
    xid            xid8 not null default pg_current_xact_id(), -- the transaction that recorded it
    generation     integer,                             -- the version of the definition that it used; null: 1
    priority       smallint,                            -- null: 5
    payload        jsonb,
    -- true: it is among the payloads; false: it was too large, and is not kept
    payload_stored boolean,
    options        jsonb                                -- what it carried besides its metadata
) partition by list (outcome);
create index attempts_by_run on duly.attempts (run_id);
create index attempts_by_transaction on duly.attempts (xid);

create table duly.attempts_succeeded partition of duly.attempts for values in ('succeeded') partition by range (finished_at);
create index attempts_succeeded_of_tenant on duly.attempts_succeeded (tenant, run_id);
create index attempts_succeeded_by_job on duly.attempts_succeeded (job_id, run_id) where run_id <> job_id;

create table duly.attempts_failed partition of duly.attempts default partition by range (finished_at);
create index attempts_ended_of_tenant on duly.attempts_failed (tenant, run_id)
 where became in ('cancelled', 'expired', 'skipped');
create index attempts_failed_by_job on duly.attempts_failed (job_id, finished_at) where run_id <> job_id;
create index attempts_ended_by_job on duly.attempts_failed (job_id, run_id)
 where run_id <> job_id and became in ('cancelled', 'expired', 'skipped');
create index attempts_failed_at on duly.attempts_failed (tenant, duly.reported_origin(detail), finished_at, run_id, attempt)
 where handler = '@webhook' and outcome in ('failed', 'timed_out');

create table duly.attempts_succeeded_default partition of duly.attempts_succeeded default;

create table duly.attempts_failed_default partition of duly.attempts_failed default;

-- Up to how many bytes, as they are stored, the payload of a success is kept; of all else it is kept whole. Maintenance
-- sets it; until then it is 8 KiB.
create table duly.history_limits (
    is_one        boolean default true check (is_one) primary key,
    payload_bytes integer not null check (payload_bytes >= 0),
    -- When a scheduler with an archive last looked for partitions to archive. From then on attempts are dropped only once they are
    -- archived, also by a scheduler without one. Null: there is no archive.
    archived_at   timestamptz
);

-- Sums of recorded outcomes, until they are folded into the roll-ups. Rows come and go, and are never updated.
create table duly.tallies (
    minute   timestamptz not null,
    tenant   integer not null,
    queue    text collate "C" not null,
    outcome  duly.outcome not null,
    became   duly.state not null,
    skew     smallint,                                  -- the bucket of how late it began; null: it never did
    duration smallint,
    runs     integer not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200000, autovacuum_vacuum_insert_threshold = -1);

-- An empty name has the sum of all queues.
create table duly.rollups (
    tenant    integer not null,
    grain     text not null check (grain in ('minute', 'hour')),
    at        timestamptz not null,
    queue     text collate "C" not null,
    started   integer not null,                         -- attempts that had begun, counted where they ended
    succeeded integer not null,
    failed    integer not null,
    timed_out integer not null,
    lost      integer not null,
    cancelled integer not null,
    snoozed   integer not null,
    skipped   integer not null,
    expired   integer not null,
    fenced    integer not null,
    retried   integer not null,                         -- of those that did not succeed: another attempt follows
    dead      integer not null,                         -- of those that did not succeed: nothing follows by itself
    skew      integer[] not null check (cardinality(skew) = 21),
    duration  integer[] not null check (cardinality(duration) = 21),
    primary key (tenant, grain, queue, at)
) with (fillfactor = 70);
create index rollups_by_time on duly.rollups (at);

-- One row per change, written in the transaction of the change itself. It is never updated, and deleted by age alone.
create table duly.audit (
    tenant       integer not null,                      -- owner of the changed thing; the first tenant for things of the installation
    at           timestamptz not null,
    audit_id     uuid not null default gen_random_uuid(),
    actor_kind   text collate "C" not null check (actor_kind in ('key', 'session', 'local', 'engine')),
    actor        text collate "C" not null,             -- a key's id, local:<account>, or engine
    actor_name   text collate "C" not null,
    action       text collate "C" not null,
    subject_kind text collate "C" not null,
    subject_id   text collate "C",                      -- null: many at once
    subject_name text collate "C",
    count        integer not null default 1 check (count > 0),
    request_id   text collate "C",
    detail       jsonb,
    primary key (tenant, at, audit_id)
) with (fillfactor = 100);
-- One for each filter of the list. Jobs are created by the thousand a second and all else is done by hand: those who ask for
-- creates find them along the primary key, where little else is between them.
create index audit_by_actor on duly.audit (tenant, actor, at, audit_id);
create index audit_by_subject on duly.audit (tenant, subject_id, at, audit_id) where subject_id is not null;
create index audit_by_action on duly.audit (tenant, action, at, audit_id) where action <> 'job.created';

-- The archive of history: which partitions were exported, where to, and whether their rows are still here. A row is written by the one
-- process that claimed it, until `until`; a partition is dropped in the transaction that records it here as dropped, and never otherwise.
create table duly.archived_partitions (
    name        text collate "C" primary key,           -- of the partition; rows that missed it: with _late_ and a number
    source      text not null collate "C",              -- the table in which its rows are
    kind        text not null check (kind in ('succeeded', 'failed')),
    day         date not null,
    is_late     boolean not null,
    state       text not null check (state in ('exporting', 'verified', 'dropped', 'deleted')),
    holder      uuid not null,
    until       timestamptz not null,
    begun_at    timestamptz not null,
    horizon     xid8 not null,                          -- the first transaction whose rows the export may have missed
    location    text not null,
    abandoned   text[] not null default '{}',           -- earlier files, which are to be deleted
    rows        bigint,                                 -- in the archive
    left_out    bigint,                                 -- successes that were not sampled
    checksum    numeric,
    bytes       bigint,
    first_run   uuid,
    last_run    uuid,
    tenants     integer[],
    error       text,
    failed_at   timestamptz,
    archived_at timestamptz,
    dropped_at  timestamptz,
    check (state = 'exporting' or num_nonnulls(rows, left_out, checksum, bytes, tenants, archived_at) = 6)
);
create index archived_partitions_by_run on duly.archived_partitions (last_run) where state in ('verified', 'dropped');

-- Tenants and jobs whose history is neither dropped nor sampled.
create table duly.legal_holds (
    tenant  integer not null,
    job_id  uuid,                                       -- null: the whole tenant
    reason  text not null,
    held_at timestamptz not null,
    xid     xid8 not null default pg_current_xact_id()  -- shows which exports may have missed it
);
create unique index legal_holds_by_scope on duly.legal_holds (tenant, coalesce(job_id, '00000000-0000-0000-0000-000000000000'));

-- Jobs whose definition was removed, and whose history is still to go.
create table duly.purges (
    job_id       uuid primary key,
    tenant       integer not null,
    requested_at timestamptz not null
);
create index purges_by_time on duly.purges (requested_at);

------------------------------------------------------------------------------------------------------------ definitions

create table duly.jobs (
    job_id         uuid primary key,
    tenant         integer not null,
    name           text,
    state          text not null default 'active' check (state in ('active', 'paused', 'completed', 'cancelled')),
    generation     integer not null default 1 check (generation >= 1),
    queue          text collate "C" not null,
    handler        text collate "C" not null,
    priority       smallint not null default 5 check (priority between 0 and 9),
    every_seconds  integer check (every_seconds >= 1),
    anchor_at      timestamptz,
    payload        jsonb,
    payload_stored boolean not null default false,
    options        jsonb,
    created_at     timestamptz not null,
    updated_at     timestamptz not null,
    -- as compiled: triggers in canonical form, H resolved; null: every_seconds says all
    schedule       jsonb,
    cohort         bigint,                              -- jobs of one cohort fire at the same moments, for the same reasons
    owner          text not null default 'api' check (owner in ('api', 'code', 'file')),
    source         text,                                -- of an owner 'code': the app that declares it
    definition     bytea,                               -- hash of what was requested, to see whether an upsert changes anything
    failures       integer not null default 0,          -- runs in a row that failed for good, counted where pause_on_failure asks
    paused_at      timestamptz,
    pause_reason   text,
    definitions    bytea[],                             -- of an owner 'code': the hashes it has had, the one in force last
    removed_at     timestamptz,                         -- of an owner 'code': since when no program declares it
    tzdb           text,                                -- set where another version than the one in force has timed the next fire
    applied        integer,                             -- of an owner 'file': the version it had when its file was last applied
    timed_at       timestamptz                          -- since when its occurrences are what they are; null: since it was created
);
create unique index jobs_by_name on duly.jobs (tenant, name) where name is not null and state in ('active', 'paused');
create index jobs_by_cohort on duly.jobs (cohort) where cohort is not null;
create index jobs_by_source on duly.jobs (tenant, source) where source is not null;
create index jobs_timed_otherwise on duly.jobs (job_id) where tzdb is not null and state in ('active', 'paused');
create index jobs_standing on duly.jobs (tenant) where state in ('active', 'paused');
create index jobs_by_tenant on duly.jobs (tenant, job_id);
create index jobs_by_state on duly.jobs (tenant, state, job_id);
create index jobs_by_queue on duly.jobs (tenant, queue, job_id);
create index jobs_by_handler on duly.jobs (tenant, handler, job_id);
create index jobs_by_any_name on duly.jobs (tenant, name collate "C", job_id) where name is not null;
-- A job that waits for events has its match where others have their trigger. Its next fire rests at infinity: it is the job's
-- mutex like any other, and is never due.
create index jobs_by_event on duly.jobs (tenant, (schedule->'on_event'->>'type'), job_id)
 where schedule ? 'on_event' and state = 'active';
-- Of many that are paused, those that are because they kept failing. Only who counts failures pays for it.
create index jobs_failing on duly.jobs (tenant, job_id) where state = 'paused' and failures > 0;
create index jobs_over on duly.jobs (updated_at) where state in ('completed', 'cancelled');

-- Past versions of job definitions, the last hundred of each job. The current one is in jobs.
create table duly.job_versions (
    job_id        uuid not null,
    generation    integer not null,
    tenant        integer not null,
    created_at    timestamptz not null,
    replaced_at   timestamptz not null,
    name          text,
    owner         text not null,
    source        text,
    queue         text not null,
    handler       text not null,
    priority      smallint not null,
    every_seconds integer,
    anchor_at     timestamptz,
    schedule      jsonb,
    payload       jsonb,                                -- null: it is, or was, among the payloads
    options       jsonb,
    primary key (job_id, generation)
);

-- Changes of definitions, for event streams, by the transaction of the change; kept for about an hour.
create table duly.job_changes (
    xid        xid8 not null default pg_current_xact_id(),
    number     bigint generated always as identity,
    tenant     integer not null,
    job_id     uuid not null,
    generation integer not null,
    change     text not null check (change in ('created', 'edited', 'paused', 'resumed', 'completed', 'cancelled')),
    name       text,
    queue      text not null,
    handler    text not null,
    changed_at timestamptz not null
);
create index job_changes_by_transaction on duly.job_changes (xid, number);
create index job_changes_by_time on duly.job_changes (changed_at);

-- The tags of schedules, so that a list by tag is read in order and no further than it goes. They follow the job's options.
create table duly.job_tags (
    tenant integer not null,
    tag    text collate "C" not null,
    job_id uuid not null,
    primary key (tenant, tag, job_id)
);
create index job_tags_by_job on duly.job_tags (job_id);

create table duly.payloads (
    job_id     uuid not null,
    generation integer not null,
    body       jsonb not null,
    stored_at  timestamptz not null,
    -- Until when a payload of a one-shot that has ended is kept; null: not looked at yet.
    kept_until timestamptz,
    primary key (job_id, generation)
);

-- Idempotency keys do not move, so a repeated submit always has something to collide with.
create table duly.idempotency_keys (
    tenant       integer not null,
    key          text not null,
    job_id       uuid not null,
    body_hash    bytea not null,
    scheduled_at timestamptz not null,
    expires_at   timestamptz not null,
    primary key (tenant, key)
);
create index idempotency_keys_by_expiry on duly.idempotency_keys (expires_at);

create table duly.calendars (
    tenant     integer not null,
    name       text not null,
    definition jsonb not null,
    updated_at timestamptz not null,
    -- Earlier definitions by which some of its jobs are still timed, the newest first; null: all use the current one.
    earlier    jsonb,
    primary key (tenant, name)
);

-- The backfill lane: stretches of occurrences that are made again, or were missed and are caught up, at a rate.
create table duly.backfills (
    backfill_id           uuid primary key,
    job_id                uuid not null,
    tenant                integer not null,
    shard                 smallint not null,
    origin                text not null,                -- 'schedule' for missed occurrences, else the backfill's own id
    state                 text not null default 'active' check (state in ('active', 'done', 'cancelled')),
    from_at               timestamptz not null,
    to_at                 timestamptz not null,
    cursor_at             timestamptz not null,         -- the next occurrence to be created is the first at or after this
    rate                  double precision not null check (rate > 0),
    total                 integer not null,
    created               integer not null default 0,
    due_at                timestamptz not null,         -- nothing is created before this
    previous_scheduled_at timestamptz,                  -- the occurrence before the next one to be created
    requested_at          timestamptz not null,
    schedule              jsonb,                        -- the rule as it was when this was requested: an edit does not change the past
    calendars             jsonb,                        -- and the calendars it names, as they were
    every_seconds         integer,
    anchor_at             timestamptz,
    slots                 integer not null default 1 check (slots > 0), -- how many of its runs may be under way at once
    recovery_id           uuid,
    check (to_at > from_at)
) with (fillfactor = 50);
create index backfills_active on duly.backfills (shard, due_at) where state = 'active';
create index backfills_of_job on duly.backfills (job_id, requested_at, backfill_id) where state = 'active';
create index backfills_by_job on duly.backfills (job_id, requested_at);
create index backfills_of_tenant on duly.backfills (tenant, requested_at, backfill_id);
create index backfills_of_recovery on duly.backfills (recovery_id, state) where recovery_id is not null;
create index backfills_held on duly.backfills (recovery_id, shard, backfill_id)
 where recovery_id is not null and state = 'active' and due_at = 'infinity';
create index backfills_recovering on duly.backfills (recovery_id, shard)
 where recovery_id is not null and state = 'active' and due_at < 'infinity';

-- The version that the pending fires are of. It decides until every live scheduler reports another one.
create table duly.zone_data (
    is_only      boolean default true check (is_only) primary key,
    version      text not null,
    rules        bytea not null,                        -- of every zone, so that the next version can say what has changed
    -- zones whose schedules are timed anew; null: the version that timed them is unknown
    changed      text[],
    before       bytea,                                 -- the rules of these that a fire not yet timed anew is of
    adopted_at   timestamptz not null,
    after        uuid,                                  -- schedules up to this one are timed anew
    -- transactions up to this one may have timed a schedule by the version before
    waits_for    xid8,
    is_last_pass boolean not null default false,
    settled_at   timestamptz                            -- all are
);

-- Next fires that new time zone data has moved by more than a minute, for the owners of their jobs.
create table duly.zone_moves (
    job_id   uuid not null,
    tenant   integer not null,
    tzdb     text not null,
    was_at   timestamptz not null,
    next_at  timestamptz,                               -- null: nothing is left
    moved_at timestamptz not null
);
create index zone_moves_by_moment on duly.zone_moves (moved_at);
create index zone_moves_by_job on duly.zone_moves (job_id, moved_at);

create table duly.files (
    tenant     integer not null,
    source     text not null,
    applied_at timestamptz,                             -- null: before this was recorded
    applied_by text check (char_length(applied_by) <= 200),
    primary key (tenant, source)
) with (fillfactor = 50);

-- Each event that was taken, by what names it: its source and its id. It does not move, so one that comes again has something to
-- collide with.
create table duly.events (
    tenant      integer not null,
    digest      bytea not null check (octet_length(digest) = 32), -- of source and id, which may be long
    runs        uuid[] not null,
    received_at timestamptz not null,
    primary key (tenant, digest)
) with (fillfactor = 50);
create index events_by_time on duly.events (received_at);

----------------------------------------------------------------------------------------------------------------- limits

-- Concurrency keys: at most `slots` runs of a concurrency key are ready or leased at once. The count is in the
-- row, because counting other rows after locking it would read an old snapshot and give two runs a key of one slot.
create table duly.concurrency_keys (
    tenant  integer not null,
    key     text collate "C" not null,
    slots   integer not null check (slots >= 1),
    active  integer not null default 0 check (active >= 0),
    is_fifo boolean not null default false,             -- the run with the slot is FIFO, and has the key alone
    primary key (tenant, key)
) with (fillfactor = 50);

-- Limits set for a key; they override those that runs carry.
create table duly.key_limits (
    tenant     integer not null,
    key        text collate "C" not null,
    slots      integer check (slots between 1 and 999999),
    per_second double precision check (per_second > 0 and per_second <= 1000000),
    burst      integer check (burst between 1 and 999999),
    changed_at timestamptz not null,
    check ((per_second is null) = (burst is null)),
    check (slots is not null or per_second is not null),
    primary key (tenant, key)
);

-- Rates in use: when the next reservation is free. The rate that runs request is kept beside the one reserved by.
create table duly.rate_limits (
    tenant               integer not null,
    key                  text collate "C" not null,
    per_second           double precision not null check (per_second > 0),
    burst                integer not null check (burst >= 1),
    requested_per_second double precision not null,
    requested_burst      integer not null,
    next_at              timestamptz not null,
    look_at              timestamptz not null,          -- nothing is to be done before
    -- When what is reserved was last reckoned. A moment that is still to come was read from a clock that was set back since.
    reckoned_at          timestamptz not null default '-infinity',
    primary key (tenant, key)
) with (fillfactor = 50);
create index rate_limits_by_look on duly.rate_limits (look_at);
create index rate_limits_by_reckoning on duly.rate_limits (reckoned_at);

-- Pauses. While a row is here, nothing starts that it covers: everything, a queue, a tenant, or a tenant's share of a queue.
create table duly.pauses (
    tenant    integer check (tenant >= 1),              -- null: of every tenant
    queue     text collate "C" check (queue <> ''),     -- null: of every queue
    reason    text not null,
    paused_by text not null,
    paused_at timestamptz not null
);
create unique index pauses_by_scope on duly.pauses (coalesce(tenant, 0), coalesce(queue, ''));

-- At most `slots` runs are under way at once, of everything, a queue, a tenant, or a tenant's share of a queue.
create table duly.limits (
    tenant integer check (tenant >= 1),                 -- null: of every tenant
    queue  text collate "C" check (queue <> ''),        -- null: of every queue
    slots  integer not null check (slots >= 1),
    set_by text not null,
    set_at timestamptz not null
);
create unique index limits_by_scope on duly.limits (coalesce(tenant, 0), coalesce(queue, ''));

-- Where there are more subqueues than one claim looks at, the tenant of a queue with which the next claim begins.
create table duly.claim_positions (
    queue  text collate "C" primary key,
    tenant integer not null
) with (fillfactor = 50);

-- Overloaded queues: their oldest run has waited too long, so recurring work of low priority is not staged into them.
create table duly.overloads (
    queue         text collate "C" not null,
    oldest_due_at timestamptz not null,
    recorded_at   timestamptz not null,
    age_limit     interval not null default interval '60 seconds',
    tenant        integer not null,
    primary key (tenant, queue)
);

-- Age limits of queues: how old the oldest due run may be, where that is set.
create table duly.queue_ages (
    queue     text collate "C" primary key,
    age_limit interval not null check (age_limit >= interval '1 second'),
    set_by    text not null,
    set_at    timestamptz not null
);

-- Recoveries: after a time in which nothing was staged, missed fires are held back until an operator decides about them.
create table duly.recoveries (
    recovery_id uuid primary key,
    state       text not null check (state in ('open', 'approved', 'dismissing', 'done', 'dismissed')),
    down_since  timestamptz,                            -- when fires were last staged; null: catch-ups under way were taken over
    opened_at   timestamptz not null,
    decided_at  timestamptz,
    decided_by  text,
    -- decisions by tenant or job, where it is not left to each schedule's own policy
    rules       jsonb not null default '[]',
    rate        double precision check (rate > 0), -- runs a second, all together
    ended_at    timestamptz,
    -- When runs of a recovery were created lately, and how many: its rate holds for all schedulers together.
    granted     jsonb not null default '[]',
    -- Of a restored database: when it was backed up. The runs in flight then wait for the decision, too.
    backup_at   timestamptz,
    check ((state = 'open') = (decided_at is null) or state = 'done')
);
-- At most one that is not over.
create unique index recoveries_live on duly.recoveries ((true)) where state in ('open', 'approved', 'dismissing');
create index recoveries_by_opening on duly.recoveries (opened_at);

---------------------------------------------------------------------------------------------------------------- tenants

create table duly.tenants (
    tenant        integer generated by default as identity (start with 2) primary key,
    name          text not null unique,                 -- Never given again: a tenant is not deleted.
    state         text not null default 'active' check (state in ('active', 'suspended')),
    schedules_max integer check (schedules_max >= 0),
    ready_max     integer check (ready_max >= 0),
    submit_rate   double precision check (submit_rate > 0), -- submits a second; here as above, null is no limit
    created_at    timestamptz not null,
    weight        integer not null default 1 check (weight between 1 and 1000),
    least_period  interval check (least_period >= interval '1 second') -- null: no limit but a second
);

insert into duly.tenants (tenant, name, created_at) values (1, 'default', duly.clock_now());

create table duly.api_keys (
    key_id       text collate "C" primary key,
    tenant       integer not null references duly.tenants,
    name         text not null,
    secret_hash  bytea not null check (octet_length(secret_hash) = 32),
    scopes       text[] not null check ((cardinality(scopes) > 0) and (scopes <@ array['jobs:read', 'jobs:write', 'jobs:trigger', 'worker', 'admin'])),
    submit_rate  double precision check (submit_rate > 0),
    created_at   timestamptz not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
);
create index api_keys_by_tenant on duly.api_keys (tenant, key_id);

-- People who have logged in with a key. Of what opens a session only a hash is kept; it is good for what its key is good for.
create table duly.browser_sessions (
    token_hash   bytea check (octet_length(token_hash) = 32) primary key,
    key_id       text not null,
    tenant       integer not null,
    opened_at    timestamptz not null,
    expires_at   timestamptz not null,
    session_id   uuid not null default gen_random_uuid(),
    last_used_at timestamptz not null,
    address      text not null,
    user_agent   text not null
);
create index browser_sessions_by_expiry on duly.browser_sessions (expires_at);
create unique index browser_sessions_by_id on duly.browser_sessions (session_id);
create index browser_sessions_by_key on duly.browser_sessions (tenant, key_id, opened_at);

-- Token buckets of what has a rate, filled up when they are looked at. Forgotten in a crash: they are full then.
create unlogged table duly.token_buckets (
    name       text collate "C" primary key,
    tokens     double precision not null,
    counted_at timestamptz not null
) with (fillfactor = 50);

-- Waiting runs of each tenant, as of the last count; only of tenants with a quota to check.
create table duly.tenant_usage (
    tenant     integer primary key references duly.tenants,
    queued     bigint not null,
    counted_at timestamptz not null
) with (fillfactor = 50);

-- The rules by which values are hidden from people: of tenants, and of the installation, whose row names no tenant. Few rows, and mostly
-- none: one look a statement says so.
create table duly.redactions (
    tenant integer references duly.tenants,
    rules  text[] not null check (cardinality(rules) between 1 and 32),
    unique nulls not distinct (tenant)
);

-- Idempotency: responses stored under keys. They do not move.
create table duly.idempotent_responses (
    tenant     integer not null,
    route      text collate "C" not null,
    key        text collate "C" not null,
    body_hash  bytea not null,                          -- of path, query and body: another request under the same key is refused
    status     smallint not null,
    headers    jsonb not null,
    body       bytea not null,
    expires_at timestamptz not null,
    primary key (tenant, route, key)
);
create index idempotent_responses_by_expiry on duly.idempotent_responses (expires_at);

-- Cells: several primaries, each a full Duly. docs/decisions/0057-a-tenant-is-in-one-cell.md says why. All of this is empty where there is one.

-- In each cell: what it is, so that a wrong address or another directory is refused. At most one row.
create table duly.cell (
    is_only   boolean default true check (is_only) primary key,
    name      text collate "C" not null,
    number    integer not null,
    region    text collate "C" not null,
    directory uuid not null                             -- the directory that it belongs to
);

-- The directory, in one of the cells: the cells, and the cell of each tenant. A tenant's number is the same in all cells, because each cell
-- numbers its tenants from a million times its own number on.
create table duly.cells (
    name     text collate "C" primary key,
    number   integer generated always as identity unique check (number between 0 and 2146), -- 0: the directory's own
    region   text collate "C" not null,
    state    text not null default 'active' check (state in ('active', 'draining')),
    shown    text not null,                             -- its address without the password; the whole of it is sealed
    sealed   bytea not null,
    key_id   text not null
);
create table duly.placements (
    tenant_name text collate "C" primary key,
    cell        text collate "C" not null,
    epoch       bigint not null default 1,                -- raised by each move; a change that names another has no effect
    moving_to   text collate "C",
    phase       text check (phase in ('leaving', 'arriving')), -- until it is arriving, a move may be undone
    check ((moving_to is null) = (phase is null)),
    check (moving_to <> cell)
);
create index placements_by_cell on duly.placements (cell);

-- In each cell: its tenants that are not entirely here. A tenant without a row is here. All that adds to a tenant looks here once.
create table duly.absent_tenants (
    tenant integer primary key,
    state  text not null check (state in ('arriving', 'leaving', 'departed', 'gone')),
    epoch  bigint not null,
    cell   text collate "C" not null,                   -- the other cell: where it comes from, goes to, or is
    since  timestamptz not null
);

-- The rows of tenants that have left, until they have arrived: a move of the tenant is a move of each of its rows, by way of here.
create table duly.departures (
    number     bigint generated always as identity primary key,
    tenant     integer not null,
    epoch      bigint not null,
    table_name text collate "C" not null,
    body       jsonb not null                           -- the text of each column
);
create index departures_by_tenant on duly.departures (tenant, epoch, number);

-- Departures that have arrived: each once.
create table duly.arrivals (
    tenant integer not null,
    epoch  bigint not null,
    primary key (tenant, epoch)
);

-- Keys of tenants that are gone: their callers are told the cell.
create table duly.moved_keys (
    key_id      text collate "C" primary key,
    tenant      integer not null,
    secret_hash bytea not null
);

-------------------------------------------------------------------------------------------------------------- processes

create table duly.workers (
    worker_id    uuid primary key,
    name         text not null,
    version      text not null,
    queues       text[] not null,
    handlers     text[] not null,
    slots        integer not null,
    lease        interval not null,
    started_at   timestamptz not null,
    heartbeat    bigint not null default 0,
    until        timestamptz not null,
    safe_until   timestamptz not null,                  -- nothing due later was started; never goes back, whatever the clock does
    named        text[] not null default '{}',          -- suspects that are about to start, each alone: run/fence
    -- Declarations of a worker's program, each as tenant/hash/name: others know by them which declarations are alive.
    declares     text[] not null default '{}',
    tenant       integer references duly.tenants,            -- null: ours, and serves every tenant
    claim_number bigint not null default 0,             -- over HTTP: the number of the last claim that took something,
    claim_fence  bigint not null default 0,             -- and its fence; what it took before has a lower one
    weights      integer[] not null default '{}',       -- of its queues, in their order; none: all alike
    -- Slots of a worker by kind of target, and under no name for functions. Empty:
    -- all alike.
    pools        jsonb not null default '{}',
    -- Since when it takes nothing new: it hears of that with its signals, finishes what it runs and hands back the rest.
    draining_at  timestamptz,
    stalled_at   timestamptz,
    stalled_in   text[] not null default '{}',
    -- The app whose handlers a worker offers: its name, or else the path it was loaded from. None: a worker over HTTP, or of
    -- targets alone.
    app          text,
    -- The due runs that a worker holds and has not started, as it last said: they wait for a slot, or it is stalled. Until
    -- they start they read `ready`.
    unstarted    uuid[] not null default '{}',
    host         text
);

-- An expired worker. Its leased rows are moved on by the reaper, which needs to know when it was last safe to start a run.
create table duly.expired_workers (
    worker_id  uuid primary key,
    name       text not null,
    safe_until timestamptz not null,
    named      text[] not null,
    expired_at timestamptz not null
);

create table duly.schedulers (
    scheduler_id uuid primary key,
    name         text not null,
    version      text not null,
    started_at   timestamptz not null,
    until        timestamptz not null,
    tzdb         text,                                  -- null: an older program, which does not say
    host         text,
    shards       smallint[]                             -- that it takes, and no others; null: its share of those that no other names
);

create table duly.shards (
    shard  smallint check (shard between 0 and 63) primary key,
    holder uuid,                                        -- holds while its row in schedulers is unexpired
    epoch  bigint not null default 0                    -- raised at every grant, so a stale holder stages nothing
) with (fillfactor = 50);
insert into duly.shards (shard) select generate_series(0, 63);

-- Live processes, as each records itself every five seconds: the schema that it knows, and how far the clock of its host is ahead of the
-- database's, as it has measured. Two versions run side by side; a migration is finished once none of the one before is alive.
create table duly.processes (
    role           text not null,
    name           text not null,
    host           text not null,
    offset_seconds double precision not null,
    recorded_at    timestamptz not null,
    version        text not null default '',
    schema         integer not null default 0,
    primary key (role, name, host, schema)
) with (fillfactor = 50);

-- Hosts that take nothing new: their workers are drained when they register, and their schedulers have no share of the shards.
create table duly.drained_hosts (
    host  text primary key,
    since timestamptz not null default duly.clock_now()
);

-- The latest moment that the database's clock was seen at. A clock that is behind it was set back.
create table duly.clock_high_water (
    is_only boolean default true check (is_only) primary key,
    at      timestamptz not null
) with (fillfactor = 50);

-- When what must be done again and again was last done, by whomever: read by those who cannot see into the process that does it.
create table duly.maintenance_tasks (
    name    text collate "C" primary key,
    done_at timestamptz not null
) with (fillfactor = 50);

-- Metrics of the whole installation: the process whose turn it is reads them, and all others read this row.
create table duly.metrics (
    is_only  boolean default true check (is_only) primary key,
    turn     bigint not null,                           -- raised at every turn, so a process that comes late writes nothing
    taken_at timestamptz not null,                      -- when the turn was taken
    read_at  timestamptz,                               -- null: not read yet
    figures  text                                       -- JSON
) with (fillfactor = 50);

-- Events that leave no row to count.
create table duly.counters (
    name  text primary key,
    value bigint not null
) with (fillfactor = 50);

----------------------------------------------------------------------------------------------- destinations of webhooks

create table duly.destinations (
    destination_id     uuid primary key,
    tenant             integer not null,
    origin             text collate "C" not null,
    created_at         timestamptz not null,
    slots              integer not null default 100 check (slots between 1 and 100000), -- requests under way at once
    rate_per_second    double precision check (rate_per_second > 0), -- null: no limit
    state              text not null default 'closed' check (state in ('closed', 'open', 'half_open')),
    state_version      integer not null default 0,      -- raised at each change of state: a change that has seen an old one has no effect
    state_changed_at   timestamptz not null,
    openings           integer not null default 0,      -- in a row, without calm between them
    wait_until         timestamptz not null default '-infinity', -- of an open one: when it is probed
    requested_until    timestamptz not null default '-infinity', -- the end of its Retry-After
    failures_in_a_row  integer not null default 0,
    successes_in_a_row integer not null default 0,
    half_at            timestamptz not null,            -- when the younger half of the window began
    healthy            integer not null default 0,
    failing            integer not null default 0,
    healthy_before     integer not null default 0,      -- in the older half
    failing_before     integer not null default 0,
    steady_rate        double precision,                -- healthy answers a second, in stretches in which it was closed
    ramp_rate          double precision,                -- after an outage, while runs wait for it: no more a second
    ramp_grows         boolean not null default false,
    ramp_until         timestamptz not null default '-infinity',
    tokens             double precision not null default 1, -- of the rate, as of counted_at
    counted_at         timestamptz not null,
    released_at        timestamptz not null,            -- when runs that wait for it were last let go
    answers_at         timestamptz not null,            -- from when on responses are counted, for their rate
    answers_before     bigint not null default 0,       -- how many there had been by then
    measured_rate      double precision not null default 0, -- answers a second, in the stretch before
    healthy_total      bigint not null default 0,
    failing_total      bigint not null default 0,
    -- retries for each first attempt; 1: no budget
    retry_share        double precision not null default 0.2 check (retry_share between 0 and 1),
    retries_total      bigint not null default 0,
    rejected_total     bigint not null default 0,    -- retries that had to wait for the budget
    rejected_at        timestamptz not null default '-infinity'
) with (fillfactor = 50);
create unique index destinations_by_origin on duly.destinations (tenant, origin);
create index destinations_open on duly.destinations (wait_until) where state <> 'closed';
-- When a destination was last used is, to within ten seconds, when its window last turned.
create index destinations_by_use on duly.destinations (half_at);

-- A worker's share of a destination: the requests that it may have under way. The sum of slots never exceeds the budget, unless that was lowered.
create table duly.destination_shares (
    destination_id uuid not null,
    worker_id      uuid not null,
    slots          integer not null,
    in_flight      integer not null,
    waiting        integer not null,
    primary key (destination_id, worker_id)
) with (fillfactor = 50);

-- The number of each worker's last report, apart from its shares: those go when nothing is held, and a late report must be ignored then too.
create table duly.destination_reports (
    worker_id uuid primary key references duly.workers on delete cascade,
    number    bigint not null
) with (fillfactor = 50);

-- Signing secrets: the newest, and the one before until it retires. Sealed; the key that opens it is not in this database.
create table duly.destination_secrets (
    destination_id uuid not null,
    number         integer not null check (number >= 1),
    tenant         integer not null,
    sealed         bytea not null,
    key_id         text not null,
    created_at     timestamptz not null,
    retires_at     timestamptz,
    primary key (destination_id, number)
);

---------------------------------------------------------------------------------------------------------- notifications

-- Notifications: where they go, what they are about, which there were, and which of them each delivery carried.

-- A receiver. `shown` is what people may see of its configuration; the whole of it is sealed, and the key is not in this database.
create table duly.channels (
    tenant     integer not null,
    name       text collate "C" not null,
    kind       text not null check (kind in ('webhook', 'email', 'apprise')),
    shown      jsonb not null,
    sealed     bytea not null,
    key_id     text not null,
    updated_at timestamptz not null,
    primary key (tenant, name)
);

-- A rule: the definition as it was requested, and what the monitor reads of it in columns of their own.
create table duly.notification_rules (
    tenant       integer not null,
    name         text collate "C" not null,
    definition   jsonb not null,
    selects      jsonb not null,                        -- the parsed filter
    events       text[] not null check (events <> '{}'),
    mode         text not null check (mode in ('every', 'on_change', 'digest')),
    channels     text[] collate "C" not null check (channels <> '{}'),
    late_after   interval,
    absent_after interval,
    queue_age    interval,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    looked_at    timestamptz not null default '-infinity', -- when the monitor last read what the rule watches besides history
    -- The last waiting run that was judged: those due later are still to be judged, each once.
    late_to      timestamptz not null,
    late_id      uuid not null default '00000000-0000-0000-0000-000000000000',
    absent_to    timestamptz not null,
    absent_id    uuid not null default '00000000-0000-0000-0000-000000000000',
    sent_to      bigint not null default 0,             -- the last notification that a delivery carries
    sent_at      timestamptz,
    -- The file that the rule belongs to, and the definition that it applied last. Null: created by hand.
    source       text collate "C",
    applied      jsonb,
    primary key (tenant, name)
);
create index notification_rules_watching on duly.notification_rules (looked_at)
 where events && array['late', 'absent', 'queue_age', 'paused', 'circuit_open'];

-- What rules have noticed. Numbers of a rule rise in the order of commits, because one process at a time notices.
create table duly.notifications (
    notification_id bigint generated always as identity,
    tenant      integer not null,
    rule        text collate "C" not null,
    event       text not null,
    key         text not null,                          -- what it is about, and which time of it: each once
    subject     text not null,                          -- for people: a job, a queue, a destination
    job_id      uuid,
    run_id      uuid,
    attempt     integer,
    queue       text collate "C",
    reason      text,
    happened_at timestamptz not null,
    noticed_at  timestamptz not null,
    primary key (tenant, rule, notification_id)
);
create unique index notifications_once on duly.notifications (tenant, rule, key);
create index notifications_by_number on duly.notifications (tenant, notification_id);
create index notifications_by_time on duly.notifications (noticed_at);

-- What is wrong now under a rule: a job that failed, was absent or is paused, a backlog, a pause, an open circuit. Its end is a recovery.
create table duly.notification_states (
    tenant   integer not null,
    rule     text collate "C" not null,
    key      text not null,
    event    text not null,
    subject  text not null,
    job_id   uuid,
    since    timestamptz not null,
    last_at  timestamptz not null,
    primary key (tenant, rule, key)
);
create index notification_states_by_job on duly.notification_states (job_id) where job_id is not null;
create index notification_states_by_time on duly.notification_states (last_at);

-- Deliveries, each a run. Which notifications one carries is a range of their numbers; a test has none, and no rule.
create table duly.notification_deliveries (
    run_id        uuid primary key,
    tenant        integer not null,
    channel       text collate "C" not null,
    rule          text collate "C",
    after_number  bigint not null,
    upto_number   bigint not null,
    notifications integer not null check (notifications >= 0),
    created_at    timestamptz not null
);
create index notification_deliveries_by_channel on duly.notification_deliveries (tenant, channel, created_at);
create index notification_deliveries_by_rule on duly.notification_deliveries (tenant, rule, created_at) where rule is not null;
create index notification_deliveries_by_number on duly.notification_deliveries (tenant, rule, upto_number) where rule is not null;
create index notification_deliveries_by_time on duly.notification_deliveries (created_at);

-- How far the monitor has read history. Who holds the row is the monitor for that moment.
create table duly.notification_cursor (
    is_only   boolean default true check (is_only) primary key,
    cluster   text not null,
    ended     xid8 not null,                            -- every transaction before this one was read,
    open      xid8[] not null default '{}',             -- except these, which were still open
    looked_at timestamptz not null
) with (fillfactor = 50);

--------------------------------------------------------------------------------------------- workflows and dependencies

create table duly.workflows (
    workflow_id  uuid primary key,                      -- as of a run: its first 48 bits say when it was created
    tenant       integer not null,
    name         text not null,
    state        text not null default 'running' check (state in ('running', 'paused', 'cancelling', 'succeeded', 'failed', 'cancelled')),
    nodes        integer not null check (nodes between 0 and 1000),
    open_nodes   integer not null check (open_nodes >= 0), -- that have not ended
    tags         text[] not null default '{}',
    callbacks    jsonb,                                 -- notified of its end
    metadata     jsonb,                                 -- request id, trace, parent
    run_id       uuid,                                  -- the run whose target it is, and which waits for its end
    reason       text,
    replays      integer not null default 0,
    submitted_at timestamptz not null,
    ended_at     timestamptz,
    -- For which life of its run a workflow runs, or has ended: how often that had been replayed. What ended in an earlier
    -- one is taken up again by the next, instead of another workflow.
    run_life     integer not null default 0,
    -- So are the ends of workflows. After a replay it names the end before, until there is another.
    ended_xid    xid8,
    check ((ended_at is not null) = (state in ('succeeded', 'failed', 'cancelled'))),
    check (ended_at is null or open_nodes = 0)
) with (fillfactor = 50);
create index workflows_by_tenant on duly.workflows (tenant, workflow_id);
create index workflows_by_end on duly.workflows (ended_at) where ended_at is not null;
create index workflows_of_runs on duly.workflows (run_id) where run_id is not null and ended_at is null;
-- Workflows started by runs whose target is one, ended ones too.
create index workflows_by_run on duly.workflows (run_id, workflow_id) where run_id is not null;
create index workflows_by_ending on duly.workflows (ended_xid) where ended_xid is not null;

create table duly.workflow_nodes (
    workflow_id   uuid not null,
    name          text collate "C" not null,
    number        integer not null,                     -- the order in which they were given
    tenant        integer not null,
    run_id        uuid not null,
    state         text not null default 'waiting' check (state in ('waiting', 'ready', 'succeeded', 'failed', 'expired', 'cancelled', 'skipped')),
    waits         integer not null check (waits >= 0),  -- parents that have not ended
    unmet         integer not null default 0,           -- parents that have, and not as the edge asks
    items         integer,                              -- of a map that was spread out: how many
    item_of       text collate "C",                     -- of an item of a map: which
    added_by      text collate "C",                     -- of a node that was added by a running one: which
    map           jsonb,                                -- of a map, the list; of its items, each its own: a node and a path
    handler       text collate "C" not null,
    queue         text collate "C" not null,
    priority      smallint not null,
    payload       jsonb,
    options       jsonb not null,
    replays       integer not null default 0,
    last_attempt  integer not null default 0,           -- of its former lives: their records may be deleted
    released_at   timestamptz,
    ended_at      timestamptz,
    reason        text,
    result        jsonb,
    item_attempts jsonb,                                -- of a map that was set back: the last attempt of each item, by name
    check ((ended_at is null) = (state in ('waiting', 'ready'))),
    primary key (workflow_id, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50000);

create table duly.workflow_edges (
    workflow_id uuid not null,
    parent      text collate "C" not null,
    child       text collate "C" not null,
    tenant      integer not null,
    on_end      text not null check (on_end in ('success', 'failure', 'always')),
    primary key (workflow_id, parent, child)
);
create index workflow_edges_by_child on duly.workflow_edges (workflow_id, child);

-- Changes of workflows, for event streams, by the transaction of the change; kept for about an hour. Their ends are read from workflows.
create table duly.workflow_changes (
    xid         xid8 not null default pg_current_xact_id(),
    number      bigint generated always as identity,
    tenant      integer not null,
    workflow_id uuid not null,
    change      text not null check (change in ('paused', 'resumed', 'cancelling', 'replayed')),
    name        text not null,
    replays     integer not null,
    changed_at  timestamptz not null
);
create index workflow_changes_by_transaction on duly.workflow_changes (xid, number);
create index workflow_changes_by_time on duly.workflow_changes (changed_at);

-- Tasks of a workflow that are done outside of its lock, or after another transaction has released a row. No key: a transaction that adds
-- one waits for no other.
create table duly.workflow_tasks (
    task_id     bigint generated always as identity primary key,
    workflow_id uuid not null,
    kind        text not null check (kind in ('look', 'withdraw', 'cancel', 'settle', 'leave')),
    due_at      timestamptz not null,
    leaving     jsonb,                                  -- the run and key whose slot is given back
    tries       smallint not null default 0             -- that failed
);

-- Nodes that have ended in this transaction, until its end. A writer deletes its rows before the commit: no other ever sees one, and none
-- outlives a crash.
create unlogged table duly.ended_nodes (
    workflow_id uuid not null,
    node        text collate "C" not null,
    run_id      uuid not null,
    became      text not null,
    reason      text,
    result      jsonb,
    attempt     integer,
    is_first    boolean not null,                       -- in its transaction: it queues what sees to all of them
    recorded_in xid8 not null default pg_current_xact_id() -- By which they are found among what others have left to be vacuumed.
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index ended_nodes_by_transaction on duly.ended_nodes (recorded_in);

-- Dependencies of runs. A row goes when that end has been counted, or with the one that waits.
create table duly.dependencies (
    parent uuid not null,                               -- the run that is waited for
    child  uuid not null,                               -- the run that waits
    tenant integer not null,
    on_end text not null check (on_end in ('success', 'failure', 'always')),
    primary key (parent, child)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index dependencies_by_child on duly.dependencies (child);

-- One row for each run that waits: its mutex, and what it has yet to hear.
create table duly.dependents (
    child  uuid primary key,
    tenant integer not null,
    waits  integer not null check (waits >= 0),         -- runs that have not ended
    unmet  text                                         -- why it will not run: the first dependency whose outcome does not match
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Runs to look at, outside of any other transaction. No key: adding one waits for no other.
create table duly.dependency_checks (
    check_id bigint generated always as identity primary key,
    child    uuid not null,
    due_at   timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Runs that have ended in this transaction, until its end, as ended_nodes is for workflows.
create unlogged table duly.ended_dependencies (
    run_id   uuid not null,
    became   text not null,
    is_first boolean not null                          -- in its transaction: it queues what sees to all of them
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

--------------------------------------------------------------------------------------------------------- runs under way

-- Signals to holders of leases. Rows of their own, because a leased row is never updated: its ctid is the worker's handle.
create table duly.signals (
    worker_id uuid not null,
    run_id    uuid not null,
    fence     bigint not null,
    kind      text not null check (kind in ('cancel', 'recall')),
    sent_at   timestamptz not null,
    primary key (worker_id, run_id, fence, kind)
);

create table duly.checkpoints (
    run_id   uuid primary key,
    fence    bigint not null,
    body     jsonb not null,
    saved_at timestamptz not null,
    -- As it was sent: what is stored is written anew by the database, with other spaces.
    bytes    integer
);

create table duly.progress (
    run_id     uuid primary key,
    fence      bigint not null,
    done       double precision,
    total      double precision,
    note       text,
    updated_at timestamptz not null
);

create table duly.logs (
    run_id    uuid not null,
    attempt   integer not null,
    number    integer not null,
    logged_at timestamptz not null,
    level     text not null,
    message   text not null,
    fields    jsonb
) partition by range (logged_at);
create index logs_by_run on duly.logs (run_id, attempt, number);

create table duly.logs_default partition of duly.logs default;

-- The parent of each subtask. A run's options have it too, and moves with the run; this is the way from the parent. A
-- table of its own, so that a run without a parent pays nothing.
create table duly.subtasks (
    parent      uuid not null,
    run_id      uuid not null,
    tenant      integer not null,
    recorded_at timestamptz not null,
    primary key (parent, run_id)
);
create index subtasks_by_time on duly.subtasks (recorded_at);

-- Facts of such a run beside its lease. A row may outlive it until its deadline, and means nothing then.
create table duly.awaited (
    run_id      uuid primary key,
    fence       bigint not null,
    worker_id   uuid not null,                          -- that sent the webhook
    started_at  timestamptz,
    deadline_at timestamptz not null
) with (fillfactor = 50);
create index awaited_by_deadline on duly.awaited (deadline_at);

-- Jobs that are to be triggered with the outcome of a run. The id is the key, so that each is triggered once.
create table duly.completion_callbacks (
    callback_id uuid primary key,
    tenant      integer not null,
    job_id      uuid not null,
    event       jsonb not null,
    created_at  timestamptz not null
);

-------------------------------------------------------------------------------------------------------------- functions

-- The text of each file of functions that was applied last, by its digest, and the edition that it is of.
create table duly.functions (
    file       text        primary key,
    digest     text        not null,
    edition    integer     not null,
    applied_at timestamptz not null default now()
);

----------------------------------------------------------------------------------------------- the wall between tenants

-- The API's role reads the rows of its tenant. It writes through functions alone, which check the tenant themselves.
grant usage on schema duly to duly_api;
grant execute on function duly.clock_now, duly.current_tenant, duly.owns to duly_api;
do $$
declare
    v_table text;
begin
    foreach v_table in array array[
        'timers', 'blocked', 'ready', 'leased', 'dead', 'attempts', 'attempts_succeeded', 'attempts_failed', 'rollups', 'audit',
        'jobs', 'job_versions', 'job_tags', 'idempotency_keys', 'calendars', 'backfills', 'files', 'concurrency_keys', 'key_limits', 'rate_limits',
        'destinations', 'destination_secrets', 'workflows', 'workflow_nodes', 'workflow_edges', 'dependencies', 'subtasks', 'idempotent_responses',
        'channels', 'notification_rules', 'notifications', 'notification_deliveries'] loop
        execute format('alter table duly.%I enable row level security', v_table);
        execute format('create policy of_its_tenant on duly.%I for select to duly_api using (tenant = duly.current_tenant())', v_table);
        execute format('grant select on duly.%I to duly_api', v_table);
    end loop;
    -- Rows beside runs bear no tenant: they belong to whom their run or job belongs to.
    foreach v_table in array array['checkpoints', 'progress', 'awaited'] loop
        execute format('alter table duly.%I enable row level security', v_table);
        execute format('create policy of_its_run on duly.%I for select to duly_api using (duly.owns(run_id))', v_table);
        execute format('grant select on duly.%I to duly_api', v_table);
    end loop;
    -- The role sees nothing of these, but what a function says.
    foreach v_table in array array[
        'completion_callbacks', 'ended_nodes', 'workflow_tasks', 'dependents', 'ended_dependencies', 'dependency_checks', 'redactions',
        'notification_states', 'notification_cursor', 'cell', 'cells', 'placements', 'absent_tenants', 'departures', 'arrivals', 'moved_keys'] loop
        execute format('alter table duly.%I enable row level security', v_table);
    end loop;
end $$;
alter table duly.payloads enable row level security;
create policy of_its_job on duly.payloads for select to duly_api using (duly.owns(job_id));
grant select on duly.payloads to duly_api;
