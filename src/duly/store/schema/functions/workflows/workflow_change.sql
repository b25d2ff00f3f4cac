-- Changes of a workflow: cancel, pause and resume.

-- Cancel a workflow, and say who of two has done it: the one whose update found it running or paused. What is released between the first
-- step and the lock is found by the workflow task.
create or replace function duly.cancel_workflow(p_tenant integer, p_workflow_id uuid, p_reason text, out state text, out is_new boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    perform duly.must_be_ours(p_tenant);
    is_new := false;
    state := (select flow.state from duly.workflows as flow where flow.workflow_id = p_workflow_id and flow.tenant = p_tenant);
    if state is null or state not in ('running', 'paused', 'cancelling') then
        return;
    end if;
    perform duly.stop_nodes(p_workflow_id, p_reason);
    perform from duly.workflows as flow where flow.workflow_id = p_workflow_id for no key update;
    update duly.workflows as flow set state = 'cancelling', reason = p_reason where flow.workflow_id = p_workflow_id and flow.state in ('running', 'paused');
    is_new := found;
    perform duly.end_nodes(array(select run_id from duly.workflow_nodes as node
                                     where node.workflow_id = p_workflow_id and node.state in ('waiting', 'ready')), 'cancelled', p_reason, v_now)
       from duly.workflows as flow where flow.workflow_id = p_workflow_id and flow.state = 'cancelling';
    perform duly.add_workflow_task(p_workflow_id, 'cancel', v_now);
    set constraints duly.workflows_advanced immediate;    -- So that the answer is what has come of it.
    set constraints duly.workflows_advanced deferred;
    state := (select flow.state from duly.workflows as flow where flow.workflow_id = p_workflow_id);
end $$;

-- End what of a workflow stands in boxes other than under the workflow itself, or holds a slot at another, and ask what runs to stop. Its lock
-- is not held: concurrency keys are locked.
create or replace function duly.stop_nodes(p_workflow_id uuid, p_reason text) returns void
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_run_ids uuid[] := array(
        select run_id from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state in ('waiting', 'ready')
           and not exists (select from duly.blocked where blocked.run_id = node.run_id and blocked.waits_for = 'workflow' and blocked.key = p_workflow_id::text
                              and not duly.holds_slot(blocked.options))
         order by run_id);
begin
    perform duly.cancel(v_run_ids, p_reason);
    perform duly.cancel_awaited(v_run_ids, p_reason);
    perform duly.signal(v_run_ids, 'cancel');
end $$;

-- Pause a workflow, and say who of two has done it: the one whose update found it running. While anything of it is under way, a workflow task
-- takes back again and again what has come up since: a run that a worker hands back would start anew.
create or replace function duly.pause_workflow(p_tenant integer, p_workflow_id uuid, out state text, out is_new boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    perform duly.must_be_ours(p_tenant);
    is_new := false;
    state := (select flow.state from duly.workflows as flow where flow.workflow_id = p_workflow_id and flow.tenant = p_tenant);
    if state is null or state not in ('running', 'paused') then
        return;
    end if;
    perform duly.take_back_nodes(p_workflow_id);
    select flow.state into state from duly.workflows as flow where flow.workflow_id = p_workflow_id for no key update;
    if state not in ('running', 'paused') then
        return;
    end if;
    update duly.workflows as flow set state = 'paused' where flow.workflow_id = p_workflow_id and flow.state = 'running';
    is_new := found;
    state := 'paused';
    perform duly.await_again(p_workflow_id);
    if exists (select from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state = 'ready') then
        perform duly.add_workflow_task(p_workflow_id, 'withdraw', v_now + interval '0.5 seconds');
    end if;
end $$;

-- Take back what of a workflow has not started: it waits under the workflow again. Its lock is not held: concurrency keys are locked.
create or replace function duly.take_back_nodes(p_workflow_id uuid) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_run_ids uuid[] := array(select run_id from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state = 'ready' order by run_id);
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with staged as (
        delete from duly.ready where ctid = any (array(select ctid from duly.ready where run_id = any (v_run_ids) for update skip locked))
        returning {run}),
    due as (
        delete from duly.timers where ctid = any (array(
            select ctid from duly.timers where run_id = any (v_run_ids) and run_id is not null for update skip locked))
        returning {run}),
    at_concurrency_key as (
        delete from duly.blocked where ctid = any (array(
            select ctid from duly.blocked where run_id = any (v_run_ids) and (waits_for, key) <> ('workflow', p_workflow_id::text) for update skip locked))
        returning {run}),
    back as (
        insert into duly.blocked ({run}, waits_for, key, blocked_at)
        select taken.*, 'workflow', p_workflow_id::text, v_now from (select * from staged union all select * from due union all select * from at_concurrency_key) as taken)
    select array_agg(job_id), array_agg(tenant), array_agg(jsonb_build_object('concurrency', options->'concurrency'))
      into v_job_ids, v_tenants, v_options from staged where options ? 'concurrency' and not duly.holds_slot(options);
    perform duly.leave(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
end $$;

-- Take back once more what of a paused workflow has come up since, as long as anything of it is under way. The state is read under the lock, so
-- that one that was resumed meanwhile goes on.
create or replace function duly.withdraw_nodes(p_workflow_id uuid) returns void
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_state text;
begin
    perform duly.take_back_nodes(p_workflow_id);        -- Before the workflow's lock: concurrency keys are locked.
    select state into v_state from duly.workflows where workflow_id = p_workflow_id for no key update;
    if v_state = 'paused' then
        perform duly.await_again(p_workflow_id);
        if exists (select from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state = 'ready') then
            perform duly.add_workflow_task(p_workflow_id, 'withdraw', v_now + interval '0.5 seconds');
        end if;
    elsif v_state = 'running' then
        perform duly.look(p_workflow_id, v_now);        -- Runs that were just taken back are released again.
    end if;
end $$;

-- Let nodes wait that were released and whose rows stand under their workflow, under its lock. A parent that was replayed
-- meanwhile is open once more, and waited for like any other.
create or replace function duly.await_again(p_workflow_id uuid) returns void
language plpgsql {planned by index, by loop} as $$
begin
    update duly.workflow_nodes as node
       set state = 'waiting', released_at = null,
           waits = (select count(*) from duly.workflow_edges as edge
                      join duly.workflow_nodes as parent on parent.workflow_id = p_workflow_id and parent.name = edge.parent
                     where edge.workflow_id = p_workflow_id and edge.child = node.name and parent.state in ('waiting', 'ready'))
     where node.workflow_id = p_workflow_id and node.state = 'ready'
       and exists (select from duly.blocked where blocked.run_id = node.run_id and blocked.waits_for = 'workflow' and blocked.key = p_workflow_id::text);
end $$;

create or replace function duly.resume_workflow(p_tenant integer, p_workflow_id uuid, out state text, out is_new boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    select flow.state into state from duly.workflows as flow where flow.workflow_id = p_workflow_id and flow.tenant = p_tenant for no key update;
    is_new := coalesce(state = 'paused', false);
    if is_new then
        update duly.workflows as flow set state = 'running' where flow.workflow_id = p_workflow_id;
        perform duly.look(p_workflow_id, duly.clock_now());
        state := 'running';
    end if;
end $$;

-- See to all nodes of a workflow whose parents have ended, under its lock.
create or replace function duly.look(p_workflow_id uuid, p_now timestamptz) returns void
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_names text[];
begin
    -- One that was released, and whose row somebody held, waits once more.
    perform duly.await_again(p_workflow_id);
    v_names := array(select name from duly.workflow_nodes where workflow_id = p_workflow_id and state = 'waiting' and waits = 0 order by number, name);
    if cardinality(v_names) > 0 then
        perform duly.open_nodes(array_fill(p_workflow_id, array[cardinality(v_names)]), v_names, p_now);
    end if;
end $$;

create or replace function duly.record_changed_workflow() returns trigger language plpgsql as $$
begin
    insert into duly.workflow_changes (tenant, workflow_id, change, name, replays, changed_at)
    values (new.tenant, new.workflow_id,
            case when new.state <> 'running' then new.state when old.state = 'paused' then 'resumed' else 'replayed' end,
            new.name, new.replays, duly.clock_now());
    return null;
end $$;

-- Give the changes that a snapshot could not see yet, of some tenants, in the order of their transactions.
create or replace function duly.workflow_changes_since(p_seen pg_snapshot, p_tenants integer[], p_limit integer) returns setof duly.workflow_changes
language plpgsql stable {planned by index, in order} as $$
begin
    return query
    select * from duly.workflow_changes as done
     where done.xid >= pg_snapshot_xmin(p_seen) and not pg_visible_in_snapshot(done.xid, p_seen) and done.tenant = any (p_tenants)
       and duly.is_of_this_cluster(done.xid, done.xmin)
     order by done.xid, done.number limit p_limit;
end $$;

grant execute on function duly.cancel_workflow, duly.pause_workflow, duly.resume_workflow to duly_api;
