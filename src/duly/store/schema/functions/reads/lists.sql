-- Pages of jobs and runs. docs/decisions/0040-keyset-pages-with-bounded-reads.md says why.
--
-- A page is read in the order of its key from a position on. It ends with as many rows as were requested, or when p_looks rows
-- were looked at, whatever the filter leaves of them: so no page takes long, however rare what is looked for. The last row
-- looked at comes along, fitting or not: the next page goes on behind it. Keys are compared as rows and the order names them
-- whole, so that no other index can serve and nothing outside the tenant is read. They have the rights of their owner, and check whose
-- it is first: a policy would make the tenant a constant for the planner, which would take it out of the order, and then read on.

-- Recurring jobs by falling id. p_by is what leads to them: a tag, or a column that must have p_value. A beginning of names leads
-- there itself when few begin so. Texts are chosen by what was requested, never made of it.
create or replace function duly.page_jobs(
    p_tenant integer, p_before uuid, p_from uuid, p_by text, p_value text, p_states text[], p_queues text[], p_handlers text[], p_owners text[],
    p_names text[], p_beginning text, p_tags text[], p_any_tags text[], p_created_since timestamptz, p_created_before timestamptz,
    p_next_since timestamptz, p_next_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, job_id uuid, tenant integer, name text, state text, queue text, handler text, priority smallint, generation integer,
    every_seconds integer, anchor_at timestamptz, schedule jsonb, owner text, source text, pause_reason text, paused_at timestamptz,
    removed_at timestamptz, failures integer, options jsonb, created_at timestamptz, updated_at timestamptz, next_run_at timestamptz,
    pending_at timestamptz, runs_left integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, by loop, in order} as $$
declare
    v_walk text;
    v_few  boolean := false;
