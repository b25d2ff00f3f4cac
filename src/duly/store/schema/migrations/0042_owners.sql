-- A run whose target is a workflow goes with it when that is replayed. docs/decisions/0030-workflows.md says why.

-- For which life of its run a workflow runs, or has ended: how often that had been replayed. What ended in an earlier one is taken up
-- again by the next, instead of another workflow.
alter table duly.workflows add column run_life integer not null default 0;

update duly.workflows set run_life = coalesce(
    (select replays from duly.dead where dead.run_id = workflows.run_id),
    (select (options->>'replays')::integer from (select run_id, options from duly.timers union all select run_id, options from duly.blocked
        union all select run_id, options from duly.ready union all select run_id, options from duly.leased) as live where live.run_id = workflows.run_id), 0)
 where run_id is not null;
