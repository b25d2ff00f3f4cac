-- The nodes of a workflow: named, created, released and ended. docs/decisions/0034-workflows-advance-at-commit.md says why.
--
-- Locks are taken in this order: rows of boxes, concurrency keys, workflows by id, rows under a workflow. So what holds a workflow
-- locks no concurrency key, and passes over rows under `&` that somebody else has locked.

-- The name of a node's run: the same for every replay. domain/workflows/workflow.py has no twin: nobody but the store needs it.
create or replace function duly.node_run_id(p_workflow_id uuid, p_node text) returns uuid language sql stable parallel safe as $$
    select duly.run_id(duly.created_at(p_workflow_id), p_workflow_id::text || '/' || p_node)
$$;

-- Return whether an edge holds, of a parent that has ended so. domain/workflows/workflow.py says the same.
create or replace function duly.holds_for(p_on text, p_state text) returns boolean language sql immutable parallel safe as $$
    select case p_on when 'success' then p_state = 'succeeded' when 'failure' then p_state in ('failed', 'expired', 'cancelled') else true end
$$;

-- The end of a workflow whose nodes have all ended. domain/workflows/workflow.py says the same. An item of a map is seen to by its map.
create or replace function duly.end_of_workflow(p_workflow_id uuid) returns text
language plpgsql stable {planned by index, by loop} as $$
begin
    return case when exists (
        select from duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.state in ('failed', 'expired', 'cancelled') and node.item_of is null
           and not exists (select from duly.workflow_edges as edge
                            where edge.workflow_id = node.workflow_id and edge.parent = node.name and edge.on_end <> 'success'))
        then 'failed' else 'succeeded' end;
end $$;

-- Create the rows of nodes, blocked under their workflow, from their definitions. Attempts go on where they ended.
create or replace function duly.create_rows(p_workflow_id uuid, p_names text[], p_now timestamptz) returns void
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
begin
    with requested as (
        select node.*, duly.created_at(p_workflow_id) as created_at, octet_length(node.payload::text) > 1024 as stored,
               case when node.replays > 0
                    then greatest(node.last_attempt, (select max(attempts.attempt) from duly.attempts where attempts.run_id = node.run_id)) else 0 end as attempt
          from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.name = any (p_names)),
    stored as (
        insert into duly.payloads (job_id, generation, body, stored_at) select run_id, 1, payload, p_now from requested where stored
        on conflict do nothing)
    insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                              queue, handler, payload, options, waits_for, key, blocked_at)
    select run_id, run_id, created_at, greatest(created_at, p_now), 1, tenant, attempt, priority, 0, false, stored, queue, handler, case when not stored then payload end,
           case when replays > 0 then options || jsonb_build_object('replays', replays, 'attempts_before', attempt) else options end,
           'workflow', p_workflow_id::text, p_now
      from requested
    on conflict do nothing;
end $$;

-- Put rows that wait under a workflow where they go on: into ready; or into timers, what is due later or has to enter a concurrency key or
-- keep to a rate, which is for stage to see to. Rows that somebody has locked stay. Returns those that went.
create or replace function duly.release_nodes(p_run_ids uuid[], p_now timestamptz, p_horizon interval default '5 seconds') returns uuid[]
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_removed uuid[];
begin
    with taken as (
        delete from duly.blocked where ctid = any (array(
            select ctid from duly.blocked where run_id = any (p_run_ids) and waits_for in ('workflow', 'dependency', 'recall') for update skip locked))
        returning *, greatest(p_now, blocked.due_at) as new_due_at),
    staged as (
        insert into duly.ready ({run})
        select {run: due_at = new_due_at}
          from taken where new_due_at <= p_now + p_horizon and not (duly.must_enter(options) or options ? 'rate')
        on conflict do nothing),
    later as (
        insert into duly.timers ({run}, shard)
        select {run: due_at = new_due_at}, duly.shard_of(job_id)
          from taken where new_due_at > p_now + p_horizon or duly.must_enter(options) or options ? 'rate'
        on conflict do nothing)
    select array_agg(run_id) into v_removed from taken;
    return coalesce(v_removed, '{}');
end $$;

-- End rows that wait under a workflow, with a record. Rows that somebody has locked stay. Returns those that went.
create or replace function duly.end_nodes(p_run_ids uuid[], p_outcome text, p_reason text, p_now timestamptz) returns uuid[]
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_removed uuid[];
begin
    with taken as (
        delete from duly.blocked where ctid = any (array(
            select ctid from duly.blocked where run_id = any (p_run_ids) and waits_for in ('workflow', 'dependency', 'recall') for update skip locked))
        returning *),
    unneeded as (delete from duly.checkpoints using taken where checkpoints.run_id = taken.run_id),
    leaving as (                                       -- A slot that is held is given back outside of the workflow's lock.
        insert into duly.workflow_tasks (workflow_id, kind, due_at, leaving)
        select (options->'node'->>0)::uuid, 'leave', p_now,
               jsonb_build_object('job_id', job_id, 'tenant', tenant, 'options', jsonb_build_object('concurrency', options->'concurrency'))
          from taken where duly.holds_slot(options)),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, metadata,
                                   generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, due_at, p_now, tenant, attempt, p_outcome::duly.outcome, p_outcome::duly.state, queue, handler, p_reason,
               duly.metadata_of(options), nullif(generation, 1), nullif(priority, 5), payload, nullif(payload_stored, false), duly.options_recorded(options, tenant)
          from taken)
    select array_agg(run_id) into v_removed from taken;
    return coalesce(v_removed, '{}');
end $$;

