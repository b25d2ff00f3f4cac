-- Dead letters: what people do to runs that gave up, and how they are listed. docs/decisions/0026-retries-and-expiry.md says why.

-- Give dead runs another set of attempts, each so long from now. Their numbers go on; the run keeps its id. A new life begins: what was
-- counted in the one before is not. One with a concurrency key goes by its timer, as ever, and one that is due later waits there.
create or replace function duly.replay(p_run_ids uuid[], p_delays interval[], p_horizon interval) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with risen as (
        delete from duly.dead using unnest(p_run_ids, p_delays) as requested(run_id, delay) where dead.run_id = requested.run_id and duly.is_ours(dead.tenant)
        returning {dead.run: due_at = greatest(v_now + coalesce(requested.delay, interval '0'), scheduled_at), losses = 0::smallint,
                   options = duly.carry_on(options - array['since', 'snoozes', 'probes'],
                                           jsonb_build_object('replays', replays + 1, 'attempts_before', attempt))}),
    bygones as (                                       -- A cancel that came too late for the run's former life is not for this one.
        delete from duly.signals using risen where signals.run_id = risen.run_id),
    by_timer as (
        insert into duly.timers ({run}, shard)
        select risen.*, duly.shard_of(job_id) from risen where duly.must_enter(options) or due_at > v_now + p_horizon
        on conflict do nothing returning run_id),
    at_once as (
        insert into duly.ready ({run})
        select risen.* from risen where not duly.must_enter(options) and due_at <= v_now + p_horizon
        on conflict do nothing returning run_id)
    select run_id from by_timer union all select run_id from at_once;
end $$;

-- Discard dead runs for good, with a record. No callback is sent: one was when the run became dead, and a person has dealt with it.
create or replace function duly.discard(p_run_ids uuid[]) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with removed as (delete from duly.dead where dead.run_id = any (p_run_ids) and duly.is_ours(dead.tenant) returning *),
    unneeded as (delete from duly.checkpoints using removed where checkpoints.run_id = removed.run_id)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, metadata,
                               generation, priority, payload, payload_stored, options)
    select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, 'discarded', duly.metadata_of(options - 'callbacks'),
           nullif(generation, 1), nullif(priority, 5), payload, nullif(payload_stored, false), duly.options_recorded(options, tenant)
      from removed
    returning attempts.run_id;
end $$;

-- Give dead runs another payload, for their replay. It travels with the run, whatever its size.
create or replace function duly.edit_dead(p_tenant integer, p_run_ids uuid[], p_payload jsonb) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    if octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    return query
    with taken as (delete from duly.dead where dead.run_id = any (p_run_ids) and (dead.tenant = p_tenant) is true returning *)
    insert into duly.dead ({run}, buried_at, reason, replays)
    select {run: payload_stored = false, payload = p_payload}, buried_at, reason, replays
      from taken
    returning dead.run_id;
end $$;

------------------------------------------------------------------------------------------------------------------ lists

-- The common part of the reasons of dead runs: the first line, without what differs from run to run. The status of a response, and that
-- of a process, distinguish errors, so they stay. What has no id in it is not searched for one: that was two thirds of what a name
-- costs.
create or replace function duly.error_group(p_reason text) returns text language sql immutable parallel safe as $$
    select left(regexp_replace(
        case when p_reason like '%0x%' or p_reason like '%-%-%-%-%'
             then regexp_replace(regexp_replace(split_part(p_reason, E'\n', 1),
                      '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '…', 'g'), '\m0x[0-9a-fA-F]+\M', '…', 'g')
             else split_part(p_reason, E'\n', 1) end,
        case when p_reason like any (array['%answered %', '%status %', '%HTTP %', '%code %'])
             then '(?<!(answered|status|HTTP|code) \d*)\d+([.,:]\d+)*' else '\d+([.,:]\d+)*' end, '…', 'g'), 200)
$$;

-- Dead letters, the last buried first; also by what is alike in reasons: the names that group_dead gives its groups.
create or replace function duly.page_dead(
    p_tenant integer, p_before_at timestamptz, p_before uuid, p_since timestamptz, p_queues text[], p_handlers text[], p_reasons text[],
    p_beginning text, p_errors text[], p_job_ids uuid[], p_tags text[], p_any_tags text[], p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, buried_at timestamptz, reason text, replays integer, metadata jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    {planned by index, by loop, in order, unsorted} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.buried_at, page.reason, page.replays, duly.metadata_of(page.options), jobs.name
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

-- Dead letters by what is alike in their reasons, the most first; of those that fit, no more than p_looks of the last buried are looked at.
-- From the dead alone: nothing is joined or prepared that is only counted.
create or replace function duly.group_dead(
    p_tenant integer, p_before_at timestamptz, p_before uuid, p_since timestamptz, p_queues text[], p_handlers text[], p_reasons text[],
    p_beginning text, p_errors text[], p_job_ids uuid[], p_tags text[], p_any_tags text[], p_limit integer, p_looks integer)
returns table (error text, count bigint, handlers text[], first_buried_at timestamptz, last_buried_at timestamptz, sample uuid[], looked bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, in order} as $$
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

grant execute on function duly.page_dead, duly.group_dead, duly.replay, duly.discard, duly.edit_dead to duly_api;
