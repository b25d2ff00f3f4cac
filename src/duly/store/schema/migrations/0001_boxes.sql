-- The boxes. A run is one row that lives in exactly one of timers, blocked, ready, leased and dead; the table is its state.
-- The moving boxes share their first sixteen columns, in this order; what belongs to one box stands behind them.
-- No foreign keys: each insert would lock its parent row.

create type duly.outcome as enum
    ('succeeded', 'failed', 'timed_out', 'lost', 'cancelled', 'snoozed', 'fenced', 'skipped');
create type duly.state as enum
    ('scheduled', 'blocked', 'ready', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired', 'skipped');

-- One number per claim statement. Cache 1: a cached block per session would hand out fences that go down.
create sequence duly.fences cache 1;

create table duly.jobs (
    job_id       uuid        primary key,
    tenant       integer     not null,
    name         text,
    state        text        not null default 'active' check (state in ('active', 'paused', 'completed', 'cancelled')),
    generation   integer     not null default 1 check (generation >= 1),
    queue        text        not null collate "C",
    handler      text        not null collate "C",
    priority     smallint    not null default 5 check (priority between 0 and 9),
    every_seconds integer    not null check (every_seconds >= 1),
    anchor_at    timestamptz not null,
    payload      jsonb,
    payload_stored boolean   not null default false,
    options      jsonb,
    created_at   timestamptz not null,
    updated_at   timestamptz not null
);
create unique index jobs_by_name on duly.jobs (tenant, name) where name is not null and state in ('active', 'paused');

create table duly.timers (
    run_id       uuid,                                  -- null: the next fire of job_id, its mutex and its cursor
    job_id       uuid        not null,
    scheduled_at timestamptz not null,
    due_at       timestamptz not null,
    previous_scheduled_at timestamptz,                  -- of a next fire: the last moment staged, never to be staged again
    generation   integer     not null,
    tenant       integer     not null,
    attempt      integer     not null default 0,        -- attempts used up
    priority     smallint    not null default 5,
    losses       smallint    not null default 0,        -- losses in which this run was named
    suspect      boolean     not null default false,    -- lost beside others: runs alone, in a child process
    payload_stored boolean   not null default false,    -- the payload stands in payloads, under (job_id, generation)
    queue        text        not null collate "C",
    handler      text        not null collate "C",
    payload      jsonb,
    options      jsonb,
    shard        smallint    not null,
    every_seconds integer,
    check (due_at >= scheduled_at),
    check ((run_id is null) = (every_seconds is not null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200000,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2);
create index timers_by_due on duly.timers (shard, due_at);
create unique index timers_next_fire on duly.timers (job_id) where run_id is null;
create index timers_retries on duly.timers (job_id) where run_id is not null and run_id <> job_id;
create unique index timers_by_run on duly.timers (run_id) where run_id is not null;

create table duly.blocked (
    run_id       uuid        not null primary key,
    job_id       uuid        not null,
    scheduled_at timestamptz not null,
    due_at       timestamptz not null,
    previous_scheduled_at timestamptz,
    generation   integer     not null,
    tenant       integer     not null,
    attempt      integer     not null,
    priority     smallint    not null,
    losses       smallint    not null,
    suspect      boolean     not null,
    payload_stored boolean   not null,
    queue        text        not null collate "C",
    handler      text        not null collate "C",
    payload      jsonb,
    options      jsonb,
    gate         text        not null collate "C",      -- what it waits for a place in
    blocked_at   timestamptz not null
);
create index blocked_by_gate on duly.blocked (tenant, gate, due_at, run_id);

-- What holds a run back besides time: at most `places` runs of a gate are ready or leased at once. The count stands in the
-- row, because counting other rows after locking it would read an old snapshot and let two into a gate of one.
create table duly.gates (
    tenant       integer     not null,
    gate         text        not null collate "C",
    places       integer     not null check (places >= 1),
    active       integer     not null default 0 check (active >= 0),
    primary key (tenant, gate)
) with (fillfactor = 50);

create table duly.ready (
    run_id       uuid        not null,
    job_id       uuid        not null,
    scheduled_at timestamptz not null,
    due_at       timestamptz not null,
    previous_scheduled_at timestamptz,
    generation   integer     not null,
    tenant       integer     not null,
    attempt      integer     not null,
    priority     smallint    not null,
    losses       smallint    not null,
    suspect      boolean     not null,
    payload_stored boolean   not null,
    queue        text        not null collate "C",
    handler      text        not null collate "C",
    payload      jsonb,
    options      jsonb,
    rank         double precision not null              -- a virtual deadline: due moment plus the handicap of the priority
) with (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
create unique index ready_by_run on duly.ready (run_id);
create index ready_by_rank on duly.ready (queue, rank);

create table duly.leased (
    run_id       uuid        not null,
    job_id       uuid        not null,
    scheduled_at timestamptz not null,
    due_at       timestamptz not null,
    previous_scheduled_at timestamptz,
    generation   integer     not null,
    tenant       integer     not null,
    attempt      integer     not null check (attempt >= 1),      -- the attempt this lease is for
    priority     smallint    not null,
    losses       smallint    not null,
    suspect      boolean     not null,
    payload_stored boolean   not null,
    queue        text        not null collate "C",
    handler      text        not null collate "C",
    payload      jsonb,
    options      jsonb,
    fence        bigint      not null,
    worker_id    uuid        not null,
    claimed_at   timestamptz not null
) with (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
create unique index leased_by_run on duly.leased (run_id);
create index leased_by_worker on duly.leased (worker_id);

create table duly.dead (
    run_id       uuid        not null primary key,
    job_id       uuid        not null,
    scheduled_at timestamptz not null,
    due_at       timestamptz not null,
    previous_scheduled_at timestamptz,
    generation   integer     not null,
    tenant       integer     not null,
    attempt      integer     not null,
    priority     smallint    not null,
    losses       smallint    not null,
    suspect      boolean     not null,
    payload_stored boolean   not null,
    queue        text        not null collate "C",
    handler      text        not null collate "C",
    payload      jsonb,
    options      jsonb,
    buried_at    timestamptz not null,
    reason       text        not null,
    replays      integer     not null default 0
);
create index dead_by_time on duly.dead (tenant, buried_at);

-- History: one row per attempt, and one per stretch of skipped occurrences. Successes and failures are kept for different
-- times, so they stand in different day partitions, which are dropped whole.
create table duly.attempts (
    run_id       uuid        not null,
    job_id       uuid        not null,
    scheduled_at timestamptz not null,
    due_at       timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz not null,
    fence        bigint,
    tenant       integer     not null,
    attempt      integer     not null,
    outcome      duly.outcome not null,
    became       duly.state  not null,                  -- what the run became by this attempt
    queue        text        not null collate "C",
    handler      text        not null collate "C",
    worker_id    uuid,
    reason       text,
    result       jsonb,
    detail       jsonb                                  -- an error with its traceback, or first, last and count of what was skipped
) partition by list (outcome);
create index attempts_by_run on duly.attempts (run_id);
create index attempts_by_job on duly.attempts (job_id, finished_at);

create table duly.attempts_succeeded partition of duly.attempts for values in ('succeeded') partition by range (finished_at);
create table duly.attempts_failed partition of duly.attempts default partition by range (finished_at);
create table duly.attempts_succeeded_default partition of duly.attempts_succeeded default;
create table duly.attempts_failed_default partition of duly.attempts_failed default;

create table duly.logs (
    run_id       uuid        not null,
    attempt      integer     not null,
    number       integer     not null,
    logged_at    timestamptz not null,
    level        text        not null,
    message      text        not null,
    fields       jsonb
) partition by range (logged_at);
create index logs_by_run on duly.logs (run_id, attempt, number);
create table duly.logs_default partition of duly.logs default;

-- Idempotency keys do not move, so a repeated submit always has something to collide with.
create table duly.keys (
    tenant       integer     not null,
    key          text        not null,
    job_id       uuid        not null,
    body_hash    bytea       not null,
    scheduled_at timestamptz not null,
    expires_at   timestamptz not null,
    primary key (tenant, key)
);
create index keys_by_expiry on duly.keys (expires_at);

create table duly.payloads (
    job_id       uuid        not null,
    generation   integer     not null,
    body         jsonb       not null,
    stored_at    timestamptz not null,
    primary key (job_id, generation)
);

create table duly.workers (
    worker_id    uuid        primary key,
    name         text        not null,
    version      text        not null,
    queues       text[]      not null,
    handlers     text[]      not null,
    slots        integer     not null,
    lease        interval    not null,
    started_at   timestamptz not null,
    beat         bigint      not null default 0,
    until        timestamptz not null,
    safe_until   timestamptz not null,                  -- nothing due later was started; never goes back, whatever the clock does
    named        text[]      not null default '{}'      -- suspects that are about to start, each alone: run/fence
);

-- A worker that is gone. Its leased rows are moved on by the reaper, which needs to know when it was last safe to start a run.
create table duly.departed (
    worker_id    uuid        primary key,
    name         text        not null,
    safe_until   timestamptz not null,
    named        text[]      not null,
    departed_at  timestamptz not null
);

-- What a leaseholder must be told. Rows of their own, because a leased row is never updated: its place is the worker's handle.
create table duly.signals (
    worker_id    uuid        not null,
    run_id       uuid        not null,
    fence        bigint      not null,
    what         text        not null check (what in ('cancel')),
    sent_at      timestamptz not null,
    primary key (worker_id, run_id, fence, what)
);

create table duly.checkpoints (
    run_id       uuid        primary key,
    fence        bigint      not null,
    body         jsonb       not null,
    saved_at     timestamptz not null
);

create table duly.progress (
    run_id       uuid        primary key,
    fence        bigint      not null,
    fraction     real,
    message      text,
    updated_at   timestamptz not null
);

create table duly.schedulers (
    scheduler_id uuid        primary key,
    name         text        not null,
    version      text        not null,
    started_at   timestamptz not null,
    until        timestamptz not null
);

create table duly.shards (
    shard        smallint    primary key check (shard between 0 and 63),
    holder       uuid,                                  -- holds while its row in schedulers is unexpired
    epoch        bigint      not null default 0         -- raised at every grant, so a stale holder stages nothing
) with (fillfactor = 50);
insert into duly.shards (shard) select generate_series(0, 63);
