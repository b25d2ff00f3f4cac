-- The account of what calendars leave out begins, for each job, where its timing does.
-- It needs nothing of the migrations just before it, and takes nothing from them.

alter table duly.jobs add column timed_at timestamptz;  -- since when its occurrences are what they are; null: since it was made

create index backfills_of_tenant on duly.backfills (tenant, asked_at, backfill_id);

-- What the definitions of jobs were before they were changed, the last hundred of each. What stands is in jobs.
create table duly.job_versions (
    job_id       uuid        not null,
    generation   integer     not null,
    tenant       integer     not null,
    made_at      timestamptz not null,
    replaced_at  timestamptz not null,
    name         text,
    owner        text        not null,
    source       text,
    queue        text        not null,
    handler      text        not null,
    priority     smallint    not null,
    every_seconds integer,
    anchor_at    timestamptz,
    schedule     jsonb,
    payload      jsonb,                                 -- null: it is, or was, among the payloads
    options      jsonb,
    primary key (job_id, generation)
);
alter table duly.job_versions enable row level security;
create policy of_its_tenant on duly.job_versions for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.job_versions to duly_api;
