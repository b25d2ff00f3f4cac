-- Callbacks: runs that stay open until their receiver settles them, and who is told of a run's end.
-- docs/decisions/0025-callbacks.md says why.

----------------------------------------------------------------------------------------------------------- the receiver

-- What is known of such a run beside its lease. A row may outlive it until its deadline, and says nothing then.
create table duly.awaited (
    run_id       uuid        primary key,
    fence        bigint      not null,
    worker_id    uuid        not null,                  -- who sent the webhook
    started_at   timestamptz,
    deadline_at  timestamptz not null
) with (fillfactor = 50);
create index awaited_by_deadline on duly.awaited (deadline_at);

------------------------------------------------------------------------------------------------------------ who is told

-- Jobs that are to be triggered with the outcome of a run. The id is the key, so that each is told once.
create table duly.tellings (
    telling_id   uuid        primary key,
    tenant       integer     not null,
    job_id       uuid        not null,
    event        jsonb       not null,
    made_at      timestamptz not null
);

-------------------------------------------------------------------------------------------------------------- the wall

alter table duly.awaited enable row level security;
alter table duly.tellings enable row level security;
create policy of_its_run on duly.awaited for select to duly_api using (duly.owns(run_id));
grant select on duly.awaited to duly_api;
