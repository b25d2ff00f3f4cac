-- Workflows: runs that wait for each other, advanced by the record of an end. docs/decisions/0030-workflows.md says why.
--
-- Locks are taken in this order: rows of boxes, gates, workflows by id, rows under a workflow's own gate. So what holds a workflow
-- locks no gate, and passes over rows under `&` that somebody else has locked.

create table duly.workflows (
    workflow_id  uuid        primary key,               -- as of a run: its first 48 bits say when it was made
    tenant       integer     not null,
    name         text        not null,
    state        text        not null default 'running'
                             check (state in ('running', 'paused', 'cancelling', 'succeeded', 'failed', 'cancelled')),
    nodes        integer     not null check (nodes between 0 and 1000),
    open_nodes   integer     not null check (open_nodes >= 0),         -- that have not ended
    tags         text[]      not null default '{}',
    then_tell    jsonb,                                 -- who is told of its end
    marks        jsonb,                                 -- who asked for it
    run_id       uuid,                                  -- the run whose target it is, and which waits for its end
    reason       text,
    replays      integer     not null default 0,
    submitted_at timestamptz not null,
    ended_at     timestamptz,
    check ((ended_at is not null) = (state in ('succeeded', 'failed', 'cancelled'))),
    check (ended_at is null or open_nodes = 0)
) with (fillfactor = 50);
create index workflows_by_tenant on duly.workflows (tenant, workflow_id);
create index workflows_by_end on duly.workflows (ended_at) where ended_at is not null;
create index workflows_of_runs on duly.workflows (run_id) where run_id is not null and ended_at is null;

create table duly.workflow_nodes (
    workflow_id  uuid        not null,
    name         text        not null collate "C",
    number       integer     not null,                  -- the order in which they were given
    tenant       integer     not null,
    run_id       uuid        not null,
    state        text        not null default 'waiting'
                             check (state in ('waiting', 'ready', 'succeeded', 'failed', 'expired', 'cancelled', 'skipped')),
    waits        integer     not null check (waits >= 0),              -- parents that have not ended
    unmet        integer     not null default 0,        -- parents that have, and not as the edge asks
    items        integer,                               -- of a map that was spread out: how many
    item_of      text        collate "C",               -- of an item of a map: which
    added_by     text        collate "C",               -- of a node that was added by a running one: which
    map          jsonb,                                 -- of a map, the list; of its items, each its own: a node and a path
    handler      text        not null collate "C",
    queue        text        not null collate "C",
    priority     smallint    not null,
    payload      jsonb,
    options      jsonb       not null,
    replays      integer     not null default 0,
    last_attempt integer     not null default 0,        -- of its former lives: their records may be gone
    released_at  timestamptz,
    ended_at     timestamptz,
    reason       text,
    result       jsonb,
    primary key (workflow_id, name),
    check ((ended_at is null) = (state in ('waiting', 'ready')))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50000);

create table duly.workflow_edges (
    workflow_id  uuid        not null,
    parent       text        not null collate "C",
    child        text        not null collate "C",
    tenant       integer     not null,
    on_end       text        not null check (on_end in ('success', 'failure', 'always')),
    primary key (workflow_id, parent, child)
);
create index workflow_edges_by_child on duly.workflow_edges (workflow_id, child);

