-- What ended, counted by the minute, for charts; and the sessions of people who look at them. docs/decisions/0034-the-dashboard.md says why.

-- What statements have recorded, summed up, until it is folded into the roll-ups. Rows come and go, and are never updated.
create table duly.tallies (
    minute       timestamptz not null,
    tenant       integer     not null,
    queue        text        not null collate "C",
    outcome      duly.outcome not null,
    became       duly.state  not null,
    skew         smallint,                              -- the bucket of how late it began; null: it never did
    duration     smallint,
    runs         integer     not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- Under an empty name stands the sum of all queues.
create table duly.rollups (
    tenant       integer     not null,
    grain        text        not null check (grain in ('minute', 'hour')),
    at           timestamptz not null,
    queue        text        not null collate "C",
    started      integer     not null,                  -- attempts that had begun, counted where they ended
    succeeded    integer     not null,
    failed       integer     not null,
    timed_out    integer     not null,
    lost         integer     not null,
    cancelled    integer     not null,
    snoozed      integer     not null,
    skipped      integer     not null,
    expired      integer     not null,
    fenced       integer     not null,
    retried      integer     not null,                  -- of those that did not succeed: another attempt follows
    dead         integer     not null,                  -- of those that did not succeed: nothing follows by itself
    skew         integer[]   not null check (cardinality(skew) = 21),
    duration     integer[]   not null check (cardinality(duration) = 21),
    primary key (tenant, grain, queue, at)
) with (fillfactor = 70);
create index rollups_by_time on duly.rollups (at);

-- People who have logged in with a key. Of what opens a session only a hash is kept; it is good for what its key is good for.
create table duly.browser_sessions (
    token_hash   bytea       primary key check (octet_length(token_hash) = 32),
    key_id       text        not null,
    tenant       integer     not null,
    opened_at    timestamptz not null,
    expires_at   timestamptz not null
);
create index browser_sessions_by_expiry on duly.browser_sessions (expires_at);

alter table duly.rollups enable row level security;
create policy of_its_tenant on duly.rollups for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.rollups to duly_api;
