-- The smallest period of a tenant, calendars while some jobs are timed by what they were, and what was done to jobs, for those who listen.

------------------------------------------------------------------------------------------------------------- smallest period

alter table duly.tenants add column least_period interval check (least_period >= interval '1 second');   -- null: no limit but a second

------------------------------------------------------------------------------------------------------------------- calendars

-- What a calendar was while some of its jobs are still timed by that, the newest first; null: all of them know what it is.
alter table duly.calendars add column earlier jsonb;

----------------------------------------------------------------------------------------------------------- changes of jobs

-- What was done to definitions, for those who listen, by the transaction that did it; kept for an hour or so.
create table duly.job_changes (
    xid          xid8        not null default pg_current_xact_id(),
    number       bigint      generated always as identity,
    tenant       integer     not null,
    job_id       uuid        not null,
    generation   integer     not null,
    change       text        not null check (change in ('made', 'edited', 'paused', 'resumed', 'completed', 'cancelled')),
    name         text,
    queue        text        not null,
    handler      text        not null,
    changed_at   timestamptz not null
);
create index job_changes_by_transaction on duly.job_changes (xid, number);
create index job_changes_by_time on duly.job_changes (changed_at);
