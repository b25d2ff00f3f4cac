-- Advance: workflows go on at the commit of each end of a node.

-- Record that a node's run has ended, or goes on by another attempt, from the record of it: what every way to an end writes. No
-- settings in its head: it is called for every row.
create or replace function duly.record_node_end() returns trigger
language plpgsql as $$
declare
    v_first boolean := coalesce(current_setting('duly.ending', true), '') = '';
begin
    if new.outcome = 'fenced' or new.became not in ('succeeded', 'dead', 'cancelled', 'expired', 'skipped', 'retrying') then
        return new;
    end if;
    insert into duly.ended_nodes (workflow_id, node, run_id, became, reason, result, attempt, is_first)
    values ((new.metadata->'node'->>0)::uuid, new.metadata->'node'->>1, new.run_id, new.became, new.reason, new.result, new.attempt, v_first);
    if v_first then
        perform set_config('duly.ending', 'recorded', true);
    end if;
    return new;
end $$;

-- Record that a dead run of a node has left its box: somebody has replayed it, or discarded it.
create or replace function duly.record_replayed_node() returns trigger
language plpgsql as $$
declare
    v_first boolean := coalesce(current_setting('duly.ending', true), '') = '';
begin
    insert into duly.ended_nodes (workflow_id, node, run_id, became, is_first)
    values ((old.options->'node'->>0)::uuid, old.options->'node'->>1, old.run_id, 'risen', v_first);
    if v_first then
        perform set_config('duly.ending', 'recorded', true);
    end if;
    return null;
end $$;

-- Advance workflows from what has ended in this transaction, at its end. What is skipped or ended here is recorded like any end, and seen to in the
-- next round.
create or replace function duly.advance() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now       timestamptz := duly.clock_now();
    v_locked    uuid[];
    v_workflows uuid[];
    v_nodes     text[];
    v_states    text[];
    v_opened    uuid[];
    v_names     text[];
    v_released  uuid[];
    v_moved      uuid[];
    v_counted   uuid[] := '{}';
    v_special   boolean;
    v_other     record;
begin
    v_locked := array(select distinct workflow_id from duly.ended_nodes where recorded_in = pg_current_xact_id());
    perform from duly.workflows where workflow_id = any (v_locked) order by workflow_id for no key update;
    select bool_or(became in ('risen', 'retrying')) into v_special from duly.ended_nodes where recorded_in = pg_current_xact_id();
    if v_special then
        for v_other in
            delete from duly.ended_nodes where recorded_in = pg_current_xact_id() and became in ('risen', 'retrying') returning workflow_id, node, run_id, became
        loop
            perform duly.see_to(v_other.workflow_id, v_other.node, v_other.run_id, v_other.became, v_now);
        end loop;
    end if;
    loop
        with taken as (delete from duly.ended_nodes where recorded_in = pg_current_xact_id() returning *),
        ended as (                                     -- Row by row: whatever the tables were when this was planned, each is looked up by its key.
            update duly.workflow_nodes as node
               set state = case found.became when 'dead' then 'failed' else found.became end, result = found.result, reason = found.reason, ended_at = v_now,
                   last_attempt = greatest(node.last_attempt, found.attempt)
              from (select taken.became, taken.result, taken.reason, taken.attempt, node.ctid from taken cross join lateral (
                        select one.ctid from duly.workflow_nodes as one where one.workflow_id = taken.workflow_id and one.name = taken.node
                           and one.state in ('waiting', 'ready') offset 0) as node) as found
             where node.ctid = found.ctid
            returning node.workflow_id, node.name, node.state)
        select array_agg(workflow_id), array_agg(name), array_agg(state) into v_workflows, v_nodes, v_states from ended;
        exit when v_workflows is null;
        v_counted := v_counted || v_workflows;
        with lowered as (
            update duly.workflow_nodes as child
               set waits = greatest(child.waits - parents.ended, 0), unmet = child.unmet + parents.unmet,
                   state = case when child.waits <= parents.ended and child.unmet + parents.unmet = 0 and child.map is null and parents.flow_state = 'running'
                                then 'ready' else 'waiting' end,
                   released_at = case when child.waits <= parents.ended then v_now end
              from (select counted.*, node.ctid,
                           (select flow.state from duly.workflows as flow where flow.workflow_id = counted.workflow_id) as flow_state
                      from (select edge.workflow_id, edge.child, count(*)::integer as ended,
                                   (count(*) filter (where not duly.holds_for(edge.on_end, ended.state)))::integer as unmet
                              from unnest(v_workflows, v_nodes, v_states) as ended(workflow_id, name, state)
                              join duly.workflow_edges as edge on edge.workflow_id = ended.workflow_id and edge.parent = ended.name
                             group by 1, 2) as counted
                     cross join lateral (
                        select one.ctid from duly.workflow_nodes as one where one.workflow_id = counted.workflow_id and one.name = counted.child
                           and one.state = 'waiting' offset 0) as node) as parents
             where child.ctid = parents.ctid
            returning child.workflow_id, child.name, child.waits, child.state, child.run_id)
        select array_agg(run_id) filter (where state = 'ready'), array_agg(workflow_id) filter (where state = 'waiting'),
               array_agg(name) filter (where state = 'waiting')
          into v_released, v_opened, v_names from lowered where waits = 0;
        if v_released is not null then
            v_moved := duly.release_nodes(v_released, v_now);
            if cardinality(v_moved) < cardinality(v_released) then
                perform duly.add_workflow_task(workflow_id, 'look', v_now) from unnest(v_locked) as workflow_id;
            end if;
        end if;
        if v_opened is not null then
            perform duly.open_nodes(v_opened, v_names, v_now);
        end if;
    end loop;
    with counted as (select workflow_id, count(*)::integer as ended from unnest(v_counted) as workflow_id group by 1),
    lowered as (
        update duly.workflows set open_nodes = open_nodes - counted.ended,
               state = case when open_nodes > counted.ended then state when state = 'cancelling' then 'cancelled'
                            else duly.end_of_workflow(workflows.workflow_id) end,
               ended_at = case when open_nodes = counted.ended then v_now end,
               ended_xid = case when open_nodes = counted.ended then pg_current_xact_id() end
          from counted where workflows.workflow_id = counted.workflow_id
        returning workflows.*)
    select array_agg(workflow_id) into v_workflows from lowered where ended_at is not null and (callbacks is not null or run_id is not null);
    if v_workflows is not null then
        perform duly.workflow_callbacks(workflow_id, v_now) from unnest(v_workflows) as workflow_id;
    end if;
    perform set_config('duly.ending', '', true);
    return null;
