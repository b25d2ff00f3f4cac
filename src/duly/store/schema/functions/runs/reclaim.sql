-- Reclaim: runs that leave a worker without an outcome of it, because they were never started, or it has expired, or it does not let go.

-- Put runs back that were never started. The attempt is not used up and nothing is recorded, because nothing happened; except
-- for a run that somebody has cancelled meanwhile, which ends here, and one that was recalled, which waits in blocked for its caller.
-- The reservation at a rate is lost with the lease that held it, and the run goes to the front of those that wait.
create or replace function duly.hand_back(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[])
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
begin
    if not duly.speaks_for(p_worker_id) then
        return;
    end if;
    with back as (
        delete from duly.leased using unnest(p_run_ids, p_fences) as held(run_id, fence)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
           and duly.is_ours(leased.tenant)
        returning leased.*, duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence) as cancelled),
    answered as (
        delete from duly.signals using back
         where signals.worker_id = back.worker_id and signals.run_id = back.run_id and signals.fence = back.fence and signals.kind = 'recall'
        returning signals.run_id),
    recalled as (
        insert into duly.blocked ({run}, waits_for, key, blocked_at)
        select {run: attempt = attempt - 1}, 'recall', '', v_now
          from back where not cancelled and run_id in (select answered.run_id from answered)
        on conflict do nothing),
    requeued as (
        insert into duly.ready ({run})
        select {run: attempt = attempt - 1}
          from back where not cancelled and not coalesce(options ? 'rate', false) and run_id not in (select answered.run_id from answered)
        on conflict do nothing),
    awaiting_rate as (
        insert into duly.timers ({run}, shard)
        select {run: due_at = scheduled_at, attempt = attempt - 1, options = duly.keeping_slot(options)}, duly.shard_of(job_id)
          from back where not cancelled and options ? 'rate'
        on conflict do nothing),
    ended as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, metadata,
                                   generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt - 1, 'cancelled', 'cancelled', queue, handler, 'cancelled', duly.metadata_of(options),
               nullif(generation, 1), nullif(priority, 5), payload, nullif(payload_stored, false), duly.options_recorded(options, tenant)
          from back where cancelled)
    select array_agg(run_id), array_agg(fence), array_agg(job_id) filter (where cancelled and duly.has_consequence(options)),
           array_agg(tenant) filter (where cancelled and duly.has_consequence(options)),
           array_agg(options) filter (where cancelled and duly.has_consequence(options))
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options from back;
    perform duly.leave(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- A heartbeat of a stalled worker: its lease is renewed for the runs that have started. Its row says since when, in which handlers, and, where
-- p_started is given, which of its runs have not started. Where p_kept is given, all else that hangs on it was not started and goes back unused: its heartbeat allows no start any
-- more, and says so here before the worker hears of it. p_safe_until is what the last heartbeat that allowed starts was answered: a statement
-- that comes late, when starts are allowed again, takes nothing back, and says so by returned being null. No row: the lease has expired. The
-- row is locked first, as when a worker retires; so no heartbeat can allow starts while this goes on.
create or replace function duly.stall(
    p_worker_id uuid, p_seconds float8, p_in uuid[], p_in_fences bigint[], p_is_safe boolean, p_kept uuid[], p_kept_fences bigint[],
    p_safe_until timestamptz, p_limit integer, p_started uuid[], p_started_fences bigint[])
returns table (safe_until timestamptz, returned integer)
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now        timestamptz := duly.clock_now();
    v_safe_until timestamptz;
    v_run_ids    uuid[];
    v_fences     bigint[];
begin
    update duly.workers
       set heartbeat = heartbeat + 1, until = v_now + lease, safe_until = case when p_is_safe then greatest(workers.safe_until, v_now + lease * 2 / 3) else workers.safe_until end,
           stalled_at = least(stalled_at, v_now - make_interval(secs => p_seconds)),
           stalled_in = array(select distinct leased.handler from unnest(p_in, p_in_fences) as held(run_id, fence)
                                join duly.leased using (run_id, fence) where leased.worker_id = p_worker_id order by 1 limit 10),
           unstarted = case when p_started is null then unstarted
                            else array(select leased.run_id from duly.leased where leased.worker_id = p_worker_id
                                          and not exists (select from unnest(p_started, p_started_fences) as started(run_id, fence)
                                                           where started.run_id = leased.run_id and started.fence = leased.fence)
                                        order by due_at limit p_limit) end
     where worker_id = p_worker_id returning workers.safe_until into v_safe_until;
    if not found then
        return;
    end if;
    if p_kept is not null and v_safe_until is distinct from p_safe_until then
        return query select v_safe_until, null::integer;
    elsif p_kept is not null then
        select array_agg(run_id), array_agg(fence) into v_run_ids, v_fences
          from (select run_id, fence from duly.leased where leased.worker_id = p_worker_id
                   and not exists (select from unnest(p_kept, p_kept_fences) as kept(run_id, fence)
                                    where kept.run_id = leased.run_id and kept.fence = leased.fence)
                 limit p_limit) as unstarted;
        perform duly.hand_back(p_worker_id, v_run_ids, v_fences) where v_run_ids is not null;
        return query select v_safe_until, coalesce(cardinality(v_run_ids), 0);
    else
        return query select v_safe_until, 0;
    end if;
end $$;

-- A worker leaves. What hangs on it and is not among the runs it still holds is a claim whose answer it never had: that was not
-- started, so it goes back unused. It has left when nothing hangs on it any more. Its row is locked first, and only then its
-- leases are read: a claim under way holds the row, so that its leases are seen, and one that comes later finds no row.
create or replace function duly.retire(p_worker_id uuid, p_held uuid[], p_fences bigint[])
returns table (has_left boolean, run_ids uuid[], fences bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
declare
    v_run_ids uuid[];
    v_fences  bigint[];
begin
    perform from duly.workers where worker_id = p_worker_id and duly.is_ours(tenant) for update;
    if not found and duly.is_tenant_session() then
        perform duly.no_worker(p_worker_id);
    elsif not found then
        return;                                        -- The reaper was here: it sees to what is left.
    end if;
    select array_agg(leased.run_id), array_agg(leased.fence) into v_run_ids, v_fences
      from duly.leased where leased.worker_id = p_worker_id
       and not exists (select from unnest(p_held, p_fences) as held(run_id, fence) where held.run_id = leased.run_id and held.fence = leased.fence);
    perform duly.hand_back(p_worker_id, v_run_ids, v_fences) where v_run_ids is not null;
    delete from duly.workers where worker_id = p_worker_id and not exists (select from duly.leased where leased.worker_id = p_worker_id);
    return query select found, coalesce(v_run_ids, '{}'), coalesce(v_fences, '{}');
end $$;

-- Take runs back from their holders that were asked to stop long ago and have not, where the next run of their job waits for
-- their place (overlap cancel_running). Their fence is void: what they come to is refused. The attempt is lost and the run cancelled, on
-- record, and its callbacks are notified.
create or replace function duly.void_overstayed(p_stop interval) returns setof uuid
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_removed    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with overstayed as (
        select leased.run_id, leased.fence, signals.worker_id from duly.signals
          join duly.leased on leased.run_id = signals.run_id and leased.fence = signals.fence and leased.worker_id = signals.worker_id
         where signals.kind = 'cancel' and signals.sent_at <= v_now - p_stop and leased.options->'overlap'->>0 = 'cancel_running'
           and exists (select from duly.blocked where blocked.tenant = leased.tenant and blocked.waits_for = 'concurrency' and blocked.key = leased.options->'concurrency'->>0)
         limit 1000),
    removed as (
        delete from duly.leased using overstayed
         where leased.run_id = overstayed.run_id and leased.fence = overstayed.fence and (leased.worker_id = overstayed.worker_id) is true
        returning leased.*),
    heard as (delete from duly.signals using removed where signals.worker_id = removed.worker_id and signals.run_id = removed.run_id and signals.fence = removed.fence),
    unneeded as (delete from duly.checkpoints using removed where checkpoints.run_id = removed.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became, queue, handler, worker_id,
                                   reason, metadata, generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, due_at, v_now, fence, tenant, attempt, 'lost', 'cancelled', queue, handler, worker_id,
               'did not stop in time, and the next run takes its place', duly.metadata_of(options),
               nullif(generation, 1), nullif(priority, 5), payload, nullif(payload_stored, false), duly.options_recorded(options, tenant)
          from removed)
    select array_agg(run_id), array_agg(job_id), array_agg(tenant), array_agg(options) into v_removed, v_job_ids, v_tenants, v_options from removed;
    perform duly.leave(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_removed);
end $$;

grant execute on function duly.hand_back, duly.retire to duly_api;
