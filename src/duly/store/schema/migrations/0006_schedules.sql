-- Schedules of every kind: cohorts, jitter, misfires, overlap, the backfill lane, and what people do to a schedule.
-- docs/decisions/0010-schedules.md says why.

alter table duly.jobs
    alter column every_seconds drop not null,
    alter column anchor_at drop not null,
    add column schedule     jsonb,                      -- as compiled: triggers in canonical form, H resolved; null: every_seconds says all
    add column cohort       bigint,                     -- jobs of one cohort fire at the same moments, for the same reasons
    add column owner        text    not null default 'api' check (owner in ('api', 'code')),
    add column source       text,                       -- of an owner 'code': the app that declares it
    add column definition   bytea,                      -- hash of what was asked for, to see whether an upsert changes anything
    add column failures     integer not null default 0, -- runs in a row that failed for good, counted where pause_on_failure asks
    add column paused_at    timestamptz,
    add column pause_reason text;
create index jobs_by_cohort on duly.jobs (cohort) where cohort is not null;
create index jobs_by_source on duly.jobs (tenant, source) where source is not null;

-- A next fire carries all that staging it needs. Null is the common case, and costs nothing.
alter table duly.timers
    drop constraint timers_check1,
    add column cohort        bigint,
    add column last_run_id   uuid,                      -- the last run made for this job: while it is active, the next one overlaps
    add column overlap       text,                      -- null: skip
    add column jitter        text,                      -- null: none; else one delay per job, or per occurrence
    add column runs_left     integer check (runs_left > 0),
    add column grace_seconds integer,                   -- null: 60
    add constraint timers_next_fires check ((run_id is null) = (every_seconds is not null or cohort is not null)),
    add constraint timers_overlap check (overlap in ('allow', 'gate', 'cancel_running', 'after_end')),
    add constraint timers_jitter check (jitter in ('job', 'occurrence'));

create table duly.calendars (
    tenant       integer     not null,
    name         text        not null,
    definition   jsonb       not null,
    updated_at   timestamptz not null,
    primary key (tenant, name)
);

-- The backfill lane: stretches of occurrences that are made again, or were missed and are made up for, at a rate.
create table duly.backfills (
    backfill_id  uuid        primary key,
    job_id       uuid        not null,
    tenant       integer     not null,
    shard        smallint    not null,
    origin       text        not null,                  -- 'schedule' for missed occurrences, else the backfill's own id
    state        text        not null default 'active' check (state in ('active', 'done', 'cancelled')),
    from_at      timestamptz not null,
    to_at        timestamptz not null,
    cursor_at    timestamptz not null,                  -- the next occurrence to be made is the first at or after this
    rate         double precision not null check (rate > 0),
    total        integer     not null,
    made         integer     not null default 0,
    due_at       timestamptz not null,                  -- nothing is made before this
    previous_scheduled_at timestamptz,                  -- the occurrence before the next one to be made
    asked_at     timestamptz not null,
    schedule     jsonb,                                 -- the rule as it was when this was asked for: an edit makes no other past
    calendars    jsonb,                                 -- and the calendars it names, as they were
    every_seconds integer,
    anchor_at    timestamptz,
    check (to_at > from_at)
) with (fillfactor = 50);
create index backfills_active on duly.backfills (shard, due_at) where state = 'active';
create index backfills_of_job on duly.backfills (job_id, asked_at, backfill_id) where state = 'active';
create index backfills_by_job on duly.backfills (job_id, asked_at);
