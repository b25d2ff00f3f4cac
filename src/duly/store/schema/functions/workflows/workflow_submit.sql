-- Submit a workflow, and add nodes to one that runs.

-- Submit a workflow whole: only inserts. Known by its key; or, for a run whose target it is, by an id computed from that run's. A run that has
-- started a workflow takes that up again. The workflow of a run is submitted by the run's worker, and not by a request.
create or replace function duly.submit_workflow(
    p_tenant integer, p_key text, p_hash bytea, p_name text, p_tags text[], p_callbacks jsonb, p_metadata jsonb, p_run_id uuid, p_replays integer,
    p_names text[], p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[], p_options text[], p_maps text[],
    p_parents text[], p_children text[], p_ons text[], p_horizon interval default '5 seconds',
    out workflow_id uuid, out replayed boolean, out state text)
language plpgsql security definer set search_path = pg_catalog, pg_temp
    set lock_timeout = '2s' set timezone = 'UTC' {planned by index} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
    v_key duly.idempotency_keys;
begin
    perform duly.must_be_ours(p_tenant);
    if duly.is_tenant_session() then
        p_run_id := null;
        p_replays := 0;
    end if;
    if p_run_id is not null then
        workflow_id := (select flow.workflow_id from duly.workflows as flow where flow.run_id = p_run_id and flow.tenant = p_tenant
                         order by flow.submitted_at desc, flow.workflow_id desc limit 1);
        if workflow_id is not null then
            replayed := true;
            state := duly.take_up(workflow_id, p_run_id, p_replays, v_now);
            return;
        end if;
        workflow_id := duly.run_id(duly.created_at(p_run_id), format('%s/workflow/%s', p_run_id, p_replays));
    else
        workflow_id := duly.run_id(v_now, duly.batch_name(p_tenant, p_key, v_now) || 'workflow');
        v_key := duly.use_key(p_tenant, p_key, workflow_id, p_hash, v_now);
        if v_key.key is not null then
            perform duly.admit(p_tenant, 0, 0);
            workflow_id := v_key.job_id;
            replayed := true;
            state := (select workflows.state from duly.workflows where workflows.workflow_id = v_key.job_id);
            return;
        end if;
    end if;
    insert into duly.workflows (workflow_id, tenant, name, nodes, open_nodes, tags, callbacks, metadata, run_id, run_life, submitted_at)
    values (workflow_id, p_tenant, p_name, cardinality(p_names), cardinality(p_names), coalesce(p_tags, '{}'), p_callbacks, p_metadata, p_run_id, coalesce(p_replays, 0), v_now)
    on conflict do nothing;
    if not found then
        replayed := true;                              -- Two began with it at once.
        select workflows.state into strict state from duly.workflows where workflows.workflow_id = submit_workflow.workflow_id;
        return;
    end if;
    perform duly.insert_nodes(p_tenant, workflow_id, null, p_names, p_handlers, p_payloads, p_queues, p_priorities, p_options, p_maps,
                                 p_parents, p_children, p_ons, p_metadata, 0, v_now);
    perform duly.admit(p_tenant, 0, cardinality(p_names));
    replayed := false;
    state := 'running';
end $$;

-- Insert nodes and edges, and the rows of their runs under the workflow; what is wrong with one is said in a sentence.
create or replace function duly.insert_nodes(
    p_tenant integer, p_workflow_id uuid, p_added_by text, p_names text[], p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[],
    p_options text[], p_maps text[], p_parents text[], p_children text[], p_ons text[], p_metadata jsonb, p_number integer, p_now timestamptz)