-- What has ended in this transaction, until its end. Whoever writes here deletes it before the commit: nobody else ever sees a row,
-- and none outlives a crash.
create unlogged table duly.endings (
    workflow_id  uuid        not null,
    node         text        not null collate "C",
    run_id       uuid        not null,
    became       text        not null,
    reason       text,
    result       jsonb,
    attempt      integer,
    is_first     boolean     not null,                  -- in its transaction: it queues what sees to all of them
    noted_in     xid8        not null default pg_current_xact_id()      -- By which they are found among what others have left to be vacuumed.
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index endings_by_transaction on duly.endings (noted_in);

-- What is left to do for a workflow outside of its lock, or after somebody else has let go of a row. No key: whoever notes one
-- waits for nobody.
create table duly.errands (
    errand_id    bigint      generated always as identity primary key,
    workflow_id  uuid        not null,
    what         text        not null check (what in ('look', 'withdraw', 'cancel', 'settle', 'leave')),
    due_at       timestamptz not null,
    leaving      jsonb,                                 -- whose place at which gate is given back
    tries        smallint    not null default 0         -- that failed
);

------------------------------------------------------------------------------------------------------------- small rules

-- The gate at which nodes wait for their parents, or for their workflow to go on. It has no places.
create function duly.gate_of_workflow(p_workflow_id uuid) returns text language sql immutable parallel safe as $$
    select '&' || p_workflow_id::text
$$;

-- The name of a node's run: the same for every replay. domain/workflow.py has no twin: nobody but the store needs it.
create function duly.node_run_id(p_workflow_id uuid, p_node text) returns uuid language sql stable parallel safe as $$
    select duly.run_id(duly.made_at(p_workflow_id), p_workflow_id::text || '/' || p_node)
$$;

-- Whether an edge holds, of a parent that has ended so. domain/workflow.py says the same.
create function duly.holds_for(p_on text, p_state text) returns boolean language sql immutable parallel safe as $$
    select case p_on when 'success' then p_state = 'succeeded' when 'failure' then p_state in ('failed', 'expired', 'cancelled') else true end
$$;

-- How a workflow ends whose nodes have all ended. domain/workflow.py says the same. An item of a map is seen to by its map.
create function duly.end_of_workflow(p_workflow_id uuid) returns text
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    return case when exists (
        select from duly.workflow_nodes as node
         where node.workflow_id = p_workflow_id and node.state in ('failed', 'expired', 'cancelled') and node.item_of is null
           and not exists (select from duly.workflow_edges as edge
                            where edge.workflow_id = node.workflow_id and edge.parent = node.name and edge.on_end <> 'success'))
        then 'failed' else 'succeeded' end;
end $$;

create function duly.note_errand_v1(p_workflow_id uuid, p_what text, p_due_at timestamptz) returns void language sql as $$
    insert into duly.errands (workflow_id, what, due_at) values (p_workflow_id, p_what, p_due_at)
$$;

------------------------------------------------------------------------------------------------------------ what is noted

-- Note that a node's run has ended, or goes on by another attempt, from the record of it: what every way to an end writes. No
-- settings in its head: it is called for every row.
create function duly.note_ending_v1() returns trigger
language plpgsql as $$
declare
    v_first boolean := coalesce(current_setting('duly.ending', true), '') = '';
begin
    if new.outcome = 'fenced' or new.became not in ('succeeded', 'dead', 'cancelled', 'expired', 'skipped', 'retrying') then
        return new;
    end if;
    insert into duly.endings (workflow_id, node, run_id, became, reason, result, attempt, is_first)
    values ((new.marks->'node'->>0)::uuid, new.marks->'node'->>1, new.run_id, new.became, new.reason, new.result, new.attempt, v_first);
    if v_first then
        perform set_config('duly.ending', 'noted', true);
    end if;
    return new;
end $$;
create trigger attempts_noted before insert on duly.attempts for each row when (new.marks ? 'node') execute function duly.note_ending_v1();

-- Note that a dead run of a node has left its box: somebody has replayed it, or discarded it.
create function duly.note_rising_v1() returns trigger
language plpgsql as $$
declare
    v_first boolean := coalesce(current_setting('duly.ending', true), '') = '';
begin
    insert into duly.endings (workflow_id, node, run_id, became, is_first)
    values ((old.options->'node'->>0)::uuid, old.options->'node'->>1, old.run_id, 'risen', v_first);
    if v_first then
        perform set_config('duly.ending', 'noted', true);
    end if;
    return null;
end $$;
create trigger dead_risen after delete on duly.dead for each row when (old.options ? 'node') execute function duly.note_rising_v1();

-------------------------------------------------------------------------------------------------------------- released

-- Put rows that wait under a workflow's gate where they go on: into ready; or into timers, what is due later or has to enter a gate or
-- keep to a rate, which is for stage to see to. Rows that somebody has locked stay. Returns those that went.
create function duly.release_nodes_v1(p_run_ids uuid[], p_now timestamptz, p_horizon interval default '5 seconds') returns uuid[]
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_gone uuid[];
begin
    with taken as (
        delete from duly.blocked where ctid = any (array(
            select ctid from duly.blocked where run_id = any (p_run_ids) and left(gate, 1) = '&' for update skip locked))
        returning *, greatest(p_now, blocked.due_at) as new_due_at),
    staged as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select run_id, job_id, scheduled_at, new_due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, duly.rank(new_due_at, priority)
          from taken where new_due_at <= p_now + p_horizon and not (duly.must_enter(options) or options ? 'rate')
        on conflict do nothing),
    later as (
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                 suspect, payload_stored, queue, handler, payload, options, shard)
        select run_id, job_id, scheduled_at, new_due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, duly.shard_of(job_id)
          from taken where new_due_at > p_now + p_horizon or duly.must_enter(options) or options ? 'rate'
        on conflict do nothing)
    select array_agg(run_id) into v_gone from taken;
    return coalesce(v_gone, '{}');
end $$;

-- End rows that wait under a workflow's gate, with a record. Rows that somebody has locked stay. Returns those that went.
create function duly.end_nodes_v1(p_run_ids uuid[], p_outcome text, p_reason text, p_now timestamptz) returns uuid[]
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_gone uuid[];
begin
    with taken as (
        delete from duly.blocked where ctid = any (array(
            select ctid from duly.blocked where run_id = any (p_run_ids) and left(gate, 1) = '&' for update skip locked))
        returning *),
    unneeded as (delete from duly.checkpoints using taken where checkpoints.run_id = taken.run_id),
    leaving as (                                       -- A place that is held is given back outside of the workflow's lock.
        insert into duly.errands (workflow_id, what, due_at, leaving)
        select (options->'node'->>0)::uuid, 'leave', p_now,
               jsonb_build_object('job_id', job_id, 'tenant', tenant, 'options', jsonb_build_object('gate', options->'gate'))
          from taken where duly.is_held(options)),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
        select run_id, job_id, scheduled_at, due_at, p_now, tenant, attempt, p_outcome::duly.outcome, p_outcome::duly.state, queue, handler, p_reason,
               duly.marks_of(options)
          from taken)
    select array_agg(run_id) into v_gone from taken;
    return coalesce(v_gone, '{}');
end $$;

-- End a map: it has no run of its own, so its row goes and its end is noted as that of a run. False: somebody has locked the row.
create function duly.end_map_v1(p_run_id uuid, p_result jsonb, p_reason text, p_now timestamptz) returns boolean
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_became text := case when p_reason is null then 'succeeded' else 'dead' end;
begin
    with taken as (
        delete from duly.blocked where ctid = any (array(select ctid from duly.blocked where run_id = p_run_id and left(gate, 1) = '&' for update skip locked))
        returning *)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, result, marks)
    select run_id, job_id, scheduled_at, due_at, p_now, tenant, attempt, case when p_reason is null then 'succeeded' else 'failed' end::duly.outcome,
           v_became::duly.state, queue, handler, p_reason, p_result, duly.marks_of(options)
      from taken;
    return found;
end $$;

-- Spread a map out: a node and a run for each item of its list. It waits for them then. A list that is none, or too long, is its end.
create function duly.spread_v1(p_node duly.workflow_nodes, p_now timestamptz) returns boolean
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
                                         replays, released_at)
        select p_node.workflow_id, item.name, p_node.number, p_node.tenant, duly.node_run_id(p_node.workflow_id, item.name), 'ready', 0, p_node.name,
               jsonb_build_object('node', p_node.map->'node', 'path', coalesce(p_node.map->'path', '[]') || to_jsonb(item.number)),
               p_node.handler, p_node.queue, p_node.priority, p_node.payload,
               p_node.options || jsonb_build_object('node', jsonb_build_array(p_node.workflow_id, item.name)), p_node.replays, p_now
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

