-- What screens read, read from less; and what was done to workflows, for those who listen.

------------------------------------------------------------------------------------------------------------------- jobs

-- Of many that are paused, those that are because they kept failing. Only who counts failures pays for it.
create index jobs_failing on duly.jobs (tenant, job_id) where state = 'paused' and failures > 0;

-------------------------------------------------------------------------------------------------------------- workflows

-- What a run whose target is a workflow has started, also when that has ended.
create index workflows_by_run on duly.workflows (run_id, workflow_id) where run_id is not null;

--------------------------------------------------------------------------------------------------- changes of workflows

-- What was done to workflows, for those who listen, by the transaction that did it; kept for an hour or so. Their ends are read from themselves.
create table duly.workflow_changes (
    xid          xid8        not null default pg_current_xact_id(),
    number       bigint      generated always as identity,
    tenant       integer     not null,
    workflow_id  uuid        not null,
    change       text        not null check (change in ('paused', 'resumed', 'cancelling', 'replayed')),
    name         text        not null,
    replays      integer     not null,
    changed_at   timestamptz not null
);
create index workflow_changes_by_transaction on duly.workflow_changes (xid, number);
create index workflow_changes_by_time on duly.workflow_changes (changed_at);
