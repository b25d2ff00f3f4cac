-- Runs whose destination must not be called now wait for it in blocked.
-- docs/decisions/0028-targets-travel-with-the-run.md says why.

-- Take runs that were not started back from their worker, without using up their attempt. As with a retry, the slot of an
-- overlap is kept, because the run goes on; any other concurrency key's is given back, and what waits for a rate only has none to give. One whose cancel
-- is under way ends here.
create or replace function duly.await_destination(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_origins text[])
returns table (run_id uuid, fence bigint)
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_run_ids uuid[];
    v_fences  bigint[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with taken as (
        delete from duly.leased using unnest(p_run_ids, p_fences, p_origins) as held(run_id, fence, origin)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.*, held.origin, duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence) as cancelled),
    waiting as (
        insert into duly.blocked ({run}, waits_for, key, blocked_at)
        select {run: attempt = attempt - 1, options = case when options ? 'overlap' then options || '{"has_slot": true}' else options end},
               'destination', origin, v_now
          from taken where not cancelled
        on conflict do nothing),
    ended as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, metadata,
                                   generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt - 1, 'cancelled', 'cancelled', queue, handler, 'cancelled', duly.metadata_of(options),
               nullif(generation, 1), nullif(priority, 5), payload, nullif(payload_stored, false), duly.options_recorded(options, tenant)
          from taken where cancelled),
    leaving as (
        select job_id, tenant, case when cancelled then options else jsonb_build_object('concurrency', options->'concurrency') end as options from taken
         where (cancelled and duly.has_consequence(options)) or (options ? 'concurrency' and not options ? 'overlap'))
    select (select array_agg(run_id order by run_id) from taken), (select array_agg(fence order by run_id) from taken),
           array_agg(job_id), array_agg(tenant), array_agg(options)
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options from leaving;
    perform duly.leave(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- Let the oldest of those that wait for a destination go on. They have waited. One that has to enter a concurrency key of its own goes by way of
-- timers, as a retry does; stage lets it in.
create or replace function duly.release_destination_runs(p_tenant integer, p_origin text, p_limit integer) returns integer
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_moved integer;
begin
    with waiting as (
        delete from duly.blocked where run_id = any (array(
            select run_id from duly.blocked where blocked.tenant = p_tenant and blocked.waits_for = 'destination' and blocked.key = p_origin
             order by due_at, run_id limit p_limit for update skip locked))
        returning blocked.*),
    staged as (
        insert into duly.ready ({run})
        select {run: options = duly.having_waited(options)}
          from waiting where not duly.must_enter(options)
        on conflict do nothing),
    requeued as (
        insert into duly.timers ({run}, shard)
        select {run: options = duly.having_waited(options)}, duly.shard_of(job_id)
          from waiting where duly.must_enter(options)
        on conflict do nothing)
    select count(*) into v_moved from waiting;
    return v_moved;
end $$;