-- Make the rows of nodes under their workflow's gate, from their definitions. Attempts go on where they ended.
create function duly.make_rows_v1(p_workflow_id uuid, p_names text[], p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    with asked as (
        select node.*, duly.made_at(p_workflow_id) as made_at, octet_length(node.payload::text) > 1024 as stored,
               case when node.replays > 0
                    then greatest(node.last_attempt, (select max(attempts.attempt) from duly.attempts where attempts.run_id = node.run_id)) else 0 end as attempt
          from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.name = any (p_names)),
    stored as (
        insert into duly.payloads (job_id, generation, body, stored_at) select run_id, 1, payload, p_now from asked where stored
        on conflict do nothing)
    insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                              queue, handler, payload, options, gate, blocked_at)
    select run_id, run_id, made_at, greatest(made_at, p_now), 1, tenant, attempt, priority, 0, false, stored, queue, handler, case when not stored then payload end,
           case when replays > 0 then options || jsonb_build_object('replays', replays, 'attempts_before', attempt) else options end,
           duly.gate_of_workflow(p_workflow_id), p_now
      from asked
    on conflict do nothing;
end $$;

-- See to nodes whose parents have all ended, under their workflows' locks: release those whose edges hold, end the others.
create function duly.open_nodes_v1(p_workflow_ids uuid[], p_names text[], p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_released uuid[];
    v_skipped  uuid[];
    v_gone     uuid[];
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
              from unnest(p_workflow_ids, p_names) as asked(workflow_id, name)
              join duly.workflow_nodes as node on node.workflow_id = asked.workflow_id and node.name = asked.name
             where node.state = 'waiting' and node.waits = 0) as opened;
    if v_released is not null then
        v_gone := duly.release_nodes_v1(v_released, p_now);
        update duly.workflow_nodes set state = 'ready', released_at = p_now
          from unnest(p_workflow_ids, p_names) as asked(workflow_id, name)
         where workflow_nodes.workflow_id = asked.workflow_id and workflow_nodes.name = asked.name and run_id = any (v_gone) and state = 'waiting';
    end if;
    if v_skipped is not null then
        v_gone := coalesce(v_gone, '{}') || duly.end_nodes_v1(v_skipped, 'skipped', 'skipped_condition', p_now);
    end if;
    if v_stopping then
        for v_cancel in select flow.workflow_id, flow.reason, array_agg(node.run_id) as run_ids
                          from unnest(p_workflow_ids, p_names) as asked(workflow_id, name)
                          join duly.workflow_nodes as node on node.workflow_id = asked.workflow_id and node.name = asked.name
                          join duly.workflows as flow on flow.workflow_id = asked.workflow_id
                         where node.state = 'waiting' and flow.state = 'cancelling' group by 1, 2 loop
            perform duly.end_nodes_v1(v_cancel.run_ids, 'cancelled', coalesce(v_cancel.reason, 'cancelled'), p_now);
        end loop;
    end if;
    if v_maps then
        for v_map in select node.* from unnest(p_workflow_ids, p_names) as asked(workflow_id, name)
                       join duly.workflow_nodes as node on node.workflow_id = asked.workflow_id and node.name = asked.name
                       join duly.workflows as flow on flow.workflow_id = asked.workflow_id
                      where node.state = 'waiting' and node.waits = 0 and node.map is not null and node.item_of is null
                        and (node.items is not null or node.unmet = 0) and flow.state = 'running' loop
            v_done := case when v_map.items is null then duly.spread_v1(v_map, p_now) else duly.gather_items_v1(v_map, p_now) end;
            if not v_done then
                perform duly.note_errand_v1(v_map.workflow_id, 'look', p_now);
            end if;
        end loop;
    end if;
    if coalesce(cardinality(v_gone), 0) < coalesce(cardinality(v_released), 0) + coalesce(cardinality(v_skipped), 0) then
        perform duly.note_errand_v1(missed.workflow_id, 'look', p_now) from (
            select distinct node.workflow_id from unnest(p_workflow_ids, p_names) as asked(workflow_id, name)
              join duly.workflow_nodes as node on node.workflow_id = asked.workflow_id and node.name = asked.name
             where node.run_id = any (v_released || v_skipped) and node.run_id <> all (v_gone)) as missed;
    end if;
end $$;

-- A map whose items have all ended has their results, in order; or it has failed.
create function duly.gather_items_v1(p_node duly.workflow_nodes, p_now timestamptz) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
declare
    v_result jsonb;
    v_reason text;
begin
    if p_node.unmet > 0 then
        v_reason := format('%s of %s items did not succeed', p_node.unmet, p_node.items);
    else
        select jsonb_agg(coalesce(item.result, 'null') order by (item.map->'path'->>-1)::integer) into v_result
          from duly.workflow_nodes as item where item.workflow_id = p_node.workflow_id and item.item_of = p_node.name;
        if octet_length(v_result::text) > 1048576 then
            v_reason := format('the results of %s items have %s bytes; a node is handed at most 1048576', p_node.items, octet_length(v_result::text));
            v_result := null;
        end if;
    end if;
    return duly.end_map_v1(p_node.run_id, v_result, v_reason, p_now);
end $$;

--------------------------------------------------------------------------------------------------------------- set back

-- Set nodes back to where they wait, under their workflow's lock, and make their rows; those under way are left. The first of them
-- runs whatever its edges said; without p_make its run is on its way already.
create function duly.set_back_v1(p_workflow_id uuid, p_first text, p_covered text[], p_make boolean, p_now timestamptz) returns void
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

---------------------------------------------------------------------------------------------------------------- advance

-- Go on from what has ended in this transaction, at its end. What is skipped or ended here is noted like any end, and seen to in the
-- next round.
create function duly.advance_v1() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
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
    v_gone      uuid[];
    v_counted   uuid[] := '{}';
    v_special   boolean;
    v_other     record;
