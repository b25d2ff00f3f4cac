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