begin
    perform duly.must_be_ours(p_tenant);
    if p_beginning is not null and p_by = 'tenant' then
        select count(*) <= p_looks into v_few from (
            select from duly.jobs where (jobs.tenant, jobs.name collate "C") >= (p_tenant, p_beginning) and jobs.name is not null
               and (jobs.tenant, jobs.name collate "C") < (p_tenant, p_beginning || U&'\+10FFFF') limit p_looks + 1) as found;
    end if;
    v_walk := case
        when v_few then 'select jobs.* from duly.jobs where jobs.name is not null
            and (jobs.tenant, jobs.name collate "C") >= ($1, $10) and (jobs.tenant, jobs.name collate "C") < ($1, $10 || U&''\+10FFFF'')
            and jobs.job_id < $3 and jobs.job_id >= $4 order by jobs.job_id desc'
        when p_by = 'tag' then 'select jobs.* from duly.job_tags as walk join duly.jobs on jobs.job_id = walk.job_id
            where (walk.tenant, walk.tag, walk.job_id) < ($1, $2, $3) and (walk.tenant, walk.tag, walk.job_id) >= ($1, $2, $4)
            order by walk.tenant desc, walk.tag desc, walk.job_id desc'
        when p_by = 'name' then 'select walk.* from duly.jobs as walk where walk.name is not null
            and (walk.tenant, walk.name collate "C", walk.job_id) < ($1, $2, $3) and (walk.tenant, walk.name collate "C", walk.job_id) >= ($1, $2, $4)
            order by walk.tenant desc, walk.name collate "C" desc, walk.job_id desc'
        when p_by in ('state', 'queue', 'handler') then format('select walk.* from duly.jobs as walk
            where (walk.tenant, walk.%1$I, walk.job_id) < ($1, $2, $3) and (walk.tenant, walk.%1$I, walk.job_id) >= ($1, $2, $4)
            order by walk.tenant desc, walk.%1$I desc, walk.job_id desc', p_by)
        else 'select walk.* from duly.jobs as walk where (walk.tenant, walk.job_id) < ($1, $3) and (walk.tenant, walk.job_id) >= ($1, $4)
            order by walk.tenant desc, walk.job_id desc' end;
    return query execute format($page$
        select page.fits, page.number, page.job_id, page.tenant, page.name, page.state, page.queue, page.handler, page.priority, page.generation,
               page.every_seconds, page.anchor_at, page.schedule, page.owner, page.source, page.pause_reason, page.paused_at, page.removed_at,
               page.failures, page.options, page.created_at, page.updated_at,
               duly.next_run_at(timers, (select duly.clock_now())), timers.scheduled_at, timers.runs_left
          from (select * from (select jobs.*, row_number() over () as number, %s as fits from (%s limit $18) as jobs) as looked
                 where looked.fits or looked.number = $18 limit $17) as page
          left join duly.timers on timers.job_id = page.job_id and timers.run_id is null
         order by page.number $page$,
        concat_ws(' and ', 'true',
            case when p_states is not null then 'jobs.state = any ($5)' end, case when p_queues is not null then 'jobs.queue = any ($6)' end,
            case when p_handlers is not null then 'jobs.handler = any ($7)' end, case when p_owners is not null then 'jobs.owner = any ($8)' end,
            case when p_names is not null then 'coalesce(jobs.name = any ($9), false)' end,
            case when p_beginning is not null then 'coalesce(starts_with(jobs.name, $10), false)' end,
            case when p_tags is not null then 'coalesce(jobs.options->''tags'' ?& $11, false)' end,
            case when p_any_tags is not null then 'coalesce(jobs.options->''tags'' ?| $12, false)' end,
            case when p_created_since is not null then 'jobs.created_at >= $13' end,
            case when p_created_before is not null then 'jobs.created_at < $14' end,
            case when p_next_since is not null or p_next_before is not null then
                'exists (select from duly.timers as fire where fire.job_id = jobs.job_id and fire.run_id is null
                            and duly.next_run_at(fire, (select duly.clock_now())) >= coalesce($15, ''-infinity'') and duly.next_run_at(fire, (select duly.clock_now())) < coalesce($16, ''infinity''))' end),
        v_walk)
    using p_tenant, p_value, p_before, p_from, p_states, p_queues, p_handlers, p_owners, p_names, p_beginning, p_tags, p_any_tags,
          p_created_since, p_created_before, p_next_since, p_next_before, p_limit, p_looks;
end $$;

-- As page_jobs, by name and from a name on, by the index that finds names. A job without a name has no position in this order.
create or replace function duly.page_jobs_by_name(
    p_tenant integer, p_after_name text, p_after uuid, p_until_name text, p_states text[], p_queues text[], p_handlers text[], p_owners text[],
    p_names text[], p_beginning text, p_tags text[], p_any_tags text[], p_created_since timestamptz, p_created_before timestamptz,
    p_next_since timestamptz, p_next_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, job_id uuid, tenant integer, name text, state text, queue text, handler text, priority smallint, generation integer,
    every_seconds integer, anchor_at timestamptz, schedule jsonb, owner text, source text, pause_reason text, paused_at timestamptz,
    removed_at timestamptz, failures integer, options jsonb, created_at timestamptz, updated_at timestamptz, next_run_at timestamptz,
    pending_at timestamptz, runs_left integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    {planned by index, by loop, in order, unsorted} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.job_id, page.tenant, page.name, page.state, page.queue, page.handler, page.priority, page.generation,
           page.every_seconds, page.anchor_at, page.schedule, page.owner, page.source, page.pause_reason, page.paused_at, page.removed_at,
           page.failures, page.options, page.created_at, page.updated_at,
           duly.next_run_at(timers, (select duly.clock_now())), timers.scheduled_at, timers.runs_left
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
                             where fire.job_id = walk.job_id and fire.run_id is null
                               and duly.next_run_at(fire, (select duly.clock_now())) >= coalesce(p_next_since, '-infinity')
                               and duly.next_run_at(fire, (select duly.clock_now())) < coalesce(p_next_before, 'infinity'))) as fits
                  from (select jobs.* from duly.jobs
                         where jobs.name is not null
                           and (jobs.tenant, jobs.name collate "C", jobs.job_id) > (p_tenant, p_after_name, p_after)
                           and (jobs.tenant, jobs.name collate "C") < (p_tenant, p_until_name)
                         order by jobs.tenant, jobs.name collate "C", jobs.job_id limit p_looks) as walk) as looked
             where looked.fits or looked.number = p_looks limit p_limit) as page
      left join duly.timers on timers.job_id = page.job_id and timers.run_id is null;
end $$;

-- As page_jobs_by_name, those that will fire, by when they do. No index has that order, for each fire would pay for it: all that stand are
-- read and put in order, so a tenant with more than p_most of them is refused. A job without a next fire has no position in this order.
create or replace function duly.page_jobs_by_next(
    p_tenant integer, p_after_at timestamptz, p_after uuid, p_states text[], p_queues text[], p_handlers text[], p_owners text[],
    p_names text[], p_beginning text, p_tags text[], p_any_tags text[], p_created_since timestamptz, p_created_before timestamptz,
    p_next_since timestamptz, p_next_before timestamptz, p_limit integer, p_most integer)
