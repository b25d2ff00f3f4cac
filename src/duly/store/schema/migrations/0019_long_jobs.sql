-- Long jobs: progress in what is done and in all, the size of a checkpoint, and subtasks.
-- docs/decisions/0026-long-jobs.md says why.

-------------------------------------------------------------------------------------------------------------- progress

-- A process of the version before writes `fraction` and `message`; we write the others and clear those two. So whichever of the two
-- kinds is there is the last word.
alter table duly.progress
    add column done  double precision,
    add column total double precision,
    add column note  text;

----------------------------------------------------------------------------------------------------------- checkpoints

-- As it was sent: what is stored is written anew by the database, with other spaces.
alter table duly.checkpoints add column bytes integer;

-------------------------------------------------------------------------------------------------------------- subtasks

-- Which run asked for which. The mark in a run's options says it too, and moves with the run; this is the way from the parent. A
-- table of its own, so that a run without a parent pays nothing.
create table duly.subtasks (
    parent       uuid        not null,
    run_id       uuid        not null,
    tenant       integer     not null,
    noted_at     timestamptz not null,
    primary key (parent, run_id)
);
create index subtasks_by_time on duly.subtasks (noted_at);
alter table duly.subtasks enable row level security;
create policy of_its_tenant on duly.subtasks for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.subtasks to duly_api;