begin
    v_locked := array(select distinct workflow_id from duly.endings where noted_in = pg_current_xact_id());
    perform from duly.workflows where workflow_id = any (v_locked) order by workflow_id for no key update;
    select bool_or(became in ('risen', 'retrying')) into v_special from duly.endings where noted_in = pg_current_xact_id();
    if v_special then
        for v_other in
            delete from duly.endings where noted_in = pg_current_xact_id() and became in ('risen', 'retrying') returning workflow_id, node, run_id, became
        loop
            perform duly.see_to_v1(v_other.workflow_id, v_other.node, v_other.run_id, v_other.became, v_now);
        end loop;
    end if;
    loop
        with taken as (delete from duly.endings where noted_in = pg_current_xact_id() returning *),
        ended as (                                     -- By place: whatever the tables were when this was planned, each is looked up by its key.
            update duly.workflow_nodes as node
               set state = case found.became when 'dead' then 'failed' else found.became end, result = found.result, reason = found.reason, ended_at = v_now,
                   last_attempt = greatest(node.last_attempt, found.attempt)
              from (select taken.became, taken.result, taken.reason, taken.attempt, place.ctid from taken cross join lateral (
                        select one.ctid from duly.workflow_nodes as one where one.workflow_id = taken.workflow_id and one.name = taken.node
                           and one.state in ('waiting', 'ready') offset 0) as place) as found
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
              from (select counted.*, place.ctid,
                           (select flow.state from duly.workflows as flow where flow.workflow_id = counted.workflow_id) as flow_state
                      from (select edge.workflow_id, edge.child, count(*)::integer as ended,
                                   (count(*) filter (where not duly.holds_for(edge.on_end, ended.state)))::integer as unmet
                              from unnest(v_workflows, v_nodes, v_states) as ended(workflow_id, name, state)
                              join duly.workflow_edges as edge on edge.workflow_id = ended.workflow_id and edge.parent = ended.name
                             group by 1, 2) as counted
                     cross join lateral (
                        select one.ctid from duly.workflow_nodes as one where one.workflow_id = counted.workflow_id and one.name = counted.child
                           and one.state = 'waiting' offset 0) as place) as parents
             where child.ctid = parents.ctid
            returning child.workflow_id, child.name, child.waits, child.state, child.run_id)
        select array_agg(run_id) filter (where state = 'ready'), array_agg(workflow_id) filter (where state = 'waiting'),
               array_agg(name) filter (where state = 'waiting')
          into v_released, v_opened, v_names from lowered where waits = 0;
        if v_released is not null then
            v_gone := duly.release_nodes_v1(v_released, v_now);
            if cardinality(v_gone) < cardinality(v_released) then
                perform duly.note_errand_v1(workflow_id, 'look', v_now) from unnest(v_locked) as workflow_id;
            end if;
        end if;
        if v_opened is not null then
            perform duly.open_nodes_v1(v_opened, v_names, v_now);
        end if;
    end loop;
    with counted as (select workflow_id, count(*)::integer as ended from unnest(v_counted) as workflow_id group by 1),
    lowered as (
        update duly.workflows set open_nodes = open_nodes - counted.ended,
               state = case when open_nodes > counted.ended then state when state = 'cancelling' then 'cancelled'
                            else duly.end_of_workflow(workflows.workflow_id) end,
               ended_at = case when open_nodes = counted.ended then v_now end
          from counted where workflows.workflow_id = counted.workflow_id
        returning workflows.*)
    select array_agg(workflow_id) into v_workflows from lowered where ended_at is not null and (then_tell is not null or run_id is not null);
    if v_workflows is not null then
        perform duly.tell_workflow_v1(workflow_id, v_now) from unnest(v_workflows) as workflow_id;
    end if;
    perform set_config('duly.ending', '', true);
    return null;
end $$;

-- It is queued once for each transaction, by the first note.
create constraint trigger endings_seen_to after insert on duly.endings deferrable initially deferred
   for each row when (new.is_first) execute function duly.advance_v1();