returns table (
    fits boolean, number bigint, job_id uuid, tenant integer, name text, state text, queue text, handler text, priority smallint, generation integer,
    every_seconds integer, anchor_at timestamptz, schedule jsonb, owner text, source text, pause_reason text, paused_at timestamptz,
    removed_at timestamptz, failures integer, options jsonb, created_at timestamptz, updated_at timestamptz, next_run_at timestamptz,
    pending_at timestamptz, runs_left integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, by loop, in order} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    if (select count(*) from (select from duly.jobs where tenant = p_tenant and state in ('active', 'paused') limit p_most + 1) as standing) > p_most then
        raise exception 'sort=next_run_at is for up to % jobs, and there are more; sort by created or name, or ask for next_run_at<"…" in the filter', p_most
            using errcode = 'DU005';
    end if;
    return query
    select true, row_number() over (order by fire.next_run_at, jobs.job_id), jobs.job_id, jobs.tenant, jobs.name, jobs.state, jobs.queue, jobs.handler,
           jobs.priority, jobs.generation, jobs.every_seconds, jobs.anchor_at, jobs.schedule, jobs.owner, jobs.source, jobs.pause_reason, jobs.paused_at,
           jobs.removed_at, jobs.failures, jobs.options, jobs.created_at, jobs.updated_at, fire.next_run_at, timers.scheduled_at, timers.runs_left
      from duly.jobs join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null
     cross join lateral (select duly.next_run_at(timers, (select duly.clock_now())) as next_run_at offset 0) as fire
     where jobs.tenant = p_tenant and jobs.state = 'active' and (fire.next_run_at, jobs.job_id) > (p_after_at, p_after)
       and (p_states is null or jobs.state = any (p_states)) and (p_queues is null or jobs.queue = any (p_queues))
       and (p_handlers is null or jobs.handler = any (p_handlers)) and (p_owners is null or jobs.owner = any (p_owners))
       and (p_names is null or jobs.name = any (p_names)) and (p_beginning is null or starts_with(jobs.name, p_beginning))
       and (p_tags is null or coalesce(jobs.options->'tags' ?& p_tags, false))
       and (p_any_tags is null or coalesce(jobs.options->'tags' ?| p_any_tags, false))
       and (p_created_since is null or jobs.created_at >= p_created_since)
       and (p_created_before is null or jobs.created_at < p_created_before)
       and fire.next_run_at >= coalesce(p_next_since, '-infinity') and fire.next_run_at < coalesce(p_next_before, 'infinity')
     order by fire.next_run_at, jobs.job_id limit p_limit;
end $$;

