-- Time zone data: which version of it the pending fires are of, and how they are brought to another one.
-- docs/decisions/0012-time-zone-data.md says why.

alter table duly.schedulers add column tzdb text;      -- null: an older program, which does not say

-- The version that the pending fires are of. It decides until every live scheduler reports another one.
create table duly.zone_data (
    is_only      boolean     primary key default true check (is_only),
    version      text        not null,
    rules        bytea       not null,                  -- of every zone, so that the next version can say what has changed
    changed      text[],                                -- zones whose schedules are timed anew; null: what they were timed by is not known
    before       bytea,                                 -- the rules of these that a fire not yet timed anew is of
    adopted_at   timestamptz not null,
    after        uuid,                                  -- schedules up to this one are timed anew
    waits_for    xid8,                                  -- transactions up to this one may have timed a schedule by the version before
    is_last_pass boolean     not null default false,
    settled_at   timestamptz                            -- all are
);

alter table duly.jobs add column tzdb text;            -- set where another version than the one in force has timed the next fire
create index jobs_timed_otherwise on duly.jobs (job_id) where tzdb is not null and state in ('active', 'paused');

-- Next fires that new time zone data has moved by more than a minute, for the owners of their jobs.
create table duly.zone_moves (
    job_id       uuid        not null,
    tenant       integer     not null,
    tzdb         text        not null,
    was_at       timestamptz not null,
    next_at      timestamptz,                           -- null: nothing is left
    moved_at     timestamptz not null
);
create index zone_moves_by_moment on duly.zone_moves (moved_at);
create index zone_moves_by_job on duly.zone_moves (job_id, moved_at);

alter table duly.backfills add column places integer not null default 1 check (places > 0);     -- how many of its runs may be under way at once
