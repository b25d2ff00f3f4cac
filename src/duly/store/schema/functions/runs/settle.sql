-- Settle: record what attempts came to, and move each run on to what it became.
--
-- In these, `(…) is true` keeps the planner from walking all of a worker's leases by their index for each row it looks for.

-- Return whether the end of a run has a consequence besides its record: it leaves a concurrency key, arms the next fire, or is counted.
create or replace function duly.has_consequence(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ?| array['concurrency', 'rearm', 'watch'], false)
$$;

-- A cancel was requested of this holder: then the run is not retried.
create or replace function duly.is_cancelling(p_worker_id uuid, p_run_id uuid, p_fence bigint) returns boolean language sql stable as $$
    select exists (select from duly.signals where worker_id = p_worker_id and run_id = p_run_id and fence = p_fence and kind = 'cancel')
$$;

-- Record successes that have no consequence and take the runs back from their worker. Moments are seconds since 1970. Where a run was not
-- there, nothing has changed for it, and the answer names those that were: so nearly always it is one word.
create or replace function duly.finish(
    p_worker_id uuid, p_tids tid[], p_fences bigint[], p_started double precision[], p_finished double precision[], p_results jsonb[],
    out is_all boolean, out run_ids uuid[], out fences bigint[])
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
begin
    with done as (
        delete from duly.leased using unnest(p_tids, p_fences, p_started, p_finished, p_results) as held(tid, fence, started, finished, result)
         where leased.ctid = held.tid and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.*, to_timestamp(held.started) as started_at, to_timestamp(held.finished) as finished_at, held.result),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, result, metadata, generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, 'succeeded', 'succeeded',
               queue, handler, worker_id, result, duly.metadata_of(options), nullif(generation, 1), nullif(priority, 5),
               case when pg_column_size(payload) <= coalesce((select payload_bytes from duly.history_limits), 8192) then payload end,
               case when payload_stored then true when pg_column_size(payload) > coalesce((select payload_bytes from duly.history_limits), 8192) then false end,
               case when (select exists (select from duly.redactions)) then duly.options_recorded(options, tenant) else duly.options_kept(options) end
          from done
        returning attempts.run_id, attempts.fence),
    counted as materialized (
        select count(*) = cardinality(p_tids) as is_all from recorded)
    select counted.is_all, case when not counted.is_all then array(select recorded.run_id from recorded) end,
           case when not counted.is_all then array(select recorded.fence from recorded) end
      into is_all, run_ids, fences from counted;
end $$;

-- Record any outcomes and move each run on to what it became: back to ready or timers, into dead, or out of the boxes.
-- Rows are named by run and fence, which is valid in any box. A run that is in the next box already is not lost, so
-- a duplicate there is passed over: nothing may block a batch. p_carried is laid over the options of each run that goes on.
create or replace function duly.settle(
    p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_started timestamptz[], p_finished timestamptz[], p_outcomes duly.outcome[],
    p_became duly.state[], p_delays interval[], p_losses smallint[], p_suspects boolean[], p_reasons text[], p_results jsonb[], p_details jsonb[],
    p_carried jsonb[], p_horizon interval default '5 seconds')