-- Runs by falling id, wherever they stand; p_boxes are those in which a run can be as it is requested. One statement, so one moment:
-- a run is in one box. What stands in history twice, skipped and later caught up, is separated by the reader. The plan is made
-- once for a connection: there are many days of history to plan for.
create or replace function duly.page_runs(
    p_tenant integer, p_before uuid, p_from uuid, p_boxes text[], p_states text[], p_queues text[], p_handlers text[],
    p_job_ids uuid[], p_tags text[], p_any_tags text[], p_scheduled_since timestamptz, p_scheduled_before timestamptz, p_due_since timestamptz,
    p_due_before timestamptz, p_finished_since timestamptz, p_finished_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, state text, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz, worker_id uuid, fence bigint, reason text,
    detail jsonb, metadata jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    {planned by index, by loop, in order, unsorted, once} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.state, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.started_at, page.finished_at, page.worker_id, page.fence, page.reason, page.detail,
           duly.metadata_of(page.metadata), jobs.name
      from (select * from (
                select walk.*, row_number() over () as number,
                       walk.tenant = p_tenant
                       and (p_states is null or walk.state = any (p_states)) and (p_queues is null or walk.queue = any (p_queues))
                       and (p_handlers is null or walk.handler = any (p_handlers)) and (p_job_ids is null or walk.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(walk.metadata->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(walk.metadata->'tags' ?| p_any_tags, false))
                       and (p_scheduled_since is null or walk.scheduled_at >= p_scheduled_since)
                       and (p_scheduled_before is null or walk.scheduled_at < p_scheduled_before)
                       and (p_due_since is null or walk.due_at >= p_due_since) and (p_due_before is null or walk.due_at < p_due_before)
                       and (p_finished_since is null or coalesce(walk.finished_at >= p_finished_since, false))
                       and (p_finished_before is null or coalesce(walk.finished_at < p_finished_before, false)) as fits
                  from (select * from (
                                   (select * from duly.listed_timers where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'timers' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_blocked where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'blocked' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_ready where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'ready' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_leased where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'leased' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_dead where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'dead' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_succeeded where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'succeeded' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_ended where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'ended' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)) as boxes
                         order by tenant desc, run_id desc limit p_looks) as walk) as looked
             where looked.fits or looked.number = p_looks limit p_limit) as page
      left join duly.jobs on jobs.job_id = page.job_id and page.job_id <> page.run_id;
end $$;

-- The runs of a job, as page_runs gives runs. A one-shot is its only run: p_behind is the id behind it.
create or replace function duly.page_runs_of_job(
    p_tenant integer, p_before uuid, p_from uuid, p_job_id uuid, p_behind uuid, p_boxes text[], p_states text[], p_queues text[], p_handlers text[],
    p_job_ids uuid[], p_tags text[], p_any_tags text[], p_scheduled_since timestamptz, p_scheduled_before timestamptz, p_due_since timestamptz,
    p_due_before timestamptz, p_finished_since timestamptz, p_finished_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, state text, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz, worker_id uuid, fence bigint, reason text,
    detail jsonb, metadata jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    {planned by index, by loop, in order, unsorted, once} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    if not exists (select from duly.jobs where jobs.job_id = p_job_id and jobs.tenant = p_tenant) then
        return query
        select * from duly.page_runs(p_tenant, least(p_before, p_behind), greatest(p_from, p_job_id), p_boxes, p_states, p_queues, p_handlers,
                                        p_job_ids, p_tags, p_any_tags, p_scheduled_since, p_scheduled_before, p_due_since, p_due_before,
                                        p_finished_since, p_finished_before, p_limit, p_looks);
        return;
    end if;
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.state, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.started_at, page.finished_at, page.worker_id, page.fence, page.reason, page.detail,
           duly.metadata_of(page.metadata), jobs.name
      from (select * from (
                select walk.*, row_number() over () as number,
                       walk.tenant = p_tenant
                       and (p_states is null or walk.state = any (p_states)) and (p_queues is null or walk.queue = any (p_queues))
                       and (p_handlers is null or walk.handler = any (p_handlers)) and (p_job_ids is null or walk.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(walk.metadata->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(walk.metadata->'tags' ?| p_any_tags, false))
                       and (p_scheduled_since is null or walk.scheduled_at >= p_scheduled_since)
                       and (p_scheduled_before is null or walk.scheduled_at < p_scheduled_before)
                       and (p_due_since is null or walk.due_at >= p_due_since) and (p_due_before is null or walk.due_at < p_due_before)
                       and (p_finished_since is null or coalesce(walk.finished_at >= p_finished_since, false))
                       and (p_finished_before is null or coalesce(walk.finished_at < p_finished_before, false)) as fits
                  from (select * from (
                                   (select * from duly.listed_timers where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'timers' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_blocked where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'blocked' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_ready where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'ready' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_leased where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'leased' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_dead where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'dead' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_succeeded where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'succeeded' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_ended where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'ended' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)) as boxes
                         order by job_id desc, run_id desc limit p_looks) as walk) as looked
             where looked.fits or looked.number = p_looks limit p_limit) as page
      left join duly.jobs on jobs.job_id = page.job_id and page.job_id <> page.run_id;
end $$;

-- Describe in words what a run in blocked waits for.
create or replace function duly.wait_text(p_waits_for duly.wait, p_key text, p_options jsonb) returns text language sql immutable parallel safe as $$
    select case p_waits_for
                when 'recall' then 'waits for the change for which it was taken back from its worker'
                when 'dependency' then 'waits for the jobs it depends on'
                when 'workflow' then case when p_options ? 'node' then 'waits for its parents in workflow ' else 'waits in workflow ' end || p_key
                when 'rate' then 'waits for a reservation at rate ' || p_key
                when 'destination' then 'waits for destination ' || p_key
                else case when p_key like 'overlap/%' then 'waits for the run of its schedule before it'
                          when p_key like 'catch-up/%' or p_key like 'backfill/%' then 'waits for the catch-up occurrences before it'
                          when coalesce(p_options->'fifo', 'false') not in ('false', 'null') then 'waits in FIFO order for a slot of ' || p_key
                          else 'waits for a slot of ' || p_key end end
$$;

grant execute on function duly.page_jobs, duly.page_jobs_by_name, duly.page_jobs_by_next, duly.page_runs,
    duly.page_runs_of_job, duly.wait_text to duly_api;
