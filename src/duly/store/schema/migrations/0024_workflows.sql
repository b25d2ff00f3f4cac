-- Workflows: runs that wait for each other, advanced by the record of an end. docs/decisions/0030-workflows.md says why.

create table duly.workflows (
    workflow_id  uuid        primary key,               -- as of a run: its first 48 bits say when it was made
    tenant       integer     not null,
    name         text        not null,
    state        text        not null default 'running'
                             check (state in ('running', 'paused', 'cancelling', 'succeeded', 'failed', 'cancelled')),
    nodes        integer     not null check (nodes between 0 and 1000),
    open_nodes   integer     not null check (open_nodes >= 0),         -- that have not ended
    tags         text[]      not null default '{}',
    then_tell    jsonb,                                 -- who is told of its end
    marks        jsonb,                                 -- who asked for it
    run_id       uuid,                                  -- the run whose target it is, and which waits for its end
    reason       text,
    replays      integer     not null default 0,
    submitted_at timestamptz not null,
    ended_at     timestamptz,
    check ((ended_at is not null) = (state in ('succeeded', 'failed', 'cancelled'))),
    check (ended_at is null or open_nodes = 0)
) with (fillfactor = 50);
create index workflows_by_tenant on duly.workflows (tenant, workflow_id);
create index workflows_by_end on duly.workflows (ended_at) where ended_at is not null;
create index workflows_of_runs on duly.workflows (run_id) where run_id is not null and ended_at is null;

create table duly.workflow_nodes (
    workflow_id  uuid        not null,
    name         text        not null collate "C",
    number       integer     not null,                  -- the order in which they were given
    tenant       integer     not null,
    run_id       uuid        not null,
    state        text        not null default 'waiting'
                             check (state in ('waiting', 'ready', 'succeeded', 'failed', 'expired', 'cancelled', 'skipped')),
    waits        integer     not null check (waits >= 0),              -- parents that have not ended
    unmet        integer     not null default 0,        -- parents that have, and not as the edge asks
    items        integer,                               -- of a map that was spread out: how many
    item_of      text        collate "C",               -- of an item of a map: which
    added_by     text        collate "C",               -- of a node that was added by a running one: which
    map          jsonb,                                 -- of a map, the list; of its items, each its own: a node and a path
    handler      text        not null collate "C",
    queue        text        not null collate "C",
    priority     smallint    not null,
    payload      jsonb,
    options      jsonb       not null,
    replays      integer     not null default 0,
    last_attempt integer     not null default 0,        -- of its former lives: their records may be gone
    released_at  timestamptz,
    ended_at     timestamptz,
    reason       text,
    result       jsonb,
    primary key (workflow_id, name),
    check ((ended_at is null) = (state in ('waiting', 'ready')))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50000);

create table duly.workflow_edges (
    workflow_id  uuid        not null,
    parent       text        not null collate "C",
    child        text        not null collate "C",
    tenant       integer     not null,
    on_end       text        not null check (on_end in ('success', 'failure', 'always')),
    primary key (workflow_id, parent, child)
);
create index workflow_edges_by_child on duly.workflow_edges (workflow_id, child);

-- What has ended in this transaction, until its end. Whoever writes here deletes it before the commit: nobody else ever sees a row,
-- and none outlives a crash.
create unlogged table duly.endings (
    workflow_id  uuid        not null,
    node         text        not null collate "C",
    run_id       uuid        not null,
    became       text        not null,
    reason       text,
    result       jsonb,
    attempt      integer,
    is_first     boolean     not null,                  -- in its transaction: it queues what sees to all of them
    noted_in     xid8        not null default pg_current_xact_id()      -- By which they are found among what others have left to be vacuumed.
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index endings_by_transaction on duly.endings (noted_in);

-- What is left to do for a workflow outside of its lock, or after somebody else has let go of a row. No key: whoever notes one
-- waits for nobody.
create table duly.errands (
    errand_id    bigint      generated always as identity primary key,
    workflow_id  uuid        not null,
    what         text        not null check (what in ('look', 'withdraw', 'cancel', 'settle', 'leave')),
    due_at       timestamptz not null,
    leaving      jsonb,                                 -- whose place at which gate is given back
    tries        smallint    not null default 0         -- that failed
);

alter table duly.workflows enable row level security;
alter table duly.workflow_nodes enable row level security;
alter table duly.workflow_edges enable row level security;
alter table duly.endings enable row level security;
alter table duly.errands enable row level security;
create policy of_its_tenant on duly.workflows for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.workflow_nodes for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.workflow_edges for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.workflows, duly.workflow_nodes, duly.workflow_edges to duly_api;