returns void
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_bad record;
begin
    select u.handler, u.queue, octet_length(u.payload) as bytes, u.priority, u.options::jsonb as options into v_bad
      from unnest(p_handlers, p_queues, p_payloads, p_priorities, p_options) as u(handler, queue, payload, priority, options)
     where duly.is_name(u.handler) is not true or duly.is_name(u.queue) is not true or octet_length(u.payload) > 262144 or u.priority not between 0 and 9 or (u.options is not null and not duly.are_options(u.options::jsonb)) limit 1;
    if found then
        perform duly.check_names(v_bad.handler, v_bad.queue);
        perform duly.check_one(null, null, v_bad.bytes, v_bad.priority, v_bad.options, p_now, '0');
    end if;
    insert into duly.workflow_edges (workflow_id, parent, child, tenant, on_end)
    select p_workflow_id, u.parent, u.child, p_tenant, u.on_end from unnest(p_parents, p_children, p_ons) as u(parent, child, on_end);
    with requested as materialized (
        select u.*, duly.node_run_id(p_workflow_id, u.name) as run_id, duly.created_at(p_workflow_id) as created_at, coalesce(parents.count, 0) as waits,
               u.payload_text::jsonb as payload, octet_length(u.payload_text) > 1024 as stored,
               coalesce(p_metadata, '{}') || coalesce(u.options_text::jsonb, '{}') || jsonb_build_object('node', jsonb_build_array(p_workflow_id, u.name)) as options
          from unnest(p_names, p_handlers, p_payloads, p_queues, p_priorities, p_options, p_maps) with ordinality
                   as u(name, handler, payload_text, queue, priority, options_text, map, number)
          left join (select child, count(*)::integer as count from unnest(p_children) as child group by 1) as parents on parents.child = u.name),
    kept as (
        insert into duly.workflow_nodes (workflow_id, name, number, tenant, run_id, state, waits, added_by, map, handler, queue, priority, payload, options,
                                         released_at)
        select p_workflow_id, name, p_number + number, p_tenant, run_id, case when waits = 0 then 'ready' else 'waiting' end, waits, p_added_by, map::jsonb,
               handler, queue, priority, payload, options, case when waits = 0 then p_now end
          from requested),
    stored as (insert into duly.payloads (job_id, generation, body, stored_at) select run_id, 1, payload, p_now from requested where stored),
    waiting as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                  queue, handler, payload, options, waits_for, key, blocked_at)
        select run_id, run_id, created_at, greatest(created_at, p_now), 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options, 'workflow', p_workflow_id::text, p_now
          from requested where waits > 0),
    at_once as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                queue, handler, payload, options)
        select run_id, run_id, created_at, greatest(created_at, p_now), 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options
          from requested where waits = 0 and not (duly.must_enter(options) or options ? 'rate'))
    insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, priority, payload_stored, queue, handler, payload, options, shard)
    select run_id, run_id, created_at, greatest(created_at, p_now), 1, p_tenant, priority, stored, queue, handler, case when not stored then payload end, options,
           duly.shard_of(run_id)
      from requested where waits = 0 and (duly.must_enter(options) or options ? 'rate');
end $$;

-- Take up the workflow that a run has started before, and say how that stands. What had ended in an earlier life of the run is done again
-- where it was not done; what ends in this one settles the run, when that is leased by its receiver.
create or replace function duly.take_up(p_workflow_id uuid, p_run_id uuid, p_life integer, p_now timestamptz) returns text
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_flow duly.workflows;
begin
    select * into strict v_flow from duly.workflows where workflow_id = p_workflow_id for no key update;
    if v_flow.ended_at is not null and v_flow.run_life < p_life and v_flow.state in ('failed', 'cancelled') then
        perform duly.redo(p_workflow_id, p_now);
    end if;
    update duly.workflows set run_life = greatest(run_life, p_life), run_id = p_run_id where workflow_id = p_workflow_id returning * into v_flow;
    if v_flow.ended_at is not null then
        perform duly.add_workflow_task(p_workflow_id, 'settle', p_now);
    end if;
    return v_flow.state;
end $$;

