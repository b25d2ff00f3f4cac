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

----------------------------------------------------------------------------------------- runs whose target is a workflow

-- For which life of its run a workflow runs, or has ended: how often that had been replayed. What ended in an earlier one is taken up
-- again by the next, instead of another workflow.
alter table duly.workflows add column run_life integer not null default 0;

update duly.workflows set run_life = coalesce(
    (select replays from duly.dead where dead.run_id = workflows.run_id),
    (select (options->>'replays')::integer from (select run_id, options from duly.timers union all select run_id, options from duly.blocked
        union all select run_id, options from duly.ready union all select run_id, options from duly.leased) as live where live.run_id = workflows.run_id), 0)
 where run_id is not null;

-- Let the run that waits for a workflow live again, whose end has come undone, and say which life of it that is; nothing: it is over for
-- good. A dead one whose row somebody has locked is replayed, or discarded, by that one: waiting for it under the workflow's lock
-- could be a deadlock.
create function duly.reopen_owner_v1(p_run_id uuid) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_life integer := (select replays + 1 from duly.dead where run_id = p_run_id);
begin
    if v_life is not null then
        if exists (select from duly.dead where run_id = p_run_id for update skip locked) then
            perform duly.replay_v2(array[p_run_id], null, interval '5 seconds');
        end if;
        return v_life;
    end if;
    return (select coalesce((options->>'replays')::integer, 0) from (
                          select options from duly.timers where timers.run_id = p_run_id
                union all select options from duly.blocked where blocked.run_id = p_run_id
                union all select options from duly.ready where ready.run_id = p_run_id
                union all select options from duly.leased where leased.run_id = p_run_id) as live limit 1);
end $$;

