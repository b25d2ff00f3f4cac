-- Replay a workflow: what of it was not done is set back, and done again.

-- Do a node and those behind it again. What is covered was found before the lock; where nodes have been added since, it is found anew. A dry
-- run asks the same under the same lock, and changes nothing.
create or replace function duly.replay_workflow(p_tenant integer, p_workflow_id uuid, p_node text, p_covered text[], p_count integer, p_is_dry boolean)
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_flow duly.workflows;
    v_name text;
begin
    perform duly.must_be_ours(p_tenant);
    select * into v_flow from duly.workflows where workflow_id = p_workflow_id and tenant = p_tenant for no key update;
    if not found or v_flow.nodes <> p_count then
        return 'again';
    elsif v_flow.state = 'cancelling' then
        return 'it is being cancelled; try again when it has ended';
    end if;
    select name into v_name from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (p_covered) and state = 'ready' limit 1;
    if v_name is null then                             -- An item of a map that is covered goes with it.
        select item.name into v_name from duly.workflow_nodes as item where item.workflow_id = p_workflow_id and item.item_of = any (p_covered)
           and item.state = 'ready' and item.item_of is distinct from (
               select first.item_of from duly.workflow_nodes as first where first.workflow_id = p_workflow_id and first.name = p_node) limit 1;
    end if;
    if v_name is not null then
        return format('node %s is under way; cancel its run, or wait for it', quote_literal(v_name));
    elsif exists (select from duly.workflow_nodes where workflow_id = p_workflow_id and name = p_node and state = 'waiting') then
        return format('node %s has not run yet', quote_literal(p_node));
    elsif p_is_dry then
        return 'replayable';
    elsif exists (select from duly.workflow_nodes as node join duly.dead on dead.run_id = node.run_id where node.workflow_id = p_workflow_id and node.name = p_node)
          and not exists (select from duly.dead where run_id = duly.node_run_id(p_workflow_id, p_node) for update skip locked)
    then
        return 'again';                                -- Somebody replays its run at this moment, and waits for the workflow.
    end if;
    perform duly.set_back(p_workflow_id, p_node, p_covered, true, duly.clock_now());
    return 'replayed';
end $$;

-- Do again what of a workflow was not done, and what comes behind: nodes that failed, expired or were cancelled, where nothing that waits
-- for that has succeeded. False: of some of them somebody replays, or discards, the dead run at this moment.
create or replace function duly.redo(p_workflow_id uuid, p_now timestamptz) returns boolean
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_undone  text[];
    v_covered text[];
    v_first   record;
    v_all     boolean := true;
begin
    v_undone := array(
        select node.name from duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.state in ('failed', 'expired', 'cancelled')
           and not exists (select from duly.workflow_edges as edge
                             join duly.workflow_nodes as child on child.workflow_id = p_workflow_id and child.name = edge.child and child.state = 'succeeded'
                            where edge.workflow_id = p_workflow_id and edge.parent = node.name and edge.on_end <> 'success'));
    for v_first in                                     -- Nodes behind another of them are done with that one; items, by their map.
        with recursive behind as (
            select edge.child as name from duly.workflow_edges as edge where edge.workflow_id = p_workflow_id and edge.parent = any (v_undone)
            union select edge.child from behind join duly.workflow_edges as edge on edge.workflow_id = p_workflow_id and edge.parent = behind.name)
        select node.name, node.run_id from duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.name = any (v_undone) and not exists (select from behind where behind.name = node.name)
           and (node.item_of is null or node.item_of = any (v_undone))
         order by node.number, node.name
    loop
        if exists (select from duly.dead where run_id = v_first.run_id)
           and not exists (select from duly.dead where run_id = v_first.run_id for update skip locked)
        then
            v_all := false;
            continue;
        end if;
        with recursive covered as (
            select v_first.name as name
            union select edge.child from covered join duly.workflow_edges as edge on edge.workflow_id = p_workflow_id and edge.parent = covered.name)
        select array_agg(name) into v_covered from covered;
        perform duly.set_back(p_workflow_id, v_first.name, v_covered, true, p_now);
    end loop;
    return v_all;