-- Add nodes behind one that runs, under its fence. Its children wait for the last of them as well: for their success where they wait
-- for its own, else for their end. What was added before, by a former attempt or request, stands.
create or replace function duly.add_nodes(
    p_tenant integer, p_workflow_id uuid, p_node text, p_run_id uuid, p_fence bigint,
    p_names text[], p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[], p_options text[], p_maps text[],
    p_parents text[], p_children text[], p_ons text[], p_last text[])
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_flow  duly.workflows;
    v_taken text;
    v_new   text[];
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.admit(p_tenant, 0, cardinality(p_names));
    select * into v_flow from duly.workflows where workflow_id = p_workflow_id and tenant = p_tenant for no key update;
    if not exists (select from duly.leased where run_id = p_run_id and fence = p_fence and tenant = p_tenant and options->'node'->>0 = p_workflow_id::text)
       or not exists (select from duly.workflow_nodes where workflow_id = p_workflow_id and name = p_node and run_id = p_run_id and state = 'ready')
    then
        return 'lost';
    end if;
    if v_flow.state = 'cancelling' then
        return 'it is being cancelled';
    end if;
    select name into v_taken from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (p_names) and added_by is distinct from p_node limit 1;
    if found then
        return format('node %s is there already; give it another name', quote_literal(v_taken));
    end if;
    v_new := array(select name from unnest(p_names) as name except select name from duly.workflow_nodes where workflow_id = p_workflow_id);
    if cardinality(v_new) = 0 then
        return 'added';
    elsif v_flow.nodes + cardinality(v_new) > 1000 then
        return format('it would have %s nodes, and has at most 1000', v_flow.nodes + cardinality(v_new));
    end if;
    with behind as (                                   -- As they were before: what is added is no child that was there.
        select edge.child, case edge.on_end when 'success' then 'success' else 'always' end as on_end from duly.workflow_edges as edge
          join duly.workflow_nodes as child on child.workflow_id = p_workflow_id and child.name = edge.child and child.state = 'waiting'
         where edge.workflow_id = p_workflow_id and edge.parent = p_node and child.added_by is distinct from p_node),
    hung as (
        insert into duly.workflow_edges (workflow_id, parent, child, tenant, on_end)
        select p_workflow_id, last.name, behind.child, p_tenant, behind.on_end
          from unnest(p_last) as last(name) cross join behind where last.name = any (v_new)
        on conflict do nothing
        returning child)
    update duly.workflow_nodes as child set waits = child.waits + more.count
      from (select child, count(*)::integer as count from hung group by 1) as more
     where child.workflow_id = p_workflow_id and child.name = more.child;
    perform duly.insert_nodes(
        p_tenant, p_workflow_id, p_node, node.names, node.handlers, node.payloads, node.queues, node.priorities, node.options, node.maps,
        coalesce(edge.parents, '{}'), coalesce(edge.children, '{}'), coalesce(edge.ons, '{}'), v_flow.metadata, v_flow.nodes, v_now)
      from (select array_agg(u.name order by u.number) as names, array_agg(u.handler order by u.number) as handlers,
                   array_agg(u.payload order by u.number) as payloads, array_agg(u.queue order by u.number) as queues,
                   array_agg(u.priority order by u.number) as priorities, array_agg(u.options order by u.number) as options,
                   array_agg(u.map order by u.number) as maps
              from unnest(p_names, p_handlers, p_payloads, p_queues, p_priorities, p_options, p_maps) with ordinality
                       as u(name, handler, payload, queue, priority, options, map, number) where u.name = any (v_new)) as node
     cross join (select array_agg(u.parent) as parents, array_agg(u.child) as children, array_agg(u.on_end) as ons
                   from unnest(p_parents, p_children, p_ons) as u(parent, child, on_end) where u.child = any (v_new)) as edge;
    update duly.workflows set nodes = nodes + cardinality(v_new), open_nodes = open_nodes + cardinality(v_new) where workflow_id = p_workflow_id;
    return 'added';
end $$;

grant execute on function duly.submit_workflow, duly.add_nodes to duly_api;
