-- Runs that stay open until their receiver settles them. docs/decisions/0033-asynchronous-webhooks-and-completion-callbacks.md says why.

-- The holder of leases whose run waits for its receiver. It has no row among the workers and no heartbeat: each has a deadline instead.
create or replace function duly.receiver() returns uuid language sql immutable parallel safe as $$
    select '00000000-0000-0000-0000-000000000000'::uuid
$$;

-- Await: put runs that are under way from their worker to their receiver, under the same fence and attempt. One whose
-- cancel is under way ends here.
create or replace function duly.await(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_started timestamptz[], p_within interval[])
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
        delete from duly.leased using unnest(p_run_ids, p_fences, p_started, p_within) as held(run_id, fence, started_at, within)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.*, held.started_at, held.within, duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence) as cancelled),
    open as (
        insert into duly.leased ({run}, fence, worker_id, claimed_at)
        select {run}, fence, duly.receiver(), claimed_at
          from taken where not cancelled),
    recorded as (
        insert into duly.awaited (run_id, fence, worker_id, started_at, deadline_at)
        select run_id, fence, p_worker_id, started_at, v_now + within from taken where not cancelled
        on conflict (run_id) do update set fence = excluded.fence, worker_id = excluded.worker_id, started_at = excluded.started_at,
                                           deadline_at = excluded.deadline_at),
    unneeded as (delete from duly.checkpoints using taken where checkpoints.run_id = taken.run_id and taken.cancelled),
    ended as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, reason, metadata, generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, due_at, started_at, v_now, fence, tenant, attempt, 'cancelled', 'cancelled',
               queue, handler, worker_id, 'cancelled', duly.metadata_of(options), nullif(generation, 1), nullif(priority, 5), payload,
               nullif(payload_stored, false), duly.options_recorded(options, tenant)
          from taken where cancelled)
    select array_agg(run_id order by run_id), array_agg(fence order by run_id),
           array_agg(job_id) filter (where cancelled and duly.has_consequence(options)),
           array_agg(tenant) filter (where cancelled and duly.has_consequence(options)),
           array_agg(options) filter (where cancelled and duly.has_consequence(options))
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options from taken;
    perform duly.leave(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- Find runs whose receiver has not answered by its deadline, the oldest first.
create or replace function duly.overdue(p_limit integer)
returns table (tid tid, fence bigint, {run types},
               worker_id uuid, started_at timestamptz, deadline_at timestamptz)
language plpgsql stable {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    select leased.ctid, leased.fence, {leased.run}, leased.worker_id, coalesce(overdue.started_at, greatest(leased.due_at, leased.claimed_at)),
           overdue.deadline_at
      from (select * from duly.awaited where awaited.deadline_at <= v_now order by awaited.deadline_at limit p_limit) as overdue
      join duly.leased on leased.run_id = overdue.run_id and leased.fence = overdue.fence and (leased.worker_id = duly.receiver()) is true;
end $$;

-- Forget deadlines that say nothing any more: their run has left its receiver in a way that did not take them along.
create or replace function duly.forget_awaited(p_limit integer) returns setof uuid
language plpgsql {planned by index, by loop} as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    delete from duly.awaited where awaited.run_id = any (array(
        select overdue.run_id from (select * from duly.awaited where awaited.deadline_at <= v_now order by awaited.deadline_at limit p_limit) as overdue
         where not exists (select from duly.leased where leased.run_id = overdue.run_id and leased.fence = overdue.fence)))
    returning awaited.run_id;
end $$;

-- Cancel runs that wait for their receiver: no other holds them, so it is done at once.
create or replace function duly.cancel_awaited(p_run_ids uuid[], p_reason text) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_removed    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with removed as (
        delete from duly.leased where leased.run_id = any (p_run_ids) and (leased.worker_id = duly.receiver()) is true and duly.is_ours(leased.tenant)
        returning leased.*),
    closed as (
        delete from duly.awaited using removed where awaited.run_id = removed.run_id and awaited.fence = removed.fence
        returning awaited.run_id, awaited.started_at),
    heard as (delete from duly.signals using removed where signals.worker_id = removed.worker_id and signals.run_id = removed.run_id and signals.fence = removed.fence),
    unneeded as (delete from duly.checkpoints using removed where checkpoints.run_id = removed.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, reason, metadata, generation, priority, payload, payload_stored, options)
        select removed.run_id, removed.job_id, removed.scheduled_at, removed.due_at, closed.started_at, v_now, removed.fence, removed.tenant, removed.attempt,
               'cancelled', 'cancelled', removed.queue, removed.handler, removed.worker_id, p_reason, duly.metadata_of(removed.options),
               nullif(removed.generation, 1), nullif(removed.priority, 5), removed.payload, nullif(removed.payload_stored, false), duly.options_recorded(removed.options, removed.tenant)
          from removed left join closed on closed.run_id = removed.run_id)
    select array_agg(run_id), array_agg(job_id) filter (where duly.has_consequence(options)),
           array_agg(tenant) filter (where duly.has_consequence(options)), array_agg(options) filter (where duly.has_consequence(options))
      into v_removed, v_job_ids, v_tenants, v_options from removed;
    perform duly.leave(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_removed);
end $$;

grant execute on function duly.cancel_awaited to duly_api;