------------------------------------------------------------------------------------------------------------------- maps

-- Spread a map out: a node and a run for each item of its list. It waits for them then. A list that is none, or too long, is its end; that of
-- a node whose result is not kept is none.
create or replace function duly.spread(p_node duly.workflow_nodes, p_now timestamptz) returns boolean
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_list   jsonb;
    v_count  integer;
    v_nodes  integer;
    v_reason text;
begin
    select result #> array(select jsonb_array_elements_text(p_node.map->'path')), reason into v_list, v_reason
      from duly.workflow_nodes where workflow_id = p_node.workflow_id and name = p_node.map->>'node' and state = 'succeeded';
    if v_reason is not null then
        return duly.end_map(p_node.run_id, null, format('node %s has no result to hand on: %s', quote_literal(p_node.map->>'node'), v_reason), p_now);
    elsif coalesce(jsonb_typeof(v_list), 'none') <> 'array' then
        return duly.end_map(p_node.run_id, null, format('the result of node %s has no list at %s, but %s', quote_literal(p_node.map->>'node'),
                               coalesce(p_node.map->>'path', '[]'), coalesce(jsonb_typeof(v_list), 'nothing')), p_now);
    end if;
    v_count := jsonb_array_length(v_list);
    if v_count = 0 then
        return duly.end_map(p_node.run_id, '[]', null, p_now);
    end if;
    select nodes into v_nodes from duly.workflows where workflow_id = p_node.workflow_id;
    if v_nodes + v_count > 1000 then
        return duly.end_map(p_node.run_id, null,
                               format('%s items and %s nodes are more than 1000, which a workflow has at most', v_count, v_nodes), p_now);
    end if;
    with created as (
        insert into duly.workflow_nodes (workflow_id, name, number, tenant, run_id, state, waits, item_of, map, handler, queue, priority, payload, options,
                                         replays, released_at, last_attempt)
        select p_node.workflow_id, item.name, p_node.number, p_node.tenant, duly.node_run_id(p_node.workflow_id, item.name), 'ready', 0, p_node.name,
               jsonb_build_object('node', p_node.map->'node', 'path', coalesce(p_node.map->'path', '[]') || to_jsonb(item.number)),
               p_node.handler, p_node.queue, p_node.priority, p_node.payload,
               p_node.options || jsonb_build_object('node', jsonb_build_array(p_node.workflow_id, item.name)), p_node.replays, p_now,
               coalesce((p_node.item_attempts->>item.name)::integer, 0)
          from (select number, p_node.name || '[' || number || ']' as name from generate_series(0, v_count - 1) as number) as item
        returning *),
    hung as (
        insert into duly.workflow_edges (workflow_id, parent, child, tenant, on_end)
        select workflow_id, name, p_node.name, tenant, 'success' from created)
    update duly.workflow_nodes set items = v_count, waits = v_count where workflow_id = p_node.workflow_id and name = p_node.name;
    perform duly.create_rows(p_node.workflow_id, array(select name from duly.workflow_nodes
                                where workflow_id = p_node.workflow_id and item_of = p_node.name), p_now);
    perform duly.release_nodes(array(select run_id from duly.workflow_nodes where workflow_id = p_node.workflow_id and item_of = p_node.name), p_now);
    update duly.workflows set nodes = nodes + v_count, open_nodes = open_nodes + v_count where workflow_id = p_node.workflow_id;
    return true;
end $$;

-- A map whose items have all ended has their results, in order; or it has failed. Where the result of an item is not kept there is null in the
-- list, which is not handed on then.
create or replace function duly.gather_items(p_node duly.workflow_nodes, p_now timestamptz) returns boolean
language plpgsql {planned by index} as $$
declare
    v_result jsonb;
    v_reason text;
begin
    if p_node.unmet > 0 then
        v_reason := format('%s of %s items did not succeed', p_node.unmet, p_node.items);
    else
        select jsonb_agg(case when item.reason is null then coalesce(item.result, 'null') else 'null' end order by (item.map->'path'->>-1)::integer),
               (array_agg(format('of item %s, %s', item.name, item.reason) order by (item.map->'path'->>-1)::integer) filter (where item.reason is not null))[1]
          into v_result, v_reason
          from duly.workflow_nodes as item where item.workflow_id = p_node.workflow_id and item.item_of = p_node.name;
        if octet_length(v_result::text) > 1048576 then
            v_reason := format('the results of %s items have %s bytes; a node is handed at most 1048576', p_node.items, octet_length(v_result::text));
            v_result := null;
        end if;
    end if;
    return duly.end_map(p_node.run_id, v_result, v_reason, p_now);
end $$;

-- End a map: it has no run of its own, so its row goes and its end is recorded as that of a run. One that has a result has succeeded, and its
-- reason says that this is not whole. False: somebody has locked the row.
create or replace function duly.end_map(p_run_id uuid, p_result jsonb, p_reason text, p_now timestamptz) returns boolean
language plpgsql {planned by index, in order} as $$
#variable_conflict use_column
declare
    v_done boolean := p_reason is null or p_result is not null;
begin
    with taken as (
        delete from duly.blocked where ctid = any (array(select ctid from duly.blocked where run_id = p_run_id and waits_for in ('workflow', 'dependency', 'recall') for update skip locked))
        returning *)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, result, metadata)
    select run_id, job_id, scheduled_at, due_at, p_now, tenant, attempt, case when v_done then 'succeeded' else 'failed' end::duly.outcome,
           case when v_done then 'succeeded' else 'dead' end::duly.state, queue, handler, p_reason, p_result, duly.metadata_of(options)
      from taken;
    return found;
end $$;