-- A node's run that goes on by another attempt is taken back where its workflow is paused or cancelled; one that was dead and was
-- replayed opens its workflow again, with all that comes behind it.
create function duly.see_to_v1(p_workflow_id uuid, p_node text, p_run_id uuid, p_became text, p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
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
        perform duly.set_back_v1(p_workflow_id, p_node, v_covered, false, p_now);
    end if;
    if v_state in ('paused', 'cancelling') then
        perform duly.note_errand_v1(p_workflow_id, case v_state when 'paused' then 'withdraw' else 'cancel' end, p_now);
    end if;
end $$;

-- Tell of the end of a workflow whom it names, as tell_v1 does for a run; and note that the run whose target it is can be settled.
create function duly.tell_workflow_v1(p_workflow_id uuid, p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
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
        perform duly.note_errand_v1(p_workflow_id, 'settle', p_now);
    end if;
    v_kind := format('duly.workflow.%s.v1', v_flow.state);
    v_event := jsonb_build_object(
        'specversion', '1.0', 'id', format('%s/%s/%s', p_workflow_id, v_flow.replays, v_kind), 'source', '/v1/workflows', 'type', v_kind,
        'subject', p_workflow_id, 'time', duly.moment_text(p_now), 'datacontenttype', 'application/json',
        'data', jsonb_build_object('workflow_id', p_workflow_id, 'name', v_flow.name, 'state', v_flow.state, 'nodes', v_flow.nodes,
                                   'reason', v_flow.reason, 'submitted_at', duly.moment_text(v_flow.submitted_at), 'ended_at', duly.moment_text(v_flow.ended_at)));
    foreach v_when in array array['done', 'dead'] loop
        v_to := v_flow.then_tell->v_when;
        continue when v_to is null or (v_when = 'dead' and v_flow.state <> 'failed');
        v_name := format('%s/%s/%s/on_%s', p_workflow_id, v_flow.replays, v_flow.state, v_when);
        if v_to ? 'url' then
            perform duly.tell_url_v1(v_flow.tenant, 'default', v_name, v_to, v_event, v_flow.marks, p_now);
        else
            perform duly.tell_job_v1(v_flow.tenant, v_name, v_to, v_event, p_now);
        end if;
    end loop;
end $$;

----------------------------------------------------------------------------------------------------------------- submit

-- Insert nodes and edges, and the rows of their runs under the workflow's gate; what is wrong with one is said in a sentence.
create function duly.insert_nodes_v1(
    p_tenant integer, p_workflow_id uuid, p_added_by text, p_names text[], p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[],
    p_options text[], p_maps text[], p_parents text[], p_children text[], p_ons text[], p_marks jsonb, p_number integer, p_now timestamptz)
returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_bad record;
begin
    select octet_length(u.payload) as bytes, u.priority, u.options::jsonb as options into v_bad
      from unnest(p_payloads, p_priorities, p_options) as u(payload, priority, options)
     where octet_length(u.payload) > 262144 or u.priority not between 0 and 9 or (u.options is not null and not duly.are_options(u.options::jsonb)) limit 1;
    if found then
        perform duly.check_one(null, null, v_bad.bytes, v_bad.priority, v_bad.options, p_now, '0');
    end if;
    insert into duly.workflow_edges (workflow_id, parent, child, tenant, on_end)
    select p_workflow_id, u.parent, u.child, p_tenant, u.on_end from unnest(p_parents, p_children, p_ons) as u(parent, child, on_end);
    with asked as materialized (
        select u.*, duly.node_run_id(p_workflow_id, u.name) as run_id, duly.made_at(p_workflow_id) as made_at, coalesce(parents.count, 0) as waits,
               u.payload_text::jsonb as payload, octet_length(u.payload_text) > 1024 as stored,
               coalesce(p_marks, '{}') || coalesce(u.options_text::jsonb, '{}') || jsonb_build_object('node', jsonb_build_array(p_workflow_id, u.name)) as options
          from unnest(p_names, p_handlers, p_payloads, p_queues, p_priorities, p_options, p_maps) with ordinality
                   as u(name, handler, payload_text, queue, priority, options_text, map, number)
          left join (select child, count(*)::integer as count from unnest(p_children) as child group by 1) as parents on parents.child = u.name),
    kept as (
        insert into duly.workflow_nodes (workflow_id, name, number, tenant, run_id, state, waits, added_by, map, handler, queue, priority, payload, options,
                                         released_at)
        select p_workflow_id, name, p_number + number, p_tenant, run_id, case when waits = 0 then 'ready' else 'waiting' end, waits, p_added_by, map::jsonb,
               handler, queue, priority, payload, options, case when waits = 0 then p_now end
          from asked),
    stored as (insert into duly.payloads (job_id, generation, body, stored_at) select run_id, 1, payload, p_now from asked where stored),
    waiting as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                  queue, handler, payload, options, gate, blocked_at)
        select run_id, run_id, made_at, greatest(made_at, p_now), 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options, duly.gate_of_workflow(p_workflow_id), p_now
          from asked where waits > 0),
    at_once as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                queue, handler, payload, options, rank)
        select run_id, run_id, made_at, greatest(made_at, p_now), 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options, duly.rank(greatest(made_at, p_now), priority)
          from asked where waits = 0 and not (duly.must_enter(options) or options ? 'rate'))
    insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, priority, payload_stored, queue, handler, payload, options, shard)
    select run_id, run_id, made_at, greatest(made_at, p_now), 1, p_tenant, priority, stored, queue, handler, case when not stored then payload end, options,
           duly.shard_of(run_id)
      from asked where waits = 0 and (duly.must_enter(options) or options ? 'rate');
end $$;

