-- Results that are not kept are told apart from those that are; and a run whose target is a workflow goes with it when that is replayed.
-- docs/decisions/0030-workflows.md says why.

--------------------------------------------------------------------------------------------- results that are not kept

-- A node that has succeeded and has a reason all the same has no result to hand on: it was too large, and the reason says so. What
-- stands in `result` then is for people.

-- As handed_v1; what is not kept is not handed, and `missing` says why.
create function duly.handed_v2(p_workflow_ids uuid[], p_names text[], p_of_workflows uuid[], p_of_names text[], p_parents text[], p_bytes_max integer)
returns table (workflow_id uuid, name text, parent text, is_parent boolean, total bigint, result jsonb, missing text)
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
begin
    return query
    select found.workflow_id, found.name, found.parent, found.is_parent, found.total,
           case when found.total <= p_bytes_max and found.reason is null then found.result end, found.reason from (
        select wanted.workflow_id, wanted.name, wanted.parent, wanted.is_parent, node.result, node.reason,
               sum(case when node.reason is null then coalesce(octet_length(node.result::text), 0) else 0 end)
                   over (partition by wanted.workflow_id, wanted.name) as total
          from (select asked.workflow_id, asked.name, edge.parent, true as is_parent
                  from unnest(p_workflow_ids, p_names) as asked(workflow_id, name)
                  join duly.workflow_edges as edge on edge.workflow_id = asked.workflow_id and edge.child = split_part(asked.name, '[', 1)
                 where right(edge.parent, 1) <> ']'
                union all
                select named.workflow_id, named.name, named.parent, false
                  from unnest(p_of_workflows, p_of_names, p_parents) as named(workflow_id, name, parent)
                 where not exists (select from duly.workflow_edges as edge where edge.workflow_id = named.workflow_id
                                      and edge.child = split_part(named.name, '[', 1) and edge.parent = named.parent)) as wanted
          join duly.workflow_nodes as node on node.workflow_id = wanted.workflow_id and node.name = wanted.parent and node.state = 'succeeded') as found;
end $$;

-- As before; one that has a result has succeeded, and its reason says that this is not whole.
create or replace function duly.end_map_v1(p_run_id uuid, p_result jsonb, p_reason text, p_now timestamptz) returns boolean
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_done boolean := p_reason is null or p_result is not null;
begin
    with taken as (
        delete from duly.blocked where ctid = any (array(select ctid from duly.blocked where run_id = p_run_id and left(gate, 1) = '&' for update skip locked))
        returning *)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, result, marks)
    select run_id, job_id, scheduled_at, due_at, p_now, tenant, attempt, case when v_done then 'succeeded' else 'failed' end::duly.outcome,
           case when v_done then 'succeeded' else 'dead' end::duly.state, queue, handler, p_reason, p_result, duly.marks_of(options)
      from taken;
    return found;
end $$;

-- As before; the list of a node whose result is not kept is none.
create or replace function duly.spread_v1(p_node duly.workflow_nodes, p_now timestamptz) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
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
        return duly.end_map_v1(p_node.run_id, null, format('node %s has no result to hand on: %s', quote_literal(p_node.map->>'node'), v_reason), p_now);
    elsif coalesce(jsonb_typeof(v_list), 'none') <> 'array' then
        return duly.end_map_v1(p_node.run_id, null, format('the result of node %s has no list at %s, but %s', quote_literal(p_node.map->>'node'),
                               coalesce(p_node.map->>'path', '[]'), coalesce(jsonb_typeof(v_list), 'nothing')), p_now);
    end if;
    v_count := jsonb_array_length(v_list);
    if v_count = 0 then
        return duly.end_map_v1(p_node.run_id, '[]', null, p_now);
    end if;
    select nodes into v_nodes from duly.workflows where workflow_id = p_node.workflow_id;
    if v_nodes + v_count > 1000 then
        return duly.end_map_v1(p_node.run_id, null,
                               format('%s items and %s nodes are more than 1000, which a workflow has at most', v_count, v_nodes), p_now);
    end if;
    with made as (
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
        select workflow_id, name, p_node.name, tenant, 'success' from made)
    update duly.workflow_nodes set items = v_count, waits = v_count where workflow_id = p_node.workflow_id and name = p_node.name;
    perform duly.make_rows_v1(p_node.workflow_id, array(select name from duly.workflow_nodes
                                where workflow_id = p_node.workflow_id and item_of = p_node.name), p_now);
    perform duly.release_nodes_v1(array(select run_id from duly.workflow_nodes where workflow_id = p_node.workflow_id and item_of = p_node.name), p_now);
    update duly.workflows set nodes = nodes + v_count, open_nodes = open_nodes + v_count where workflow_id = p_node.workflow_id;
    return true;
end $$;

-- As before; where the result of an item is not kept there is null in the list, which is not handed on then.
create or replace function duly.gather_items_v1(p_node duly.workflow_nodes, p_now timestamptz) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
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
    return duly.end_map_v1(p_node.run_id, v_result, v_reason, p_now);
end $$;

revoke execute on function duly.handed_v2 from public;
grant execute on function duly.handed_v2 to duly_api;
