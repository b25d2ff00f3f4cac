-- Cancel: take waiting runs out for good, ask the holders of the others to stop, and end what is worthless by now.

-- Take waiting runs out of timers, blocked and ready for good. A run leased by a worker is not touched: see signal. A parked run that kept
-- the slot of its overlap leaves it; and the run that waits behind a cancelled one in FIFO order is looked for.
create or replace function duly.cancel(p_run_ids uuid[], p_reason text) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_removed    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with waiting as (
        delete from duly.timers where timers.run_id = any (p_run_ids) and timers.run_id is not null and duly.is_ours(timers.tenant)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, generation, priority, payload, payload_stored, options, duly.holds_slot(options) as inside),
    at_concurrency_key as (
        delete from duly.blocked where blocked.run_id = any (p_run_ids) and duly.is_ours(blocked.tenant)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, generation, priority, payload, payload_stored, options, duly.holds_slot(options) as inside),
    staged as (
        delete from duly.ready where ready.run_id = any (p_run_ids) and duly.is_ours(ready.tenant)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, generation, priority, payload, payload_stored, options, true as inside),
    removed as (
        select * from waiting union all select * from at_concurrency_key union all select * from staged),
    unneeded as (delete from duly.checkpoints using removed where checkpoints.run_id = removed.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, metadata,
                                   generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, p_reason, duly.metadata_of(options),
               nullif(generation, 1), nullif(priority, 5), payload, nullif(payload_stored, false), duly.options_recorded(options, tenant)
          from removed),
    leaving as (                                       -- One that had not entered its concurrency key leaves nothing behind there, but may have stood before others in FIFO order.
        select job_id, tenant, case when inside then options when options ? 'fifo' then options || '{"outside": true}' else options - 'concurrency' end as options
          from removed where duly.has_consequence(options))
    select (select array_agg(run_id) from removed), array_agg(job_id), array_agg(tenant), array_agg(options)
      into v_removed, v_job_ids, v_tenants, v_options from leaving;
    perform duly.leave(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_removed);
end $$;

-- Ask the holders of leased runs to stop.
create or replace function duly.signal(p_run_ids uuid[], p_kind text) returns setof uuid
language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into duly.signals (worker_id, run_id, fence, kind, sent_at)
    select worker_id, run_id, fence, p_kind, duly.clock_now() from duly.leased
     where run_id = any (p_run_ids) and duly.is_ours(tenant)
    on conflict (worker_id, run_id, fence, kind) do update set sent_at = excluded.sent_at
    returning run_id
$$;

-- Carry out cancels whose run left its holder before the holder heard of them: waiting runs are cancelled, runs that
-- another holds by now are recalled. A signal is stale as well when its run has passed from its worker to its receiver, which gets
-- none. The signals are taken first. A replay of the run takes them too, so that one of the two gets them: a
-- cancel does not follow a run into a life for which it was not meant.
create or replace function duly.carry_out() returns table (run_id uuid, answer text)
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_run_ids   uuid[];
    v_cancelled uuid[] := '{}';
    v_signalled uuid[];
begin
    with stale as (
        delete from duly.signals where ctid = any (array(
            select ctid from duly.signals
             where signals.kind = 'cancel'
               and not exists (select from duly.leased where leased.run_id = signals.run_id and leased.fence = signals.fence
                                  and leased.worker_id = signals.worker_id and leased.worker_id <> duly.receiver())
             limit 1000 for update skip locked))
        returning run_id)
    select array_agg(distinct run_id) into v_run_ids from stale;
    if v_run_ids is null then
        return;
    end if;
    loop                                               -- A row may be on the move between two looks; it is never nowhere for long.
        v_cancelled := v_cancelled || array(select duly.cancel(v_run_ids, 'cancelled'));
        v_cancelled := v_cancelled || array(select duly.cancel_awaited(v_run_ids, 'cancelled'));
        v_signalled := array(select duly.signal(v_run_ids, 'cancel'));
        exit when not exists (select from duly.timers where run_id = any (v_run_ids) and run_id is not null)
              and not exists (select from duly.blocked where run_id = any (v_run_ids))
              and not exists (select from duly.ready where run_id = any (v_run_ids));
    end loop;
    return query
    select u.run_id, case when u.run_id = any (v_cancelled) then 'cancelled' when u.run_id = any (v_signalled) then 'cancelling' else 'too_late' end
      from unnest(v_run_ids) as u(run_id);
end $$;

-- Expire: end runs that wait and are worthless by now, the longest overdue first, with a record. One that had not entered its concurrency key
-- leaves nothing behind there; one that waits for a reservation at a rate has.
create or replace function duly.expire(p_limit integer) returns setof uuid
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_removed    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with waiting as (
        delete from duly.timers where timers.run_id = any (array(
            select run_id from duly.timers
             where options ?| array['expires_at', 'expires_seconds'] and run_id is not null and duly.expiry(scheduled_at, options) <= v_now
             order by duly.expiry(scheduled_at, options) limit p_limit for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, generation, priority, payload, payload_stored, options, duly.holds_slot(options) as inside),
    at_concurrency_key as (
        delete from duly.blocked where blocked.run_id = any (array(
            select run_id from duly.blocked
             where options ?| array['expires_at', 'expires_seconds'] and duly.expiry(scheduled_at, options) <= v_now
             order by duly.expiry(scheduled_at, options) limit p_limit for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, generation, priority, payload, payload_stored, options,
                  duly.holds_slot(options) or waits_for = 'rate' as inside),
    staged as (
        delete from duly.ready where ready.run_id = any (array(
            select run_id from duly.ready
             where options ?| array['expires_at', 'expires_seconds'] and duly.expiry(scheduled_at, options) <= v_now
             order by duly.expiry(scheduled_at, options) limit p_limit for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, generation, priority, payload, payload_stored, options, true as inside),
    removed as (
        select * from waiting union all select * from at_concurrency_key union all select * from staged),
    unneeded as (delete from duly.checkpoints using removed where checkpoints.run_id = removed.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, metadata,
                                   generation, priority, payload, payload_stored, options)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'expired', queue, handler,
               'expired at ' || to_char(duly.expiry(scheduled_at, options) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), duly.metadata_of(options),
               nullif(generation, 1), nullif(priority, 5), payload, nullif(payload_stored, false), duly.options_recorded(options, tenant)
          from removed),
    leaving as (                                       -- It may have stood before others in FIFO order.
        select job_id, tenant, case when inside then options when options ? 'fifo' then options || '{"outside": true}' else options - 'concurrency' end as options
          from removed where duly.has_consequence(options))
    select (select array_agg(run_id) from removed), array_agg(job_id), array_agg(tenant), array_agg(options)
      into v_removed, v_job_ids, v_tenants, v_options from leaving;
    perform duly.leave(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_removed);
end $$;

grant execute on function duly.cancel, duly.signal to duly_api;