-- Submit a workflow whole: only inserts. Known by its key; or, for a run whose target it is, by an id computed from that run's.
create function duly.submit_workflow_v1(
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
    insert into duly.workflows (workflow_id, tenant, name, nodes, open_nodes, tags, then_tell, marks, run_id, submitted_at)
    values (workflow_id, p_tenant, p_name, cardinality(p_names), cardinality(p_names), coalesce(p_tags, '{}'), p_then, p_marks, p_run_id, v_now)
    on conflict do nothing;
    if not found then
        replayed := true;
        select workflows.state into strict state from duly.workflows where workflows.workflow_id = submit_workflow_v1.workflow_id;
        return;
    end if;
    perform duly.insert_nodes_v1(p_tenant, workflow_id, null, p_names, p_handlers, p_payloads, p_queues, p_priorities, p_options, p_maps,
                                 p_parents, p_children, p_ons, p_marks, 0, v_now);
    replayed := false;
    state := 'running';
end $$;

-- Add nodes behind one that runs, under its fence. Its children wait for the last of them as well: for their success where they wait
-- for its own, else for their end. What was added before, by a former attempt or request, stands.
create function duly.add_nodes_v1(
    p_tenant integer, p_workflow_id uuid, p_node text, p_run_id uuid, p_fence bigint,
    p_names text[], p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[], p_options text[], p_maps text[],
    p_parents text[], p_children text[], p_ons text[], p_last text[])
returns text
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_flow  duly.workflows;
    v_taken text;
    v_new   text[];
begin
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
    perform duly.insert_nodes_v1(
        p_tenant, p_workflow_id, p_node, node.names, node.handlers, node.payloads, node.queues, node.priorities, node.options, node.maps,
        coalesce(edge.parents, '{}'), coalesce(edge.children, '{}'), coalesce(edge.ons, '{}'), v_flow.marks, v_flow.nodes, v_now)
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

------------------------------------------------------------------------------------------------- cancel, pause, replay

-- End what of a workflow stands in boxes other than under its own gate, or holds a place at another, and ask what runs to stop. Its lock
-- is not held: gates are locked.
create function duly.stop_nodes_v1(p_workflow_id uuid, p_reason text) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_run_ids uuid[] := array(
        select run_id from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state in ('waiting', 'ready')
           and not exists (select from duly.blocked where blocked.run_id = node.run_id and blocked.gate = duly.gate_of_workflow(p_workflow_id)
                              and not duly.is_held(blocked.options))
         order by run_id);
begin
    perform duly.cancel_v1(v_run_ids, p_reason);
    perform duly.cancel_awaited_v1(v_run_ids, p_reason);
    perform duly.signal_v1(v_run_ids, 'cancel');
end $$;

-- Cancel a workflow. What is released between the first step and the lock is found by the errand.
create function duly.cancel_workflow_v1(p_tenant integer, p_workflow_id uuid, p_reason text) returns text
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_state text := (select state from duly.workflows where workflow_id = p_workflow_id and tenant = p_tenant);
begin
    if v_state is null or v_state not in ('running', 'paused', 'cancelling') then
        return v_state;
    end if;
    perform duly.stop_nodes_v1(p_workflow_id, p_reason);
    perform from duly.workflows where workflow_id = p_workflow_id for no key update;
    update duly.workflows set state = 'cancelling', reason = p_reason where workflow_id = p_workflow_id and state in ('running', 'paused');
    perform duly.end_nodes_v1(array(select run_id from duly.workflow_nodes as node
                                     where node.workflow_id = p_workflow_id and node.state in ('waiting', 'ready')), 'cancelled', p_reason, v_now)
       from duly.workflows where workflow_id = p_workflow_id and state = 'cancelling';
    perform duly.note_errand_v1(p_workflow_id, 'cancel', v_now);
    set constraints duly.endings_seen_to immediate;    -- So that the answer is what has come of it.
    set constraints duly.endings_seen_to deferred;
    return (select state from duly.workflows where workflow_id = p_workflow_id);
end $$;

-- Take back what of a workflow has not started: it waits under the workflow's gate again. Its lock is not held: gates are locked.
create function duly.take_back_nodes_v1(p_workflow_id uuid) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_gate    text := duly.gate_of_workflow(p_workflow_id);
    v_run_ids uuid[] := array(select run_id from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state = 'ready' order by run_id);
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with staged as (
        delete from duly.ready where ctid = any (array(select ctid from duly.ready where run_id = any (v_run_ids) for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
                  payload_stored, queue, handler, payload, options),
    due as (
        delete from duly.timers where ctid = any (array(
            select ctid from duly.timers where run_id = any (v_run_ids) and run_id is not null for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
                  payload_stored, queue, handler, payload, options),
    at_gate as (
        delete from duly.blocked where ctid = any (array(
            select ctid from duly.blocked where run_id = any (v_run_ids) and gate <> v_gate for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
                  payload_stored, queue, handler, payload, options),
    back as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select taken.*, v_gate, v_now from (select * from staged union all select * from due union all select * from at_gate) as taken)
    select array_agg(job_id), array_agg(tenant), array_agg(jsonb_build_object('gate', options->'gate'))
      into v_job_ids, v_tenants, v_options from staged where options ? 'gate' and not duly.is_held(options);
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
end $$;

-- Let nodes wait that were released and whose rows stand under their workflow's gate, under its lock. A parent that was replayed
-- meanwhile is open once more, and waited for like any other.
create function duly.await_again_v1(p_workflow_id uuid) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    update duly.workflow_nodes as node
       set state = 'waiting', released_at = null,
           waits = (select count(*) from duly.workflow_edges as edge
                      join duly.workflow_nodes as parent on parent.workflow_id = p_workflow_id and parent.name = edge.parent
                     where edge.workflow_id = p_workflow_id and edge.child = node.name and parent.state in ('waiting', 'ready'))
     where node.workflow_id = p_workflow_id and node.state = 'ready'
       and exists (select from duly.blocked where blocked.run_id = node.run_id and blocked.gate = duly.gate_of_workflow(p_workflow_id));
end $$;

-- Pause a workflow, or take back once more what has come up since. While anything of it is under way, that is done again and again:
-- a run that a worker hands back would start anew.
create function duly.pause_workflow_v1(p_tenant integer, p_workflow_id uuid) returns text
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_state text := (select state from duly.workflows where workflow_id = p_workflow_id and tenant = p_tenant);
begin
    if v_state is null or v_state not in ('running', 'paused') then
        return v_state;
    end if;
    perform duly.take_back_nodes_v1(p_workflow_id);
    select state into v_state from duly.workflows where workflow_id = p_workflow_id for no key update;
    if v_state not in ('running', 'paused') then
        return v_state;
    end if;
    update duly.workflows set state = 'paused' where workflow_id = p_workflow_id and state = 'running';
    perform duly.await_again_v1(p_workflow_id);
    if exists (select from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state = 'ready') then
        perform duly.note_errand_v1(p_workflow_id, 'withdraw', v_now + interval '0.5 seconds');
    end if;
    return 'paused';
end $$;

-- See to all nodes of a workflow whose parents have ended, under its lock.
create function duly.look_v1(p_workflow_id uuid, p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_names text[];
begin
    -- One that was released, and whose row somebody held, waits once more.
    perform duly.await_again_v1(p_workflow_id);
    v_names := array(select name from duly.workflow_nodes where workflow_id = p_workflow_id and state = 'waiting' and waits = 0 order by number, name);
    if cardinality(v_names) > 0 then
        perform duly.open_nodes_v1(array_fill(p_workflow_id, array[cardinality(v_names)]), v_names, p_now);
    end if;
end $$;

create function duly.resume_workflow_v1(p_tenant integer, p_workflow_id uuid) returns text
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_state text;
begin
    select state into v_state from duly.workflows where workflow_id = p_workflow_id and tenant = p_tenant for no key update;
    if v_state is distinct from 'paused' then
        return v_state;
    end if;
    update duly.workflows set state = 'running' where workflow_id = p_workflow_id;
    perform duly.look_v1(p_workflow_id, duly.clock_now());
    return 'running';
end $$;

-- Do a node and those behind it again. What is covered was found before the lock; where nodes have been added since, it is found anew.
create function duly.replay_workflow_v1(p_tenant integer, p_workflow_id uuid, p_node text, p_covered text[], p_count integer) returns text
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now  timestamptz := duly.clock_now();
    v_flow duly.workflows;
    v_name text;
begin
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
    end if;
    if exists (select from duly.workflow_nodes where workflow_id = p_workflow_id and name = p_node and state = 'waiting') then
        return format('node %s has not run yet', quote_literal(p_node));
    end if;
    if exists (select from duly.workflow_nodes as node join duly.dead on dead.run_id = node.run_id where node.workflow_id = p_workflow_id and node.name = p_node)
       and not exists (select from duly.dead where run_id = duly.node_run_id(p_workflow_id, p_node) for update skip locked)
    then
        return 'again';                                -- Somebody replays its run at this moment, and waits for the workflow.
    end if;
    perform duly.set_back_v1(p_workflow_id, p_node, p_covered, true, v_now);
    return 'replayed';
end $$;

---------------------------------------------------------------------------------------------------------------- errands

-- Do what an errand says, where that is still to be done.
create function duly.do_errand_v1(p_errand duly.errands, p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_flow duly.workflows;
begin
    select * into v_flow from duly.workflows where workflow_id = p_errand.workflow_id;
    if p_errand.what = 'leave' then
        perform duly.leave_v1(array[(p_errand.leaving->>'job_id')::uuid], array[(p_errand.leaving->>'tenant')::integer],
                              array[p_errand.leaving->'options'], null, p_now);
    elsif p_errand.what = 'withdraw' and v_flow.state = 'paused' then
        perform duly.pause_workflow_v1(v_flow.tenant, v_flow.workflow_id);
    elsif p_errand.what = 'cancel' and v_flow.state = 'cancelling' then
        perform duly.stop_nodes_v1(v_flow.workflow_id, coalesce(v_flow.reason, 'cancelled'));
        perform from duly.workflows where workflow_id = v_flow.workflow_id for no key update;
        perform duly.end_nodes_v1(array(select run_id from duly.workflow_nodes as node
                                         where node.workflow_id = v_flow.workflow_id and node.state in ('waiting', 'ready')),
                                  'cancelled', coalesce(v_flow.reason, 'cancelled'), p_now);
        perform duly.note_errand_v1(v_flow.workflow_id, 'cancel', p_now + interval '1 second');     -- Until it has ended.
    elsif p_errand.what = 'look' and v_flow.workflow_id is not null then
        perform from duly.workflows where workflow_id = v_flow.workflow_id for no key update;
        perform duly.look_v1(v_flow.workflow_id, p_now);
    end if;
end $$;

-- Do one errand that is due: done, or put off because it failed. Without one, stop workflows that nobody waits for any more, and say whether there is something to
-- settle, which is for whoever can: settle, or none. One statement, because it is asked twice a second for ever.
create function duly.run_errand_v1() returns text
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_errand duly.errands;
begin
    delete from duly.errands where errand_id = (
        select errand_id from duly.errands where due_at <= v_now and what <> 'settle' order by errand_id limit 1 for update skip locked)
    returning * into v_errand;
    if not found then
        return case when duly.stop_orphans_v1() > 0 then 'done' when exists (select from duly.errands where what = 'settle' and due_at <= v_now) then 'settle' else 'none' end;
    end if;
    begin
        perform duly.do_errand_v1(v_errand, v_now);
        set constraints duly.endings_seen_to immediate;                 -- So that what follows from it fails here, and not at the commit.
        set constraints duly.endings_seen_to deferred;
    exception when others then                         -- It must not stand before all others: it comes again later, behind them.
        raise warning 'errand % of workflow % is put off: %', v_errand.what, v_errand.workflow_id, sqlerrm;
        insert into duly.errands (workflow_id, what, due_at, leaving, tries)
        values (v_errand.workflow_id, v_errand.what, v_now + least(power(2, v_errand.tries), 60) * interval '1 second', v_errand.leaving,
                least(v_errand.tries + 1, 30));
    end;
    return 'done';
end $$;

-- Workflows whose run, which they are the target of, was cancelled or given up: they have nobody to tell, and stop.
create function duly.stop_orphans_v1() returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
    v_flow    record;
    v_stopped integer := 0;
begin
    for v_flow in
        select flow.tenant, flow.workflow_id from duly.workflows as flow
         where flow.run_id is not null and flow.ended_at is null and flow.state <> 'cancelling'
           and not exists (select from duly.leased where leased.run_id = flow.run_id) and not exists (select from duly.ready where ready.run_id = flow.run_id)
           and not exists (select from duly.timers where timers.run_id = flow.run_id) and not exists (select from duly.blocked where blocked.run_id = flow.run_id)
           and exists (select from duly.attempts where attempts.run_id = flow.run_id and attempts.became in ('cancelled', 'dead', 'expired'))
         order by flow.workflow_id limit 1             -- With a second one, its gates would be locked after the first workflow.
    loop
        perform duly.cancel_workflow_v1(v_flow.tenant, v_flow.workflow_id, 'the run whose target it is has ended');
        v_stopped := v_stopped + 1;
    end loop;
    return v_stopped;
end $$;

-- Forget workflows that ended long ago, with their nodes and edges, so many at a time.
create function duly.forget_workflows_v1(p_kept interval, p_limit integer) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_before timestamptz := duly.clock_now() - p_kept;
    v_gone   uuid[];
begin
    with gone as (
        delete from duly.workflows where workflow_id = any (array(
            select workflow_id from duly.workflows as flow where flow.ended_at < v_before
               and not exists (select from duly.workflow_nodes as node join duly.dead on dead.run_id = node.run_id
                                where node.workflow_id = flow.workflow_id and node.state = 'failed')      -- Somebody may replay it yet.
             order by flow.ended_at limit p_limit for update skip locked))
        returning workflow_id)
    select array_agg(workflow_id) into v_gone from gone;
    delete from duly.workflow_edges where workflow_id = any (v_gone);
    delete from duly.workflow_nodes where workflow_id = any (v_gone);
    return coalesce(cardinality(v_gone), 0);
end $$;

-- What runs are handed of others' results: those of the parents of each, and those that it names; no more than a run may be handed.
-- An item of a map has the parents of its map, and not the other items. With the rights of whoever asks.
create function duly.handed_v1(p_workflow_ids uuid[], p_names text[], p_of_workflows uuid[], p_of_names text[], p_parents text[], p_bytes_max integer)
returns table (workflow_id uuid, name text, parent text, is_parent boolean, total bigint, result jsonb)
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
begin
    return query
    select found.workflow_id, found.name, found.parent, found.is_parent, found.total, case when found.total <= p_bytes_max then found.result end from (
        select wanted.workflow_id, wanted.name, wanted.parent, wanted.is_parent, node.result,
               sum(coalesce(octet_length(node.result::text), 0)) over (partition by wanted.workflow_id, wanted.name) as total
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

-- Workflows by falling id, which is the newest first, from a position on; no more than p_looks of them are looked at. The last one
-- looked at comes along, so that the next page begins there.
create function duly.page_workflows_v1(
    p_tenant integer, p_before uuid, p_from uuid, p_states text[], p_names text[], p_beginning text, p_tags text[], p_any_tags text[],
    p_since timestamptz, p_until timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, workflow_id uuid, tenant integer, name text, state text, nodes integer, open_nodes integer, tags text[],
    reason text, replays integer, submitted_at timestamptz, ended_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.workflow_id, page.tenant, page.name, page.state, page.nodes, page.open_nodes, page.tags, page.reason, page.replays,
           page.submitted_at, page.ended_at
      from (select walk.*, row_number() over () as number,
                   (p_states is null or walk.state = any (p_states)) and (p_names is null or walk.name = any (p_names))
                   and (p_beginning is null or starts_with(walk.name, p_beginning))
                   and (p_tags is null or walk.tags @> p_tags) and (p_any_tags is null or walk.tags && p_any_tags)
                   and (p_since is null or walk.submitted_at >= p_since) and (p_until is null or walk.submitted_at < p_until) as fits
              from (select * from duly.workflows as flow
                     where (flow.tenant, flow.workflow_id) < (p_tenant, p_before) and (flow.tenant, flow.workflow_id) >= (p_tenant, p_from)
                     order by flow.tenant desc, flow.workflow_id desc limit p_looks) as walk) as page
     where page.fits or page.number = p_looks
     order by page.number limit p_limit;
end $$;

--------------------------------------------------------------------------------------------------------------- the wall

alter table duly.workflows enable row level security;
alter table duly.workflow_nodes enable row level security;
alter table duly.workflow_edges enable row level security;
alter table duly.endings enable row level security;
alter table duly.errands enable row level security;
create policy of_its_tenant on duly.workflows for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.workflow_nodes for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.workflow_edges for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.workflows, duly.workflow_nodes, duly.workflow_edges to duly_api;

create function duly.api_submit_workflow_v1(
    p_tenant integer, p_key text, p_hash bytea, p_name text, p_tags text[], p_then jsonb, p_marks jsonb, p_run_id uuid, p_replays integer,
    p_names text[], p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[], p_options text[], p_maps text[],
    p_parents text[], p_children text[], p_ons text[], p_horizon interval,
    out workflow_id uuid, out replayed boolean, out state text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);               -- A run's own workflow is made by whoever holds the run, not by a request.
    select made.workflow_id, made.replayed, made.state into workflow_id, replayed, state
      from duly.submit_workflow_v1(p_tenant, p_key, p_hash, p_name, p_tags, p_then, p_marks, null, 0, p_names, p_handlers, p_payloads, p_queues,
                                   p_priorities, p_options, p_maps, p_parents, p_children, p_ons, p_horizon) as made;
    perform duly.admit_v1(p_tenant, 0, case when replayed then 0 else cardinality(p_names) end);
end $$;

create function duly.api_add_nodes_v1(
    p_tenant integer, p_workflow_id uuid, p_node text, p_run_id uuid, p_fence bigint,
    p_names text[], p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[], p_options text[], p_maps text[],
    p_parents text[], p_children text[], p_ons text[], p_last text[])
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.admit_v1(p_tenant, 0, cardinality(p_names));
    return duly.add_nodes_v1(p_tenant, p_workflow_id, p_node, p_run_id, p_fence, p_names, p_handlers, p_payloads, p_queues, p_priorities, p_options,
                             p_maps, p_parents, p_children, p_ons, p_last);
end $$;

create function duly.api_cancel_workflow_v1(p_tenant integer, p_workflow_id uuid, p_reason text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    return duly.cancel_workflow_v1(p_tenant, p_workflow_id, p_reason);
end $$;

create function duly.api_pause_workflow_v1(p_tenant integer, p_workflow_id uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    return duly.pause_workflow_v1(p_tenant, p_workflow_id);
end $$;

create function duly.api_resume_workflow_v1(p_tenant integer, p_workflow_id uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    return duly.resume_workflow_v1(p_tenant, p_workflow_id);
end $$;

create function duly.api_replay_workflow_v1(p_tenant integer, p_workflow_id uuid, p_node text, p_covered text[], p_count integer) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    return duly.replay_workflow_v1(p_tenant, p_workflow_id, p_node, p_covered, p_count);
end $$;

revoke execute on function
    duly.gate_of_workflow, duly.node_run_id, duly.holds_for, duly.end_of_workflow, duly.note_errand_v1, duly.note_ending_v1, duly.note_rising_v1,
    duly.release_nodes_v1, duly.end_nodes_v1, duly.end_map_v1, duly.spread_v1, duly.make_rows_v1, duly.open_nodes_v1, duly.gather_items_v1,
    duly.set_back_v1, duly.advance_v1, duly.see_to_v1, duly.tell_workflow_v1, duly.insert_nodes_v1, duly.submit_workflow_v1, duly.add_nodes_v1,
    duly.stop_nodes_v1, duly.cancel_workflow_v1, duly.take_back_nodes_v1, duly.await_again_v1, duly.pause_workflow_v1, duly.look_v1, duly.resume_workflow_v1,
    duly.replay_workflow_v1, duly.do_errand_v1, duly.run_errand_v1, duly.stop_orphans_v1, duly.forget_workflows_v1, duly.page_workflows_v1, duly.handed_v1, duly.api_submit_workflow_v1,
    duly.api_add_nodes_v1, duly.api_cancel_workflow_v1, duly.api_pause_workflow_v1, duly.api_resume_workflow_v1, duly.api_replay_workflow_v1
    from public;
grant execute on function
    duly.api_submit_workflow_v1, duly.api_add_nodes_v1, duly.api_cancel_workflow_v1, duly.api_pause_workflow_v1, duly.api_resume_workflow_v1,
    duly.api_replay_workflow_v1, duly.page_workflows_v1, duly.handed_v1
    to duly_api;
