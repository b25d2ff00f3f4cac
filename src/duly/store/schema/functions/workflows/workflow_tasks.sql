-- Workflow tasks: done by maintenance, outside of a workflow's lock; and the removal of old workflows.

create or replace function duly.add_workflow_task(p_workflow_id uuid, p_kind text, p_due_at timestamptz) returns void language sql as $$
    insert into duly.workflow_tasks (workflow_id, kind, due_at) values (p_workflow_id, p_kind, p_due_at)
$$;

-- Return whether a workflow task is due. One is recorded a second ahead at most, and one that has failed as far as its tries say: what lies further
-- ahead is of the time before a step back of the clock, as a check of dependents is.
create or replace function duly.is_workflow_task_due(p_due_at timestamptz, p_tries smallint, p_now timestamptz) returns boolean
language sql immutable parallel safe as $$
    select p_due_at <= p_now or p_due_at > p_now + least(power(2, greatest(p_tries - 1, 0)), 60) * interval '1 second'
$$;

-- Do one workflow task that is due: done, or put off because it failed. Without one, stop workflows that no caller waits for any more, and say whether
-- there is something to settle, which is for a process that can: settle, or none. One statement, because it runs twice a second for ever.
create or replace function duly.run_workflow_task() returns text
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_task duly.workflow_tasks;
begin
    delete from duly.workflow_tasks where task_id = (
        select task_id from duly.workflow_tasks where duly.is_workflow_task_due(due_at, tries, v_now) and kind <> 'settle' order by task_id limit 1 for update skip locked)
    returning * into v_task;
    if not found then
        return case when duly.stop_orphans() > 0 then 'done'
                    when exists (select from duly.workflow_tasks where kind = 'settle' and duly.is_workflow_task_due(due_at, tries, v_now)) then 'settle' else 'none' end;
    end if;
    begin
        perform duly.do_workflow_task(v_task, v_now);
        set constraints duly.workflows_advanced immediate;                 -- So that what follows from it fails here, and not at the commit.
        set constraints duly.workflows_advanced deferred;
    exception when others then                         -- It must not stand before all others: it comes again later, behind them.
        raise warning 'task % of workflow % is put off: %', v_task.kind, v_task.workflow_id, sqlerrm;
        insert into duly.workflow_tasks (workflow_id, kind, due_at, leaving, tries)
        values (v_task.workflow_id, v_task.kind, v_now + least(power(2, v_task.tries), 60) * interval '1 second', v_task.leaving,
                least(v_task.tries + 1, 30));
    end;
    return 'done';
end $$;

-- Do a workflow task, where it is still to be done.
create or replace function duly.do_workflow_task(p_task duly.workflow_tasks, p_now timestamptz) returns void
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_flow duly.workflows;
begin
    select * into v_flow from duly.workflows where workflow_id = p_task.workflow_id;
    if p_task.kind = 'leave' then
        perform duly.leave(array[(p_task.leaving->>'job_id')::uuid], array[(p_task.leaving->>'tenant')::integer],
                              array[p_task.leaving->'options'], null, p_now);
    elsif p_task.kind = 'withdraw' and v_flow.state = 'paused' then
        perform duly.withdraw_nodes(v_flow.workflow_id);
    elsif p_task.kind = 'cancel' and v_flow.state = 'cancelling' then
        perform duly.stop_nodes(v_flow.workflow_id, coalesce(v_flow.reason, 'cancelled'));
        perform from duly.workflows where workflow_id = v_flow.workflow_id for no key update;
        perform duly.end_nodes(array(select run_id from duly.workflow_nodes as node
                                         where node.workflow_id = v_flow.workflow_id and node.state in ('waiting', 'ready')),
                                  'cancelled', coalesce(v_flow.reason, 'cancelled'), p_now);
        perform duly.add_workflow_task(v_flow.workflow_id, 'cancel', p_now + interval '1 second');     -- Until it has ended.
    elsif p_task.kind = 'look' and v_flow.workflow_id is not null then
        perform from duly.workflows where workflow_id = v_flow.workflow_id for no key update;
        perform duly.look(v_flow.workflow_id, p_now);
    end if;
end $$;

-- Workflows whose run, which they are the target of, was cancelled or given up: they notify nothing, and stop. What is about to wait again
-- is left, and what was discarded meanwhile stops nothing.
create or replace function duly.stop_orphans() returns integer
language plpgsql {planned by index, by loop, in order} as $$
declare
    v_flow    record;
    v_stopped integer := 0;
begin
    for v_flow in
        select flow.tenant, flow.workflow_id,
               exists (select from duly.attempts where attempts.run_id = flow.run_id and attempts.reason = 'discarded' and attempts.became = 'cancelled') as is_alone
          from duly.workflows as flow
         where flow.run_id is not null and flow.ended_at is null and flow.state <> 'cancelling'
           and not exists (select from duly.leased where leased.run_id = flow.run_id) and not exists (select from duly.ready where ready.run_id = flow.run_id)
           and not exists (select from duly.timers where timers.run_id = flow.run_id) and not exists (select from duly.blocked where blocked.run_id = flow.run_id)
           and not exists (select from duly.dead where dead.run_id = flow.run_id and dead.replays < flow.run_life)     -- It is about to rise.
           and exists (select from duly.attempts where attempts.run_id = flow.run_id and attempts.became in ('cancelled', 'dead', 'expired'))
         order by flow.workflow_id limit 1             -- With a second one, its concurrency keys would be locked after the first workflow.
    loop
        if v_flow.is_alone then                        -- Discarded as the workflow was replayed: that goes on, and notifies nothing.
            update duly.workflows set run_id = null where workflows.workflow_id = v_flow.workflow_id and workflows.ended_at is null;
        else
            perform duly.cancel_workflow(v_flow.tenant, v_flow.workflow_id, 'the run whose target it is has ended');
        end if;
        v_stopped := v_stopped + 1;
    end loop;
    return v_stopped;
end $$;

-- Forget workflows that ended long ago, with their nodes and edges, so many at a time.
create or replace function duly.forget_workflows(p_kept interval, p_limit integer) returns integer
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_before timestamptz := duly.clock_now() - p_kept;
    v_removed   uuid[];
begin
    with removed as (
        delete from duly.workflows where workflow_id = any (array(
            select workflow_id from duly.workflows as flow where flow.ended_at < v_before
               and not exists (select from duly.workflow_nodes as node join duly.dead on dead.run_id = node.run_id
                                where node.workflow_id = flow.workflow_id and node.state = 'failed')      -- Somebody may replay it yet.
             order by flow.ended_at limit p_limit for update skip locked))
        returning workflow_id)
    select array_agg(workflow_id) into v_removed from removed;
    delete from duly.workflow_edges where workflow_id = any (v_removed);
    delete from duly.workflow_nodes where workflow_id = any (v_removed);
    return coalesce(cardinality(v_removed), 0);
end $$;
