-- Jobs in the order of their names, dead letters by what is alike in their reasons, and workers that are asked to take nothing more.

---------------------------------------------------------------------------------------------------------------- workers

-- Since when it takes nothing new: it hears of that with its signals, finishes what it runs and hands back the rest.
alter table duly.workers add column draining_at timestamptz;

create function duly.is_draining(p_worker_id uuid) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (select from duly.workers where worker_id = p_worker_id and draining_at is not null)
$$;

------------------------------------------------------------------------------------------------------------------ lists

-- As page_jobs_v1, by name and from a name on, by the index that finds names. A job without a name has no place in this order.
create function duly.page_jobs_by_name_v1(
    p_tenant integer, p_after_name text, p_after uuid, p_until_name text, p_states text[], p_queues text[], p_handlers text[], p_owners text[],
    p_names text[], p_beginning text, p_tags text[], p_any_tags text[], p_created_since timestamptz, p_created_before timestamptz,
    p_next_since timestamptz, p_next_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, job_id uuid, tenant integer, name text, state text, queue text, handler text, priority smallint, generation integer,
    every_seconds integer, anchor_at timestamptz, schedule jsonb, owner text, source text, pause_reason text, paused_at timestamptz,
    removed_at timestamptz, failures integer, options jsonb, created_at timestamptz, updated_at timestamptz, next_run_at timestamptz,
    pending_at timestamptz, runs_left integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
    set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.job_id, page.tenant, page.name, page.state, page.queue, page.handler, page.priority, page.generation,
           page.every_seconds, page.anchor_at, page.schedule, page.owner, page.source, page.pause_reason, page.paused_at, page.removed_at,
           page.failures, page.options, page.created_at, page.updated_at,
           case when timers.due_at < 'infinity' then timers.scheduled_at end, timers.scheduled_at, timers.runs_left
      from (select * from (
                select walk.*, row_number() over () as number,
                       (p_states is null or walk.state = any (p_states)) and (p_queues is null or walk.queue = any (p_queues))
                       and (p_handlers is null or walk.handler = any (p_handlers)) and (p_owners is null or walk.owner = any (p_owners))
                       and (p_names is null or walk.name = any (p_names)) and (p_beginning is null or starts_with(walk.name, p_beginning))
                       and (p_tags is null or coalesce(walk.options->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(walk.options->'tags' ?| p_any_tags, false))
                       and (p_created_since is null or walk.created_at >= p_created_since)
                       and (p_created_before is null or walk.created_at < p_created_before)
                       and (p_next_since is null and p_next_before is null or exists (
                            select from duly.timers as fire
                             where fire.job_id = walk.job_id and fire.run_id is null and fire.due_at < 'infinity'
                               and fire.scheduled_at >= coalesce(p_next_since, '-infinity')
                               and fire.scheduled_at < coalesce(p_next_before, 'infinity'))) as fits
                  from (select jobs.* from duly.jobs
                         where jobs.name is not null
                           and (jobs.tenant, jobs.name collate "C", jobs.job_id) > (p_tenant, p_after_name, p_after)
                           and (jobs.tenant, jobs.name collate "C") < (p_tenant, p_until_name)
                         order by jobs.tenant, jobs.name collate "C", jobs.job_id limit p_looks) as walk) as looked
             where looked.fits or looked.number = p_looks limit p_limit) as page
      left join duly.timers on timers.job_id = page.job_id and timers.run_id is null;
end $$;

-- As page_dead_v1, and by what is alike in reasons: the names that group_dead_v2 gives its groups.
create function duly.page_dead_v2(
    p_tenant integer, p_before_at timestamptz, p_before uuid, p_since timestamptz, p_queues text[], p_handlers text[], p_reasons text[],
    p_beginning text, p_errors text[], p_job_ids uuid[], p_tags text[], p_any_tags text[], p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, buried_at timestamptz, reason text, replays integer, marks jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
    set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.buried_at, page.reason, page.replays, duly.marks_of(page.options), jobs.name
      from (select * from (
                select walk.*, row_number() over () as number,
                       (p_queues is null or walk.queue = any (p_queues)) and (p_handlers is null or walk.handler = any (p_handlers))
                       and (p_reasons is null or walk.reason = any (p_reasons)) and (p_beginning is null or starts_with(walk.reason, p_beginning))
                       and (p_errors is null or duly.error_group(walk.reason) = any (p_errors))
                       and (p_job_ids is null or walk.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(walk.options->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(walk.options->'tags' ?| p_any_tags, false)) as fits
                  from (select * from duly.dead
                         where (tenant, buried_at, run_id) < (p_tenant, p_before_at, p_before) and (tenant, buried_at) >= (p_tenant, p_since)
                         order by tenant desc, buried_at desc, run_id desc limit p_looks) as walk) as looked
             where looked.fits or looked.number = p_looks limit p_limit) as page
      left join duly.jobs on jobs.job_id = page.job_id and page.job_id <> page.run_id;
end $$;

create function duly.group_dead_v2(
    p_tenant integer, p_before_at timestamptz, p_before uuid, p_since timestamptz, p_queues text[], p_handlers text[], p_reasons text[],
    p_beginning text, p_errors text[], p_job_ids uuid[], p_tags text[], p_any_tags text[], p_limit integer, p_looks integer)
returns table (error text, count bigint, handlers text[], first_buried_at timestamptz, last_buried_at timestamptz, sample uuid[], looked bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
begin
    return query
    with page as (
        select * from duly.page_dead_v2(p_tenant, p_before_at, p_before, p_since, p_queues, p_handlers, p_reasons, p_beginning, p_errors, p_job_ids,
                                        p_tags, p_any_tags, p_looks, p_looks))
    select duly.error_group(page.reason) as error, count(*) as count, (array_agg(distinct page.handler))[1:5], min(page.buried_at), max(page.buried_at),
           (array_agg(page.run_id order by page.buried_at desc))[1:3], (select max(page.number) from page)
      from page where page.fits group by 1 order by count desc, error limit p_limit;
end $$;

revoke execute on function duly.is_draining, duly.page_jobs_by_name_v1, duly.page_dead_v2, duly.group_dead_v2 from public;
grant execute on function duly.is_draining, duly.page_jobs_by_name_v1, duly.page_dead_v2, duly.group_dead_v2 to duly_api;
