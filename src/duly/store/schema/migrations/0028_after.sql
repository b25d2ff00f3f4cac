-- `after`: one-shots that wait for the ends of others. docs/decisions/0035-after.md says why.

-- Who is told of a run's end. A row goes when that end has been counted, or with the one that waits.
create table duly.followers (
    parent       uuid        not null,                  -- the run that is waited for
    child        uuid        not null,                  -- the run that waits
    tenant       integer     not null,
    on_end       text        not null check (on_end in ('success', 'failure', 'always')),
    primary key (parent, child)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index followers_by_child on duly.followers (child);

-- One row for each run that waits: its mutex, and what it has yet to hear.
create table duly.followings (
    child        uuid        primary key,
    tenant       integer     not null,
    waits        integer     not null check (waits >= 0),              -- runs that have not ended
    unmet        text                                   -- why it will not run: the first that has ended, and not as was asked
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- What has ended in this transaction, until its end, as `endings` is for workflows.
create unlogged table duly.followed (
    run_id       uuid        not null,
    became       text        not null,
    is_first     boolean     not null                   -- in its transaction: it queues what sees to all of them
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Whom to look at, outside of any other transaction. No key: whoever notes one waits for nobody.
create table duly.follow_checks (
    check_id     bigint      generated always as identity primary key,
    child        uuid        not null,
    due_at       timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

alter table duly.followers enable row level security;
alter table duly.followings enable row level security;
alter table duly.followed enable row level security;
alter table duly.follow_checks enable row level security;
create policy of_its_tenant on duly.followers for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.followers to duly_api;