returns table (run_id uuid, fence bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_run_ids uuid[];
    v_fences  bigint[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
    v_became  text[];
begin
    if not duly.speaks_for(p_worker_id) then
        return;
    end if;
    with done as (                                     -- A skipped run made no attempt.
        delete from duly.leased using unnest(p_run_ids, p_fences, p_started, p_finished, p_outcomes, p_became, p_delays, p_losses, p_suspects,
                                             p_reasons, p_results, p_details, p_carried)
             as held(run_id, fence, started_at, finished_at, outcome, became, delay, losses, suspect, reason, result, detail, carried)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
           and duly.is_ours(leased.tenant)
        returning {leased.run: due_at = greatest(v_now + held.delay, leased.scheduled_at),
                   attempt = case when held.outcome = 'skipped' then leased.attempt - 1 else leased.attempt end,
                   losses = held.losses, suspect = held.suspect, options = duly.carry_on(leased.options, held.carried)},
                  leased.due_at as was_due_at, leased.fence, leased.worker_id, held.started_at,
                  coalesce(held.finished_at, v_now) as finished_at, held.outcome, held.reason, held.result, held.detail,
                  case when held.became = 'retrying' and duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence)
                       then 'cancelled' else held.became end as became),
    retrying as (                                      -- A retry is part of its run, so it keeps the slot where order matters; any other concurrency key's it gives back.
        select done.*, case when duly.keeps_slot(options) then options || '{"has_slot": true}' else options end as carried from done where became = 'retrying'),
    requeued as (
        insert into duly.ready ({run})
        select {run: options = carried}
          from retrying where due_at <= v_now + p_horizon and not duly.must_enter(carried)
        on conflict do nothing),
    later as (
        insert into duly.timers ({run}, shard)
        select {run: options = carried}, duly.shard_of(job_id)
          from retrying where due_at > v_now + p_horizon or duly.must_enter(carried)
        on conflict do nothing),
    buried as (
        insert into duly.dead ({run}, buried_at, reason, replays)
        select {run: due_at = was_due_at, options = options - array['has_slot', 'rearm']}, v_now, coalesce(reason, outcome::text),
               coalesce((options->>'replays')::integer, 0)
          from done where became = 'dead'
        on conflict do nothing),
    unneeded as (
        delete from duly.checkpoints using done where checkpoints.run_id = done.run_id and done.became not in ('retrying', 'dead')),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, reason, result, detail, metadata, generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, was_due_at, started_at, finished_at, fence, tenant,
               attempt, outcome, became, queue, handler, worker_id, reason, result, detail, duly.metadata_of(options),
               case when ends then nullif(generation, 1) end, case when ends then nullif(priority, 5) end,
               case when ends and (became <> 'succeeded' or pg_column_size(payload) <= coalesce((select payload_bytes from duly.history_limits), 8192)) then payload end,
               case when not ends then null when payload_stored then true
                    when became = 'succeeded' and pg_column_size(payload) > coalesce((select payload_bytes from duly.history_limits), 8192) then false end,
               case when not ends then null
                    when (select exists (select from duly.redactions)) then duly.options_recorded(options, tenant) else duly.options_kept(options) end
          from (select done.*, became not in ('retrying', 'dead') as ends from done) as done
        returning attempts.run_id, attempts.fence),
    leaving as (
        select job_id, tenant, options, became from done
         where (became <> 'retrying' and duly.has_consequence(options)) or (duly.has_limits(options) and not duly.keeps_slot(options)))
    select (select array_agg(run_id order by run_id) from recorded), (select array_agg(fence order by run_id) from recorded),
           array_agg(leaving.job_id), array_agg(leaving.tenant), array_agg(leaving.options), array_agg(leaving.became::text)
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options, v_became from leaving;
    perform duly.leave(v_job_ids, v_tenants, v_options, v_became, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- After an unknown commit, the answer to "was it me?". A loss recorded by the reaper under the worker's name is no outcome of it.
create or replace function duly.already_settled(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[])
returns table (run_id uuid, fence bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
begin
    return query
    select settled.run_id, settled.fence from unnest(p_run_ids, p_fences) as requested(run_id, fence)
     cross join lateral (                              -- The limit keeps each from being looked for among all of history.
           select attempts.run_id, attempts.fence from duly.attempts
            where attempts.run_id = requested.run_id
              and (attempts.fence = requested.fence and attempts.worker_id = p_worker_id and attempts.outcome not in ('fenced', 'lost')) is true
              and duly.is_ours(attempts.tenant)
            limit 1) as settled;
end $$;

-- Keep a record of outcomes that came after the lease was lost. Repeated after an unknown commit, nothing is recorded twice.
create or replace function duly.record_fenced(
    p_worker_id uuid, p_run_ids uuid[], p_job_ids uuid[], p_scheduled timestamptz[], p_due timestamptz[], p_started timestamptz[],
    p_finished timestamptz[], p_fences bigint[], p_tenants integer[], p_attempts integer[], p_queues text[], p_handlers text[], p_reasons text[])
returns void
language plpgsql {planned by index, by loop} as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became, queue,
                               handler, worker_id, reason)
    select refused.run_id, refused.job_id, refused.scheduled_at, refused.due_at, refused.started_at, coalesce(refused.finished_at, v_now),
           refused.fence, refused.tenant, refused.attempt, 'fenced', 'running', refused.queue, refused.handler, p_worker_id, refused.reason
      from unnest(p_run_ids, p_job_ids, p_scheduled, p_due, p_started, p_finished, p_fences, p_tenants, p_attempts, p_queues, p_handlers, p_reasons)
           as refused(run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, queue, handler, reason)
     where not exists (select from duly.attempts where attempts.run_id = refused.run_id and attempts.fence = refused.fence
                          and attempts.worker_id = p_worker_id and attempts.outcome = 'fenced');
end $$;

----------------------------------------------------------------------------------------------- consequences of an end

-- The consequences of the end of runs, besides their record. Next fires are taken before concurrency keys, as everywhere; only those that hold a slot
-- leave one. Without p_became they were cancelled.
create or replace function duly.leave(p_job_ids uuid[], p_tenants integer[], p_options jsonb[], p_became text[], p_now timestamptz) returns void
language plpgsql as $$
declare
    v_run record;
begin
    for v_run in select u.job_id, u.options, u.became from unnest(p_job_ids, p_options, p_became) as u(job_id, options, became)
                  where u.options ?| array['rearm', 'watch'] and u.became is distinct from 'retrying' order by u.job_id loop
        if v_run.options ? 'rearm' then
            perform duly.rearm(v_run.job_id, p_now);
        end if;
        if v_run.options ? 'watch' and v_run.became = 'dead' then
            perform duly.count_failure(v_run.job_id, (v_run.options->>'watch')::integer, p_now);
        elsif v_run.options ? 'watch' and v_run.became = 'succeeded' then
            update duly.jobs set failures = 0 where jobs.job_id = v_run.job_id and jobs.failures > 0;
        end if;
    end loop;
    perform duly.release(array_agg(u.tenant), array_agg(u.options), 1, null)
       from unnest(p_tenants, p_options) as u(tenant, options) where u.options ? 'concurrency' having count(*) > 0;
end $$;

-- Count a run that failed for good, and pause its schedule after so many in a row.
create or replace function duly.count_failure(p_job_id uuid, p_failures_max integer, p_now timestamptz) returns void
language plpgsql as $$
declare
    v_timer    duly.timers := duly.take_next_fire(p_job_id);
    v_failures integer;
begin
    if v_timer.job_id is null or v_timer.runs_left = 0 then
        perform duly.put_next_fire(v_timer) where v_timer.job_id is not null;
        return;
    end if;
    update duly.jobs set failures = jobs.failures + 1 where jobs.job_id = p_job_id returning jobs.failures into v_failures;
    if v_failures >= p_failures_max then
        update duly.jobs set state = 'paused', paused_at = p_now, updated_at = p_now, pause_reason = format('%s runs in a row failed', v_failures)
         where jobs.job_id = p_job_id and jobs.state = 'active';
        v_timer.due_at := 'infinity';
    end if;
    perform duly.put_next_fire(v_timer);
end $$;

grant execute on function duly.settle, duly.already_settled to duly_api;
