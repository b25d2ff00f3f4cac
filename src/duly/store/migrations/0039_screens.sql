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