-- As before; and the run that waited for its end waits again.
create or replace function duly.set_back_v1(p_workflow_id uuid, p_first text, p_covered text[], p_make boolean, p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
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
    -- Items go with their map, except where one of them is where it begins.
    v_items := array(select name from duly.workflow_nodes where workflow_id = p_workflow_id and item_of = any (p_covered) and item_of is distinct from v_first.item_of);
    with gone as (
        delete from duly.dead using duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.name = any (v_items) and dead.run_id = node.run_id
        returning dead.*)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
    select run_id, job_id, scheduled_at, due_at, p_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, 'its map is replayed',
           duly.marks_of(options - array['node', 'then'])
      from gone;
    update duly.workflow_nodes as map set item_attempts = coalesce(map.item_attempts, '{}') || (
               select jsonb_object_agg(item.name, item.last_attempt) from duly.workflow_nodes as item
                where item.workflow_id = p_workflow_id and item.item_of = map.name and item.name = any (v_items))
     where map.workflow_id = p_workflow_id and map.name = any (array(
               select item_of from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (v_items)));
    delete from duly.workflow_edges where workflow_id = p_workflow_id and parent = any (v_items);
    delete from duly.workflow_nodes where workflow_id = p_workflow_id and name = any (v_items);
    -- A dead run that somebody else replays at this moment, or that this transaction has replayed too, is left: its own rising sees to it.
    -- Waiting for whoever that is would be a deadlock: the workflow is what they wait for.
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
       set state = 'waiting', result = null, reason = null, ended_at = null, released_at = null, replays = node.replays + (node.name = any (v_ended) or node.name = p_first)::integer,
           items = case when node.name = v_first.item_of then node.items end,
           waits = (select count(*) from duly.workflow_edges as edge
                      join duly.workflow_nodes as parent on parent.workflow_id = p_workflow_id and parent.name = edge.parent
                     where edge.workflow_id = p_workflow_id and edge.child = node.name
                       and (parent.name = any (v_names) or parent.state in ('waiting', 'ready'))),
           unmet = (select count(*) from duly.workflow_edges as edge
                      join duly.workflow_nodes as parent on parent.workflow_id = p_workflow_id and parent.name = edge.parent
                     where edge.workflow_id = p_workflow_id and edge.child = node.name and node.name <> p_first
                       and parent.name <> all (v_names) and parent.state not in ('waiting', 'ready') and not duly.holds_for(edge.on_end, parent.state))
     where node.workflow_id = p_workflow_id and node.name = any (v_names);
    -- What is dead rises as it is, with what was edited in it; the rest is made again.
    with risen as (
        delete from duly.dead using duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.name = any (v_ended) and dead.run_id = node.run_id and dead.run_id = any (v_dead)
        returning dead.*),
    bygones as (delete from duly.signals using risen where signals.run_id = risen.run_id)
    insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                              suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
    select run_id, job_id, scheduled_at, greatest(p_now, scheduled_at), previous_scheduled_at, generation, tenant, attempt, priority, 0, false,
           payload_stored, queue, handler, payload,
           (options - array['since', 'snoozes', 'probes']) || jsonb_build_object('replays', replays + 1, 'attempts_before', attempt),
           duly.gate_of_workflow(p_workflow_id), p_now
      from risen
    on conflict do nothing;
    delete from duly.endings where noted_in = pg_current_xact_id() and workflow_id = p_workflow_id and node = any (v_ended || v_items)
       and became = 'risen';                           -- That was us.
    perform duly.make_rows_v1(p_workflow_id, v_ended, p_now);
    v_life := (select duly.reopen_owner_v1(flow.run_id) from duly.workflows as flow
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
        perform duly.note_errand_v1(p_workflow_id, 'look', p_now + interval '1 second');    -- In case that it does not rise after all.
    end if;
    if p_make then
        perform duly.open_nodes_v1(array[p_workflow_id], array[p_first], p_now);
    else
        update duly.workflow_nodes set state = 'ready', waits = 0, unmet = 0, released_at = p_now where workflow_id = p_workflow_id and name = p_first;
    end if;
end $$;

-- Do again what of a workflow was not done, and what comes behind: nodes that failed, expired or were cancelled, where nothing that waits
-- for that has succeeded. False: of some of them somebody replays, or discards, the dead run at this moment.
create function duly.redo_v1(p_workflow_id uuid, p_now timestamptz) returns boolean
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
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
    for v_first in                                     -- What lies behind another of them is done with that; items are seen to by their map.
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
        perform duly.set_back_v1(p_workflow_id, v_first.name, v_covered, true, p_now);
    end loop;
    return v_all;
end $$;

-- Take up the workflow that a run has started before, and say how that stands. What had ended in an earlier life of the run is done again
-- where it was not done; what ends in this one settles the run, when that is in its receiver's hands.
create function duly.take_up_v1(p_workflow_id uuid, p_run_id uuid, p_life integer, p_now timestamptz) returns text
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_flow duly.workflows;
begin
    select * into strict v_flow from duly.workflows where workflow_id = p_workflow_id for no key update;
    if v_flow.ended_at is not null and v_flow.run_life < p_life and v_flow.state in ('failed', 'cancelled') then
        perform duly.redo_v1(p_workflow_id, p_now);
    end if;
    update duly.workflows set run_life = greatest(run_life, p_life), run_id = p_run_id where workflow_id = p_workflow_id returning * into v_flow;
    if v_flow.ended_at is not null then
        perform duly.note_errand_v1(p_workflow_id, 'settle', p_now);
    end if;
    return v_flow.state;
end $$;

-- As before; a run that has started a workflow takes that up again.
create or replace function duly.submit_workflow_v1(
    p_tenant integer, p_key text, p_hash bytea, p_name text, p_tags text[], p_then jsonb, p_marks jsonb, p_run_id uuid, p_replays integer,
    p_names text[], p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[], p_options text[], p_maps text[],
    p_parents text[], p_children text[], p_ons text[], p_horizon interval default '5 seconds',
    out workflow_id uuid, out replayed boolean, out state text)
language plpgsql set lock_timeout = '2s' set timezone = 'UTC' set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
    v_key duly.keys;
begin
    if p_run_id is not null then
        workflow_id := (select flow.workflow_id from duly.workflows as flow where flow.run_id = p_run_id and flow.tenant = p_tenant
                         order by flow.submitted_at desc, flow.workflow_id desc limit 1);
        if workflow_id is not null then
            replayed := true;
            state := duly.take_up_v1(workflow_id, p_run_id, p_replays, v_now);
            return;
        end if;
        workflow_id := duly.run_id(duly.made_at(p_run_id), format('%s/workflow/%s', p_run_id, p_replays));
    else
        workflow_id := duly.run_id(v_now, duly.batch_name(p_tenant, p_key, v_now) || 'workflow');
        insert into duly.keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
        values (p_tenant, p_key, workflow_id, p_hash, v_now, v_now + interval '24 hours')
        on conflict (tenant, key) do update
           set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
         where keys.expires_at <= v_now;
        if not found then
            select * into strict v_key from duly.keys where tenant = p_tenant and key = p_key;
            if v_key.body_hash <> p_hash then
                raise exception using errcode = 'DU001', message = format('key %s was used for another job', quote_literal(p_key)), detail = v_key.job_id::text;
            end if;
            workflow_id := v_key.job_id;
            replayed := true;
            state := (select workflows.state from duly.workflows where workflows.workflow_id = v_key.job_id);
            return;
        end if;
    end if;
    insert into duly.workflows (workflow_id, tenant, name, nodes, open_nodes, tags, then_tell, marks, run_id, run_life, submitted_at)
    values (workflow_id, p_tenant, p_name, cardinality(p_names), cardinality(p_names), coalesce(p_tags, '{}'), p_then, p_marks, p_run_id, coalesce(p_replays, 0), v_now)
    on conflict do nothing;
    if not found then
        replayed := true;                              -- Two began with it at once.
        select workflows.state into strict state from duly.workflows where workflows.workflow_id = submit_workflow_v1.workflow_id;
        return;
    end if;
    perform duly.insert_nodes_v1(p_tenant, workflow_id, null, p_names, p_handlers, p_payloads, p_queues, p_priorities, p_options, p_maps,
                                 p_parents, p_children, p_ons, p_marks, 0, v_now);
    replayed := false;
    state := 'running';
end $$;

-- As before; what is about to wait again is left, and what was discarded meanwhile stops nothing.
create or replace function duly.stop_orphans_v1() returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
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
         order by flow.workflow_id limit 1             -- With a second one, its gates would be locked after the first workflow.
    loop
        if v_flow.is_alone then                        -- Discarded as the workflow was replayed: that goes on, and has nobody to tell.
            update duly.workflows set run_id = null where workflows.workflow_id = v_flow.workflow_id and workflows.ended_at is null;
        else
            perform duly.cancel_workflow_v1(v_flow.tenant, v_flow.workflow_id, 'the run whose target it is has ended');
        end if;
        v_stopped := v_stopped + 1;
    end loop;
    return v_stopped;
end $$;

revoke execute on function duly.reopen_owner_v1, duly.redo_v1, duly.take_up_v1 from public;
