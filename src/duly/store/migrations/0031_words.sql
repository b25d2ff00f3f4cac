-- What users meet: words for what a run waits for, and the runs of a workflow. docs/decisions/0037-what-is-kept-for-words.md
-- says what is kept for that, and what is not.

------------------------------------------------------------------------------------------------------- what is waited for

-- Say what a run waits for that stands in blocked, by the gate it stands at.
create function duly.waits_for(p_gate text, p_options jsonb) returns text language sql immutable parallel safe as $$
    select case when p_gate = '&after' then 'waits for the jobs it follows'
                when left(p_gate, 1) = '&' and p_options ? 'node' then 'waits for its parents in workflow ' || substr(p_gate, 2)
                when left(p_gate, 1) = '&' then 'waits in workflow ' || substr(p_gate, 2)
                when left(p_gate, 1) = '~' then 'waits for its turn at rate ' || substr(p_gate, 2)
                when left(p_gate, 1) = '@' then 'waits for destination ' || substr(p_gate, 2)
                when p_gate like 'overlap/%' then 'waits for the run of its schedule before it'
                when p_gate like 'catch-up/%' or p_gate like 'backfill/%' then 'waits for its turn among the occurrences that are made up for'
                when coalesce(p_options->'fifo', 'false') not in ('false', 'null') then 'waits for its turn in line ' || p_gate
                else 'waits for a place at ' || p_gate end
$$;
revoke execute on function duly.waits_for from public;
grant execute on function duly.waits_for to duly_api;

create or replace view duly.live_runs with (security_invoker = true) as
    select run_id, job_id, tenant, case when attempt > 0 then 'retrying' else 'scheduled' end::duly.state as state,
           queue, handler, priority, attempt, scheduled_at, due_at, null::uuid as worker_id, null::bigint as fence, null::text as reason
      from duly.timers where run_id is not null
    union all
    select run_id, job_id, tenant, 'blocked', queue, handler, priority, attempt, scheduled_at, due_at, null, null, duly.waits_for(gate, options)
      from duly.blocked
    union all
    select run_id, job_id, tenant, case when attempt > 0 then 'retrying' else 'ready' end::duly.state,
           queue, handler, priority, attempt, scheduled_at, due_at, null, null, null
      from duly.ready
    union all
    select run_id, job_id, tenant, case when due_at > duly.clock_now() then 'ready' else 'running' end::duly.state,     -- Claimed ahead of due.
           queue, handler, priority, attempt, scheduled_at, due_at, worker_id, fence, null
      from duly.leased
    union all
    select run_id, job_id, tenant, 'dead', queue, handler, priority, attempt, scheduled_at, due_at, null, null, reason
      from duly.dead;

create or replace view duly.listed_blocked with (security_invoker = true) as
    select tenant, run_id, job_id, 'blocked'::text as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, null::uuid as worker_id, null::bigint as fence,
           duly.waits_for(gate, options) as reason, null::jsonb as detail, options as marks
      from duly.blocked;

------------------------------------------------------------------------------------------------------- a workflow's runs

-- The runs of a workflow's nodes by falling id, as page_runs_v1 gives runs. A workflow has a thousand nodes at most, so they are found
-- by its key and sorted, and nobody pays for an index more.
create function duly.page_workflow_runs_v1(
    p_tenant integer, p_before uuid, p_from uuid, p_workflow_id uuid, p_boxes text[], p_states text[], p_queues text[], p_handlers text[],
    p_job_ids uuid[], p_tags text[], p_any_tags text[], p_scheduled_since timestamptz, p_scheduled_before timestamptz, p_due_since timestamptz,
    p_due_before timestamptz, p_finished_since timestamptz, p_finished_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, state text, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz, worker_id uuid, fence bigint, reason text,
    detail jsonb, marks jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.state, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.started_at, page.finished_at, page.worker_id, page.fence, page.reason, page.detail,
           duly.marks_of(page.marks), null::text
      from (select * from (
                select walk.number, walk.child_id as run_id, found.job_id, found.tenant, found.state, found.queue, found.handler, found.priority,
                       found.attempt, found.scheduled_at, found.due_at, found.started_at, found.finished_at, found.worker_id, found.fence,
                       found.reason, found.detail, found.marks,
                       coalesce(found.tenant = p_tenant
                       and (p_states is null or found.state = any (p_states)) and (p_queues is null or found.queue = any (p_queues))
                       and (p_handlers is null or found.handler = any (p_handlers)) and (p_job_ids is null or found.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(found.marks->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(found.marks->'tags' ?| p_any_tags, false))
                       and (p_scheduled_since is null or found.scheduled_at >= p_scheduled_since)
                       and (p_scheduled_before is null or found.scheduled_at < p_scheduled_before)
                       and (p_due_since is null or found.due_at >= p_due_since) and (p_due_before is null or found.due_at < p_due_before)
                       and (p_finished_since is null or coalesce(found.finished_at >= p_finished_since, false))
                       and (p_finished_before is null or coalesce(found.finished_at < p_finished_before, false)), false) as fits
                  from (select nodes.run_id as child_id, row_number() over () as number from (
                            select run_id from duly.workflow_nodes where workflow_id = p_workflow_id and tenant = p_tenant
                               and run_id < p_before and run_id >= p_from order by run_id desc limit p_looks) as nodes) as walk
                  left join lateral (
                        select * from (
                                  select * from duly.listed_timers where run_id = walk.child_id and 'timers' = any (p_boxes)
                        union all select * from duly.listed_blocked where run_id = walk.child_id and 'blocked' = any (p_boxes)
                        union all select * from duly.listed_ready where run_id = walk.child_id and 'ready' = any (p_boxes)
                        union all select * from duly.listed_leased where run_id = walk.child_id and 'leased' = any (p_boxes)
                        union all select * from duly.listed_dead where run_id = walk.child_id and 'dead' = any (p_boxes)
                        union all select * from duly.listed_succeeded where run_id = walk.child_id and 'succeeded' = any (p_boxes)
                        union all select * from duly.listed_ended where run_id = walk.child_id and 'ended' = any (p_boxes)) as boxes limit 1) as found on true) as looked
             where looked.fits or looked.number = p_looks order by looked.number limit p_limit) as page;
end $$;

revoke execute on function duly.page_workflow_runs_v1 from public;
grant execute on function duly.page_workflow_runs_v1 to duly_api;

------------------------------------------------------------------------------------------------------------ items of maps

-- Items of a map that is replayed are made anew, and their records may be gone by then: how far the attempts of each had come is kept.
alter table duly.workflow_nodes add column item_attempts jsonb;        -- of a map that was set back: the last attempt of each item, by name

create or replace function duly.spread_v1(p_node duly.workflow_nodes, p_now timestamptz) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_list  jsonb;
    v_count integer;
    v_nodes integer;
begin
    select result #> array(select jsonb_array_elements_text(p_node.map->'path')) into v_list
      from duly.workflow_nodes where workflow_id = p_node.workflow_id and name = p_node.map->>'node' and state = 'succeeded';
    if coalesce(jsonb_typeof(v_list), 'none') <> 'array' then
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
    update duly.workflows set
           state = case when ended_at is null then state else 'running' end, ended_at = null, replays = replays + 1,
           reason = case when ended_at is null then reason end,
           run_id = case when ended_at is null then run_id end,            -- The run that waited for its end was settled by that.
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
