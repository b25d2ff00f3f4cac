-- What screens read, read from less: schedules that kept failing by an index of their own, and groups of dead letters from the dead alone.

------------------------------------------------------------------------------------------------------------------- jobs

-- Of many that are paused, those that are because they kept failing. Only who counts failures pays for it.
create index jobs_failing on duly.jobs (tenant, job_id) where state = 'paused' and failures > 0;

----------------------------------------------------------------------------------------------------------- dead letters

-- As before, and what has no id in it is not searched for one: that was two thirds of what a name costs.
create or replace function duly.error_group(p_reason text) returns text language sql immutable parallel safe as $$
    select left(regexp_replace(
        case when p_reason like '%0x%' or p_reason like '%-%-%-%-%'
             then regexp_replace(regexp_replace(split_part(p_reason, E'\n', 1),
                      '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '…', 'g'), '\m0x[0-9a-fA-F]+\M', '…', 'g')
             else split_part(p_reason, E'\n', 1) end,
        '\d+([.,:]\d+)*', '…', 'g'), 200)
$$;

-- As group_dead_v2, from the dead alone: nothing is joined and made ready to be shown that is only counted.
create function duly.group_dead_v3(
    p_tenant integer, p_before_at timestamptz, p_before uuid, p_since timestamptz, p_queues text[], p_handlers text[], p_reasons text[],
    p_beginning text, p_errors text[], p_job_ids uuid[], p_tags text[], p_any_tags text[], p_limit integer, p_looks integer)
returns table (error text, count bigint, handlers text[], first_buried_at timestamptz, last_buried_at timestamptz, sample uuid[], looked bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    with walk as materialized (
        select run_id, handler, buried_at, duly.error_group(reason) as error,
               (p_queues is null or queue = any (p_queues)) and (p_handlers is null or handler = any (p_handlers))
               and (p_reasons is null or reason = any (p_reasons)) and (p_beginning is null or starts_with(reason, p_beginning))
               and (p_job_ids is null or job_id = any (p_job_ids)) and (p_tags is null or coalesce(options->'tags' ?& p_tags, false))
               and (p_any_tags is null or coalesce(options->'tags' ?| p_any_tags, false)) as fits
          from duly.dead
         where (tenant, buried_at, run_id) < (p_tenant, p_before_at, p_before) and (tenant, buried_at) >= (p_tenant, p_since)
         order by tenant desc, buried_at desc, run_id desc limit p_looks)
    select walk.error, count(*), (array_agg(distinct walk.handler))[1:5], min(walk.buried_at), max(walk.buried_at),
           (array_agg(walk.run_id order by walk.buried_at desc))[1:3], (select count(*) from walk)
      from walk where walk.fits and (p_errors is null or walk.error = any (p_errors))
     group by walk.error order by count(*) desc, walk.error limit p_limit;
end $$;

revoke execute on function duly.group_dead_v3 from public;
grant execute on function duly.group_dead_v3 to duly_api;

------------------------------------------------------------------------------------------------------------------ lists

-- As page_jobs_by_name_v1, those that will fire, by when they do. No index has that order, for each fire would pay for it: all that stand are
-- read and put in order, so a tenant with more than p_most of them is refused. A job without a next fire has no place in this order.
create function duly.page_jobs_by_next_v1(
    p_tenant integer, p_after_at timestamptz, p_after uuid, p_states text[], p_queues text[], p_handlers text[], p_owners text[],
    p_names text[], p_beginning text, p_tags text[], p_any_tags text[], p_created_since timestamptz, p_created_before timestamptz,
    p_next_since timestamptz, p_next_before timestamptz, p_limit integer, p_most integer)
returns table (
    fits boolean, number bigint, job_id uuid, tenant integer, name text, state text, queue text, handler text, priority smallint, generation integer,
    every_seconds integer, anchor_at timestamptz, schedule jsonb, owner text, source text, pause_reason text, paused_at timestamptz,
    removed_at timestamptz, failures integer, options jsonb, created_at timestamptz, updated_at timestamptz, next_run_at timestamptz,
    pending_at timestamptz, runs_left integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    if (select count(*) from (select from duly.jobs where tenant = p_tenant and state in ('active', 'paused') limit p_most + 1) as standing) > p_most then
        raise exception 'sort=next_run_at is for up to % jobs, and there are more; sort by created or name, or ask for next_run_at<"…" in the filter', p_most
            using errcode = 'DU005';
    end if;
    return query
    select true, row_number() over (order by timers.scheduled_at, jobs.job_id), jobs.job_id, jobs.tenant, jobs.name, jobs.state, jobs.queue, jobs.handler,
           jobs.priority, jobs.generation, jobs.every_seconds, jobs.anchor_at, jobs.schedule, jobs.owner, jobs.source, jobs.pause_reason, jobs.paused_at,
           jobs.removed_at, jobs.failures, jobs.options, jobs.created_at, jobs.updated_at, timers.scheduled_at, timers.scheduled_at, timers.runs_left
      from duly.jobs join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null
     where jobs.tenant = p_tenant and jobs.state = 'active' and timers.due_at < 'infinity'
       and (timers.scheduled_at, jobs.job_id) > (p_after_at, p_after)
       and (p_states is null or jobs.state = any (p_states)) and (p_queues is null or jobs.queue = any (p_queues))
       and (p_handlers is null or jobs.handler = any (p_handlers)) and (p_owners is null or jobs.owner = any (p_owners))
       and (p_names is null or jobs.name = any (p_names)) and (p_beginning is null or starts_with(jobs.name, p_beginning))
       and (p_tags is null or coalesce(jobs.options->'tags' ?& p_tags, false))
       and (p_any_tags is null or coalesce(jobs.options->'tags' ?| p_any_tags, false))
       and (p_created_since is null or jobs.created_at >= p_created_since)
       and (p_created_before is null or jobs.created_at < p_created_before)
       and timers.scheduled_at >= coalesce(p_next_since, '-infinity') and timers.scheduled_at < coalesce(p_next_before, 'infinity')
     order by timers.scheduled_at, jobs.job_id limit p_limit;
end $$;

revoke execute on function duly.page_jobs_by_next_v1 from public;
grant execute on function duly.page_jobs_by_next_v1 to duly_api;

-------------------------------------------------------------------------------------------------------------- workflows

-- As replay_workflow_v1; a dry run asks the same under the same lock, and changes nothing.
create function duly.replay_workflow_v2(p_tenant integer, p_workflow_id uuid, p_node text, p_covered text[], p_count integer, p_is_dry boolean)
returns text language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
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
    elsif exists (select from duly.workflow_nodes where workflow_id = p_workflow_id and name = p_node and state = 'waiting') then
        return format('node %s has not run yet', quote_literal(p_node));
    elsif p_is_dry then
        return 'replayable';
    elsif exists (select from duly.workflow_nodes as node join duly.dead on dead.run_id = node.run_id where node.workflow_id = p_workflow_id and node.name = p_node)
          and not exists (select from duly.dead where run_id = duly.node_run_id(p_workflow_id, p_node) for update skip locked)
    then
        return 'again';                                -- Somebody replays its run at this moment, and waits for the workflow.
    end if;
    perform duly.set_back_v1(p_workflow_id, p_node, p_covered, true, duly.clock_now());
    return 'replayed';
end $$;

-- As pause_workflow_v1, and who of two has done it: the one whose update found it running.
create function duly.pause_workflow_v2(p_tenant integer, p_workflow_id uuid, out state text, out is_new boolean)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    is_new := false;
    state := (select flow.state from duly.workflows as flow where flow.workflow_id = p_workflow_id and flow.tenant = p_tenant);
    if state is null or state not in ('running', 'paused') then
        return;
    end if;
    perform duly.take_back_nodes_v1(p_workflow_id);
    select flow.state into state from duly.workflows as flow where flow.workflow_id = p_workflow_id for no key update;
    if state not in ('running', 'paused') then
        return;
    end if;
    update duly.workflows as flow set state = 'paused' where flow.workflow_id = p_workflow_id and flow.state = 'running';
    is_new := found;
    state := 'paused';
    perform duly.await_again_v1(p_workflow_id);
    if exists (select from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state = 'ready') then
        perform duly.note_errand_v1(p_workflow_id, 'withdraw', v_now + interval '0.5 seconds');
    end if;
end $$;

create function duly.resume_workflow_v2(p_tenant integer, p_workflow_id uuid, out state text, out is_new boolean)
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    select flow.state into state from duly.workflows as flow where flow.workflow_id = p_workflow_id and flow.tenant = p_tenant for no key update;
    is_new := coalesce(state = 'paused', false);
    if is_new then
        update duly.workflows as flow set state = 'running' where flow.workflow_id = p_workflow_id;
        perform duly.look_v1(p_workflow_id, duly.clock_now());
        state := 'running';
    end if;
end $$;

create function duly.api_replay_workflow_v2(p_tenant integer, p_workflow_id uuid, p_node text, p_covered text[], p_count integer, p_is_dry boolean)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    return duly.replay_workflow_v2(p_tenant, p_workflow_id, p_node, p_covered, p_count, p_is_dry);
end $$;

create function duly.api_pause_workflow_v2(p_tenant integer, p_workflow_id uuid, out state text, out is_new boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    select flow.state, flow.is_new into state, is_new from duly.pause_workflow_v2(p_tenant, p_workflow_id) as flow;
end $$;

create function duly.api_resume_workflow_v2(p_tenant integer, p_workflow_id uuid, out state text, out is_new boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    select flow.state, flow.is_new into state, is_new from duly.resume_workflow_v2(p_tenant, p_workflow_id) as flow;
end $$;

revoke execute on function duly.replay_workflow_v2, duly.pause_workflow_v2, duly.resume_workflow_v2, duly.api_replay_workflow_v2,
    duly.api_pause_workflow_v2, duly.api_resume_workflow_v2 from public;
grant execute on function duly.api_replay_workflow_v2, duly.api_pause_workflow_v2, duly.api_resume_workflow_v2 to duly_api;

-- What a run whose target is a workflow has started, also when that has ended.
create index workflows_by_run on duly.workflows (run_id, workflow_id) where run_id is not null;

--------------------------------------------------------------------------------------------------- changes of workflows

-- What was done to workflows, for those who listen, by the transaction that did it; kept for an hour or so. Their ends are read from themselves.
create table duly.workflow_changes (
    xid          xid8        not null default pg_current_xact_id(),
    number       bigint      generated always as identity,
    tenant       integer     not null,
    workflow_id  uuid        not null,
    change       text        not null check (change in ('paused', 'resumed', 'cancelling', 'replayed')),
    name         text        not null,
    replays      integer     not null,
    changed_at   timestamptz not null
);
create index workflow_changes_by_transaction on duly.workflow_changes (xid, number);
create index workflow_changes_by_time on duly.workflow_changes (changed_at);

create function duly.note_changed_workflow_v1() returns trigger language plpgsql as $$
begin
    insert into duly.workflow_changes (tenant, workflow_id, change, name, replays, changed_at)
    values (new.tenant, new.workflow_id,
            case when new.state <> 'running' then new.state when old.state = 'paused' then 'resumed' else 'replayed' end,
            new.name, new.replays, duly.clock_now());
    return null;
end $$;

create trigger workflows_changed after update of state on duly.workflows
   for each row when (old.state <> new.state and new.state in ('running', 'paused', 'cancelling')) execute function duly.note_changed_workflow_v1();

-- Give the changes that a snapshot could not see yet, of some tenants, in the order of their transactions.
create function duly.workflow_changes_since_v1(p_seen pg_snapshot, p_tenants integer[], p_limit integer) returns setof duly.workflow_changes
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query
    select * from duly.workflow_changes as done
     where done.xid >= pg_snapshot_xmin(p_seen) and not pg_visible_in_snapshot(done.xid, p_seen) and done.tenant = any (p_tenants)
     order by done.xid, done.number limit p_limit;
end $$;

revoke execute on function duly.note_changed_workflow_v1, duly.workflow_changes_since_v1 from public;
