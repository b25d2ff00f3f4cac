-- Subtasks: runs that another run has requested. docs/decisions/0014-progress-logs-subtasks-and-cancel.md says why.

-- Record the parents of these runs. A parent must be under way: one that has ended requests nothing more. It is read and not locked: a
-- submit must block no other.
create or replace function duly.record_subtasks(p_tenant integer, p_parents uuid[], p_run_ids uuid[]) returns void
language plpgsql {planned by index, by loop} as $$
declare
    v_ended uuid;
begin
    select requested.parent into v_ended from (select distinct parent from unnest(p_parents) as parent where parent is not null) as requested
      left join lateral (
                  select tenant from duly.timers where timers.run_id = requested.parent
        union all select tenant from duly.blocked where blocked.run_id = requested.parent
        union all select tenant from duly.ready where ready.run_id = requested.parent
        union all select tenant from duly.leased where leased.run_id = requested.parent limit 1) as box on true
     where box.tenant is distinct from p_tenant limit 1;
    if found then
        raise exception using errcode = 'DU030', message = format('run %s is not under way, so it can have no subtasks', v_ended);
    end if;
    insert into duly.subtasks (parent, run_id, tenant, recorded_at)
    select requested.parent, requested.run_id, p_tenant, duly.clock_now() from unnest(p_parents, p_run_ids) as requested(parent, run_id)
     where requested.parent is not null
    on conflict do nothing;
end $$;

-- Submit one one-shot for a request, with a check of its tenant and the quotas; or for a run whose subtask it is. A wrapper, because
-- submit_one is hot, and the engine would pay there for the check and the settings of a function that requests may call.
create or replace function duly.submit_checked(
    p_tenant integer, p_key text, p_handler text, p_payload text, p_queue text, p_priority smallint, p_at timestamptz, p_delay interval,
    p_options text, p_horizon interval, out job_id uuid, out scheduled_at timestamptz, out replayed boolean, out needs_hint boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_parent uuid := p_options::jsonb->>'parent';
begin
    perform duly.must_be_ours(p_tenant);
    select submitted.job_id, submitted.scheduled_at, submitted.replayed, submitted.needs_hint into job_id, scheduled_at, replayed, needs_hint
      from duly.submit_one(p_tenant, p_key, p_handler, p_payload, p_queue, p_priority, p_at, p_delay, p_options, p_horizon) as submitted;
    if v_parent is not null and not replayed then
        perform duly.record_subtasks(p_tenant, array[v_parent], array[job_id]);
    end if;
    perform duly.admit(p_tenant, 0, case when replayed then 0 else 1 end);
end $$;

-- Many, of which some may have a parent. submit_many checks their tenant.
create or replace function duly.submit_subtasks(
    p_tenant integer, p_key text, p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[],
    p_at timestamptz[], p_delays interval[], p_options text[], p_hash bytea, p_horizon interval)
returns table (job_id uuid, scheduled_at timestamptz, replayed boolean, needs_hint boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_ids      uuid[];
    v_moments  timestamptz[];
    v_replayed boolean[];
    v_needs_hint boolean[];
begin
    select array_agg(submitted.job_id order by submitted.number), array_agg(submitted.scheduled_at order by submitted.number),
           array_agg(submitted.replayed order by submitted.number), array_agg(submitted.needs_hint order by submitted.number)
      into v_ids, v_moments, v_replayed, v_needs_hint
      from duly.submit_many(p_tenant, p_key, p_handlers, p_payloads, p_queues, p_priorities, p_at, p_delays, p_options, p_hash, p_horizon)
           with ordinality as submitted(job_id, scheduled_at, replayed, needs_hint, number);
    if not v_replayed[1] then
        perform duly.record_subtasks(
            p_tenant, array(select (given.options::jsonb->>'parent')::uuid from unnest(p_options) with ordinality as given(options, number) order by given.number),
            v_ids);
    end if;
    return query select * from unnest(v_ids, v_moments, v_replayed, v_needs_hint);
end $$;

-- The subtasks of a run by falling id, as page_runs gives runs: from a position on, and no more than p_looks of them looked at.
create or replace function duly.page_subtasks(
    p_tenant integer, p_before uuid, p_from uuid, p_parent uuid, p_boxes text[], p_states text[], p_queues text[], p_handlers text[],
    p_job_ids uuid[], p_tags text[], p_any_tags text[], p_scheduled_since timestamptz, p_scheduled_before timestamptz, p_due_since timestamptz,
    p_due_before timestamptz, p_finished_since timestamptz, p_finished_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, state text, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz, worker_id uuid, fence bigint, reason text,
    detail jsonb, metadata jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.state, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.started_at, page.finished_at, page.worker_id, page.fence, page.reason, page.detail,
           duly.metadata_of(page.metadata), null::text
      from (select * from (
                select walk.number, walk.child_id as run_id, found.job_id, found.tenant, found.state, found.queue, found.handler, found.priority,
                       found.attempt, found.scheduled_at, found.due_at, found.started_at, found.finished_at, found.worker_id, found.fence,
                       found.reason, found.detail, found.metadata,
                       coalesce(found.tenant = p_tenant
                       and (p_states is null or found.state = any (p_states)) and (p_queues is null or found.queue = any (p_queues))
                       and (p_handlers is null or found.handler = any (p_handlers)) and (p_job_ids is null or found.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(found.metadata->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(found.metadata->'tags' ?| p_any_tags, false))
                       and (p_scheduled_since is null or found.scheduled_at >= p_scheduled_since)
                       and (p_scheduled_before is null or found.scheduled_at < p_scheduled_before)
                       and (p_due_since is null or found.due_at >= p_due_since) and (p_due_before is null or found.due_at < p_due_before)
                       and (p_finished_since is null or coalesce(found.finished_at >= p_finished_since, false))
                       and (p_finished_before is null or coalesce(found.finished_at < p_finished_before, false)), false) as fits
                  from (select subtasks.run_id as child_id, row_number() over () as number from (
                            select run_id from duly.subtasks where (parent, run_id) < (p_parent, p_before) and (parent, run_id) >= (p_parent, p_from)
                             order by parent desc, run_id desc limit p_looks) as subtasks) as walk
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

-- Subtasks that have not ended, by rising id: these can be cancelled, or asked to stop.
create or replace function duly.live_subtasks(p_parent uuid, p_after uuid, p_limit integer) returns setof uuid
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
begin
    return query
    select subtasks.run_id from duly.subtasks
     cross join lateral (
                  select from duly.timers where timers.run_id = subtasks.run_id
        union all select from duly.blocked where blocked.run_id = subtasks.run_id
        union all select from duly.ready where ready.run_id = subtasks.run_id
        union all select from duly.leased where leased.run_id = subtasks.run_id limit 1) as box
     where subtasks.parent = p_parent and subtasks.run_id > p_after and duly.is_ours(subtasks.tenant)
     order by subtasks.run_id limit p_limit;
end $$;

grant execute on function duly.page_subtasks, duly.submit_checked, duly.submit_subtasks, duly.live_subtasks to duly_api;