end $$;

-- See to nodes whose parents have all ended, under their workflows' locks: release those whose edges hold, end the others.
create or replace function duly.open_nodes(p_workflow_ids uuid[], p_names text[], p_now timestamptz) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_released uuid[];
    v_skipped  uuid[];
    v_moved     uuid[];
    v_map      duly.workflow_nodes;
    v_done     boolean;
    v_cancel   record;
    v_maps     boolean;
    v_stopping boolean;
begin
    select array_agg(run_id) filter (where flow_state = 'running' and (item_of is not null or (unmet = 0 and map is null))),
           array_agg(run_id) filter (where flow_state = 'running' and unmet > 0 and items is null and item_of is null),
           bool_or(flow_state = 'running' and map is not null and item_of is null and (items is not null or unmet = 0)),
           bool_or(flow_state = 'cancelling')
      into v_released, v_skipped, v_maps, v_stopping
      from (select node.*, (select flow.state from duly.workflows as flow where flow.workflow_id = node.workflow_id) as flow_state
              from unnest(p_workflow_ids, p_names) as requested(workflow_id, name)
              join duly.workflow_nodes as node on node.workflow_id = requested.workflow_id and node.name = requested.name
             where node.state = 'waiting' and node.waits = 0) as opened;
    if v_released is not null then
        v_moved := duly.release_nodes(v_released, p_now);
        update duly.workflow_nodes set state = 'ready', released_at = p_now
          from unnest(p_workflow_ids, p_names) as requested(workflow_id, name)
         where workflow_nodes.workflow_id = requested.workflow_id and workflow_nodes.name = requested.name and run_id = any (v_moved) and state = 'waiting';
    end if;
    if v_skipped is not null then
        v_moved := coalesce(v_moved, '{}') || duly.end_nodes(v_skipped, 'skipped', 'skipped_condition', p_now);
    end if;
    if v_stopping then
        for v_cancel in select flow.workflow_id, flow.reason, array_agg(node.run_id) as run_ids
                          from unnest(p_workflow_ids, p_names) as requested(workflow_id, name)
                          join duly.workflow_nodes as node on node.workflow_id = requested.workflow_id and node.name = requested.name
                          join duly.workflows as flow on flow.workflow_id = requested.workflow_id
                         where node.state = 'waiting' and flow.state = 'cancelling' group by 1, 2 loop
            perform duly.end_nodes(v_cancel.run_ids, 'cancelled', coalesce(v_cancel.reason, 'cancelled'), p_now);
        end loop;
    end if;
    if v_maps then
        for v_map in select node.* from unnest(p_workflow_ids, p_names) as requested(workflow_id, name)
                       join duly.workflow_nodes as node on node.workflow_id = requested.workflow_id and node.name = requested.name
                       join duly.workflows as flow on flow.workflow_id = requested.workflow_id
                      where node.state = 'waiting' and node.waits = 0 and node.map is not null and node.item_of is null
                        and (node.items is not null or node.unmet = 0) and flow.state = 'running' loop
            v_done := case when v_map.items is null then duly.spread(v_map, p_now) else duly.gather_items(v_map, p_now) end;
            if not v_done then
                perform duly.add_workflow_task(v_map.workflow_id, 'look', p_now);
            end if;
        end loop;
    end if;
    if coalesce(cardinality(v_moved), 0) < coalesce(cardinality(v_released), 0) + coalesce(cardinality(v_skipped), 0) then
        perform duly.add_workflow_task(missed.workflow_id, 'look', p_now) from (
            select distinct node.workflow_id from unnest(p_workflow_ids, p_names) as requested(workflow_id, name)
              join duly.workflow_nodes as node on node.workflow_id = requested.workflow_id and node.name = requested.name
             where node.run_id = any (v_released || v_skipped) and node.run_id <> all (v_moved)) as missed;
    end if;