end $$;

-- Set nodes back to where they wait, under their workflow's lock, and create their rows; those under way are left. The first of them
-- runs whatever its edges said; without p_make its run is on its way already. The run that waited for the workflow's end waits again.
create or replace function duly.set_back(p_workflow_id uuid, p_first text, p_covered text[], p_make boolean, p_now timestamptz) returns void
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_first duly.workflow_nodes;
    v_names text[];
    v_ended text[];
    v_items text[];
    v_dead  uuid[];
    v_left  text[];
    v_life  integer;
begin
    select * into strict v_first from duly.workflow_nodes where workflow_id = p_workflow_id and name = p_first;
    -- Items go with their map, except where one of them is where it begins: those that died, and those that wait in a paused workflow.
    v_items := array(select name from duly.workflow_nodes where workflow_id = p_workflow_id and item_of = any (p_covered) and item_of is distinct from v_first.item_of);
    with buried as (
        delete from duly.dead using duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.name = any (v_items) and dead.run_id = node.run_id
        returning dead.run_id, dead.job_id, dead.scheduled_at, dead.due_at, dead.tenant, dead.attempt, dead.queue, dead.handler, dead.options),
    waiting as (
        delete from duly.blocked using duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.name = any (v_items) and node.state = 'waiting' and blocked.run_id = node.run_id
           and blocked.waits_for = 'workflow' and blocked.key = p_workflow_id::text
        returning blocked.run_id, blocked.job_id, blocked.scheduled_at, blocked.due_at, blocked.tenant, blocked.attempt, blocked.queue,
                  blocked.handler, blocked.options),
    removed as (select * from buried union all select * from waiting)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, metadata)
    select run_id, job_id, scheduled_at, due_at, p_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, 'its map is replayed',
           duly.metadata_of(options - array['node', 'callbacks'])
      from removed;
    update duly.workflow_nodes as map set item_attempts = coalesce(map.item_attempts, '{}') || (
               select jsonb_object_agg(item.name, item.last_attempt) from duly.workflow_nodes as item
                where item.workflow_id = p_workflow_id and item.item_of = map.name and item.name = any (v_items))
     where map.workflow_id = p_workflow_id and map.name = any (array(
               select item_of from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (v_items)));
    delete from duly.workflow_edges where workflow_id = p_workflow_id and parent = any (v_items);
    delete from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (v_items);
    -- A dead run that somebody else replays at this moment, or that this transaction has replayed too, is left: its own rising sees to it.
    -- Waiting for its holder would be a deadlock: the workflow is what they wait for.
    v_dead := array(select dead.run_id from duly.workflow_nodes as node join duly.dead on dead.run_id = node.run_id
                     where node.workflow_id = p_workflow_id and node.name = any (p_covered) and node.state = 'failed' for update of dead skip locked);
    v_left := array(select name from duly.workflow_nodes as node
                     where node.workflow_id = p_workflow_id and node.name = any (p_covered) and node.name <> p_first
                       and (node.state = 'ready'
                            or (node.state = 'failed' and node.run_id <> all (v_dead)
                                and (exists (select from duly.dead where dead.run_id = node.run_id) or exists (select from duly.ready where ready.run_id = node.run_id)
                                     or exists (select from duly.timers where timers.run_id = node.run_id)))));
    v_names := array(select name from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (p_covered) and name <> all (v_left));
    v_ended := array(select name from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (v_names)
                        and state not in ('waiting', 'ready') and (p_make or name <> p_first));
    update duly.workflow_nodes as node
       set state = 'waiting', result = null, reason = null, ended_at = null, released_at = null, items = case when node.name = v_first.item_of then node.items end,
           -- A map that has items has begun, though it has not ended: its items go on counting their attempts.
           replays = node.replays + (node.name = any (v_ended) or node.name = p_first
                                     or (node.items is not null and node.name is distinct from v_first.item_of))::integer,
           waits = (select count(*) from duly.workflow_edges as edge
                      join duly.workflow_nodes as parent on parent.workflow_id = p_workflow_id and parent.name = edge.parent
                     where edge.workflow_id = p_workflow_id and edge.child = node.name
                       and (parent.name = any (v_names) or parent.state in ('waiting', 'ready'))),
           unmet = (select count(*) from duly.workflow_edges as edge
                      join duly.workflow_nodes as parent on parent.workflow_id = p_workflow_id and parent.name = edge.parent
                     where edge.workflow_id = p_workflow_id and edge.child = node.name and node.name <> p_first
                       and parent.name <> all (v_names) and parent.state not in ('waiting', 'ready') and not duly.holds_for(edge.on_end, parent.state))
     where node.workflow_id = p_workflow_id and node.name = any (v_names);
    -- A dead run is replayed as it is, with its edits; the rest is created again.
    with risen as (
        delete from duly.dead using duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.name = any (v_ended) and dead.run_id = node.run_id and dead.run_id = any (v_dead)
        returning dead.*),
    bygones as (delete from duly.signals using risen where signals.run_id = risen.run_id)
    insert into duly.blocked ({run}, waits_for, key, blocked_at)
    select {run: due_at = greatest(p_now, scheduled_at), losses = 0, suspect = false,
           options = (options - array['since', 'snoozes', 'probes']) || jsonb_build_object('replays', replays + 1, 'attempts_before', attempt)},
           'workflow', p_workflow_id::text, p_now
      from risen
    on conflict do nothing;
    delete from duly.ended_nodes where recorded_in = pg_current_xact_id() and workflow_id = p_workflow_id and node = any (v_ended || v_items)
       and became = 'risen';                           -- That was us.
    perform duly.create_rows(p_workflow_id, v_ended, p_now);
    v_life := (select duly.reopen_owner(flow.run_id) from duly.workflows as flow
                where flow.workflow_id = p_workflow_id and flow.ended_at is not null and flow.run_id is not null);
    update duly.workflows set
           state = case when ended_at is null then state else 'running' end, ended_at = null, replays = replays + 1,
           reason = case when ended_at is null then reason end,
           run_id = case when ended_at is null or v_life is not null then run_id end,      -- One that is over for good waits for nothing.
           run_life = coalesce(v_life, run_life),
           nodes = (select count(*) from duly.workflow_nodes as node where node.workflow_id = p_workflow_id),
           open_nodes = (select count(*) from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state in ('waiting', 'ready'))
     where workflow_id = p_workflow_id;
    if exists (select from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (v_left) and state = 'failed') then
        perform duly.add_workflow_task(p_workflow_id, 'look', p_now + interval '1 second');    -- In case that it does not rise after all.
    end if;
    if p_make then
        perform duly.open_nodes(array[p_workflow_id], array[p_first], p_now);
    else
        update duly.workflow_nodes set state = 'ready', waits = 0, unmet = 0, released_at = p_now where workflow_id = p_workflow_id and name = p_first;
    end if;
end $$;

-- Let the run that waits for a workflow live again, whose end has come undone, and say which life of it that is; nothing: it is over for
-- good. A dead one whose row somebody has locked is replayed, or discarded, by that one: waiting for it under the workflow's lock
-- could be a deadlock.
create or replace function duly.reopen_owner(p_run_id uuid) returns integer
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_life integer := (select replays + 1 from duly.dead where run_id = p_run_id);
begin
    if v_life is not null then
        if exists (select from duly.dead where run_id = p_run_id for update skip locked) then
            perform duly.replay(array[p_run_id], null, interval '5 seconds');
        end if;
        return v_life;
    end if;
    return (select coalesce((options->>'replays')::integer, 0) from (
                          select options from duly.timers where timers.run_id = p_run_id
                union all select options from duly.blocked where blocked.run_id = p_run_id
                union all select options from duly.ready where ready.run_id = p_run_id
                union all select options from duly.leased where leased.run_id = p_run_id) as live limit 1);
end $$;

grant execute on function duly.replay_workflow to duly_api;