end $$;

-- A node's run that goes on by another attempt is taken back where its workflow is paused or cancelled; one that was dead and was
-- replayed opens its workflow again, with all that comes behind it.
create or replace function duly.see_to(p_workflow_id uuid, p_node text, p_run_id uuid, p_became text, p_now timestamptz) returns void
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_covered text[];
    v_state   text := (select state from duly.workflows where workflow_id = p_workflow_id);
begin
    if p_became = 'risen' and v_state is not null
       and exists (select from duly.workflow_nodes where workflow_id = p_workflow_id and name = p_node and state = 'failed')
       and (exists (select from duly.ready where run_id = p_run_id) or exists (select from duly.timers where run_id = p_run_id)
            or exists (select from duly.blocked where run_id = p_run_id))
    then
        with recursive covered as (
            select p_node as name
            union select edge.child from covered join duly.workflow_edges as edge on edge.workflow_id = p_workflow_id and edge.parent = covered.name)
        select array_agg(name) into v_covered from covered;
        perform duly.set_back(p_workflow_id, p_node, v_covered, false, p_now);
    end if;
    if v_state in ('paused', 'cancelling') then
        perform duly.add_workflow_task(p_workflow_id, case v_state when 'paused' then 'withdraw' else 'cancel' end, p_now);
    end if;
end $$;

-- Notify the callbacks of a workflow of its end, as for a run; and record that the run whose target it is can be settled.
create or replace function duly.workflow_callbacks(p_workflow_id uuid, p_now timestamptz) returns void
language plpgsql {planned by index} as $$
declare
    v_flow  duly.workflows;
    v_kind  text;
    v_event jsonb;
    v_to    jsonb;
    v_when  text;
    v_name  text;
begin
    select * into strict v_flow from duly.workflows where workflows.workflow_id = p_workflow_id;
    if v_flow.run_id is not null then
        perform duly.add_workflow_task(p_workflow_id, 'settle', p_now);
    end if;
    v_kind := format('duly.workflow.%s.v1', v_flow.state);
    v_event := jsonb_build_object(
        'specversion', '1.0', 'id', format('%s/%s/%s', p_workflow_id, v_flow.replays, v_kind), 'source', '/v1/workflows', 'type', v_kind,
        'subject', p_workflow_id, 'time', duly.moment_text(p_now), 'datacontenttype', 'application/json',
        'data', jsonb_build_object('workflow_id', p_workflow_id, 'name', v_flow.name, 'state', v_flow.state, 'nodes', v_flow.nodes,
                                   'reason', v_flow.reason, 'submitted_at', duly.moment_text(v_flow.submitted_at), 'ended_at', duly.moment_text(v_flow.ended_at)));
    foreach v_when in array array['end', 'failure'] loop
        v_to := v_flow.callbacks->v_when;
        continue when v_to is null or (v_when = 'failure' and v_flow.state <> 'failed');
        v_name := format('%s/%s/%s/on_%s', p_workflow_id, v_flow.replays, v_flow.state, v_when);
        if v_to ? 'url' then
            perform duly.callback_by_webhook(v_flow.tenant, 'default', v_name, v_to, v_event, v_flow.metadata, p_now);
        else
            perform duly.callback_by_job(v_flow.tenant, v_name, v_to, v_event, p_now);
        end if;
    end loop;
end $$;
