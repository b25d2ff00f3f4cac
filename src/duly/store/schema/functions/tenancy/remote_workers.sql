-- Workers over HTTP: each belongs to a tenant, and sees, holds and settles runs of that tenant alone.
-- docs/decisions/0013-workers-over-http.md says why.

-- Return whether a worker's leases are this session's. An expired worker may still offer outcomes: they meet no
-- lease, or one of this tenant.
create or replace function duly.is_our_worker(p_worker_id uuid) returns boolean
language plpgsql stable {planned by index} as $$
begin
    return not exists (select from duly.workers where workers.worker_id = p_worker_id and (workers.tenant is null or not duly.is_ours(workers.tenant)));
end $$;

-- The same, for requests alone: the engine speaks for every worker. One expression, so that it is inlined.
create or replace function duly.speaks_for(p_worker_id uuid) returns boolean language sql stable as $$
    select case when duly.is_tenant_session() then duly.is_our_worker(p_worker_id) else true end
$$;

create or replace function duly.no_worker(p_worker_id uuid) returns void language plpgsql as $$
begin
    raise exception using errcode = 'DU011', message = format('no worker %s', p_worker_id);
end $$;

-- Put a tenant's worker among the living. Its tenant's row is locked, so that the count is exact.
create or replace function duly.api_register_worker(
    p_worker_id uuid, p_name text, p_version text, p_queues text[], p_handlers text[], p_slots integer, p_lease interval, p_workers_max integer)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now    timestamptz := duly.clock_now();
    v_tenant integer := duly.current_tenant();
begin
    perform from duly.tenants where tenants.tenant = v_tenant for no key update;
    if not found then
        raise exception using errcode = 'DU021', message = format('no tenant %s', v_tenant);
    elsif (select count(*) from duly.workers where workers.tenant = v_tenant) >= p_workers_max then
        raise exception using errcode = 'DU012', message = format('%s workers are registered, and no more may be', p_workers_max);
    end if;
    insert into duly.workers (worker_id, name, version, queues, handlers, slots, lease, started_at, until, safe_until, tenant)
    values (p_worker_id, p_name, p_version, p_queues, p_handlers, p_slots, p_lease, v_now, v_now + p_lease, v_now + p_lease * 2 / 3, v_tenant);
end $$;

-- Renew a worker's lease. It names the leases it knows of, and up to which claim it has had the answer or given up waiting: what else
-- hangs on it from those claims was never started, and goes back unused. Answers which of its runs to stop, and which are not its own
-- any more; a run that is settled is not named as one to be stopped, however late its signal is swept. The row is locked first, so that a
-- claim under way is seen whole or not at all.
create or replace function duly.api_renew(
    p_worker_id uuid, p_held uuid[], p_fences bigint[], p_answered bigint,
    out lease interval, out cancel_runs uuid[], out cancel_fences bigint[], out lost_runs uuid[], out lost_fences bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
declare
    v_now     timestamptz := duly.clock_now();
    v_below   bigint;
    v_run_ids uuid[];
    v_fences  bigint[];
begin
    update duly.workers set heartbeat = workers.heartbeat + 1, until = v_now + workers.lease, safe_until = greatest(workers.safe_until, v_now + workers.lease * 2 / 3)
     where workers.worker_id = p_worker_id and workers.tenant is not null and duly.is_ours(workers.tenant)
    returning workers.lease, case when p_answered >= workers.claim_number then 9223372036854775807
                                  when p_answered = workers.claim_number - 1 then workers.claim_fence else 0 end
      into lease, v_below;
    if not found then
        perform duly.no_worker(p_worker_id);
    end if;
    select array_agg(leased.run_id), array_agg(leased.fence) into v_run_ids, v_fences
      from duly.leased where leased.worker_id = p_worker_id and leased.fence < v_below
       and not exists (select from unnest(p_held, p_fences) as held(run_id, fence) where held.run_id = leased.run_id and held.fence = leased.fence);
    perform duly.hand_back(p_worker_id, v_run_ids, v_fences) where v_run_ids is not null;
    select coalesce(array_agg(held.run_id), '{}'), coalesce(array_agg(held.fence), '{}') into lost_runs, lost_fences
      from unnest(p_held, p_fences) as held(run_id, fence)
     where not exists (select from duly.leased where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true);
    select coalesce(array_agg(signals.run_id), '{}'), coalesce(array_agg(signals.fence), '{}') into cancel_runs, cancel_fences
      from duly.signals where signals.worker_id = p_worker_id and signals.kind = 'cancel'
       and exists (select from duly.leased where leased.run_id = signals.run_id and leased.fence = signals.fence);
end $$;

------------------------------------------------------------------------------------------------------------------ claim

-- Of these queues, those that are not held for a tenant.
create or replace function duly.open_queues(p_queues text[], p_tenant integer) returns text[]
language plpgsql stable set jit = off as $$
begin
    return array(
        select requested.queue from unnest(p_queues) with ordinality as requested(queue, number)
         where not exists (select from duly.pauses where coalesce(pauses.tenant, p_tenant) = p_tenant and coalesce(pauses.queue, requested.queue) = requested.queue)
         order by requested.number);
end $$;

-- In how many seconds a claim may find something: 0 when it should ask, null when nothing is in sight. A routable run that is marked unroutable is
-- there for the asking. Locks nothing and writes nothing. For an expired worker it says 0, because the claim will say so.
create or replace function duly.foresee(p_worker_id uuid, p_tenant integer) returns double precision
language plpgsql stable {planned by index, by loop, in order} as $$
declare
    v_now    timestamptz := duly.clock_now();
    v_worker duly.workers;
    v_open   text[];
    v_backlog  boolean;
begin
    select * into v_worker from duly.workers where workers.worker_id = p_worker_id and workers.tenant = p_tenant;
    if not found or v_worker.until <= v_now then
        return 0;
    elsif v_worker.safe_until < v_now then
        return null;                                   -- It has to renew its lease first.
    end if;
    v_backlog := exists (select from duly.leased where leased.worker_id = p_worker_id and leased.suspect);
    v_open := duly.roomy_queues(v_worker.queues, p_tenant);
    if duly.has_unroutable(v_open, v_worker.handlers, p_tenant) then
        return 0;                                      -- The claim makes it claimable.
    end if;
    return (
        select min(case when next.due_at <= v_now then 0 else date_part('epoch', next.due_at - v_now) end)
          from duly.walk(v_open, array_fill(p_tenant, array[cardinality(v_open)]), array_fill(p_tenant, array[cardinality(v_open)]), 10000) as subqueue
         cross join lateral (
            select ready.due_at from duly.ready
             where not ready.is_unroutable and ready.queue = v_open[subqueue.number] and ready.tenant = p_tenant and ready.priority = subqueue.priority
               and ready.handler = any (v_worker.handlers) and not (ready.suspect and v_backlog)
             order by ready.due_at limit 1) as next
         where v_open <> '{}');
end $$;

-- Move runs that are due to a worker of this session's tenant. As claim, with these differences. Queues and handlers
-- are those that the worker was registered with, and the tenant is its own. Nothing is held ahead, and never more than it has slots.
-- Its row is locked for the length of the claim, so that its claims follow each other and the fence of each is higher. It is given
-- one suspect at a time, which is named here, before it can have started.
create or replace function duly.api_claim(p_worker_id uuid, p_number bigint, p_limit integer)
returns table (tid tid, fence bigint, {run types}, claimed_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_worker duly.workers;
    v_fence  bigint;
    v_open   text[];
    v_room   integer;
    v_backlog  boolean;
    v_subqueues  duly.subqueue[];
    v_tids tid[];
begin
    select * into v_worker from duly.workers
     where workers.worker_id = p_worker_id and workers.tenant is not null and duly.is_ours(workers.tenant) for no key update;
    if not found then
        perform duly.no_worker(p_worker_id);
    elsif v_worker.until <= v_now then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    elsif v_worker.claim_number >= p_number then
        raise exception using errcode = 'DU013', message = format('claim %s of worker %s is over: claim %s was answered', p_number, p_worker_id, v_worker.claim_number);
    elsif v_worker.safe_until < v_now then
        return;                                        -- A run that it started now would count as not started, should the worker die.
    end if;
    v_open := duly.open_queues(v_worker.queues, v_worker.tenant);
    v_room := least(p_limit, v_worker.slots - (select count(*) from duly.leased where leased.worker_id = p_worker_id));
    if v_room <= 0 or v_open = '{}' then
        return;
    end if;
    v_backlog := exists (select from duly.leased where leased.worker_id = p_worker_id and leased.suspect);
    if duly.has_unroutable(v_open, v_worker.handlers, v_worker.tenant) then
        perform duly.restore_routable(v_open, v_worker.handlers, v_worker.tenant, greatest(100, 2 * v_room));
    end if;
    v_subqueues := duly.subqueues(v_open, v_worker.tenant, duly.subqueues_max(v_room));
    if v_subqueues = '{}' then
        return;
    end if;
    v_fence := nextval('duly.fences');
    v_tids := duly.choose(v_subqueues, array_fill(1, array[cardinality(v_open)]), v_worker.handlers, false, not v_backlog, v_room, v_fence, v_now);
    if v_tids = '{}' then
        return;
    end if;
    return query
    with found as (
        select ready.ctid as tid, ready.suspect, row_number() over (partition by ready.suspect order by duly.rank(ready.due_at, ready.priority)) as number
          from duly.ready where ready.ctid = any (v_tids)),
    taken as (
        delete from duly.ready where ctid = any (array(select found.tid from found where not found.suspect or found.number = 1))
        returning *),
    held as (
        insert into duly.leased ({run}, fence, worker_id, claimed_at)
        select {run: attempt = attempt + 1}, v_fence, p_worker_id, v_now
          from taken
        returning leased.ctid as tid, leased.*),
    recorded as (
        update duly.workers set claim_number = p_number, claim_fence = v_fence,
               named = coalesce((select array_agg(held.run_id || '/' || v_fence) from held where held.suspect), workers.named)
         where workers.worker_id = p_worker_id and exists (select from held))
    select tid, fence, {run}, claimed_at
      from held;
end $$;

-- The runs that a worker holds, of those it names, as a claim gives them.
create or replace function duly.api_held(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[])
returns table (tid tid, fence bigint, {run types}, claimed_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
begin
    if not duly.is_our_worker(p_worker_id) then
        return;
    end if;
    return query
    select leased.ctid, leased.fence, {leased.run}, leased.claimed_at
      from unnest(p_run_ids, p_fences) as requested(run_id, fence)
      join duly.leased on leased.run_id = requested.run_id and leased.fence = requested.fence
     where (leased.worker_id = p_worker_id) is true and duly.is_ours(leased.tenant);
end $$;

-- Keep a record of outcomes that came after the lease was lost: the record of that loss describes the run. Once, however often it is called.
create or replace function duly.api_refuse(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_outcomes text[])
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became, queue, handler, worker_id, reason,
                               metadata)
    select lost.run_id, lost.job_id, lost.scheduled_at, lost.due_at, v_now, lost.fence, lost.tenant, lost.attempt, 'fenced', 'running',
           lost.queue, lost.handler, p_worker_id, 'refused: ' || refused.outcome, lost.metadata
      from unnest(p_run_ids, p_fences, p_outcomes) as refused(run_id, fence, outcome)
      join duly.attempts as lost on lost.run_id = refused.run_id and lost.fence = refused.fence
     where lost.worker_id = p_worker_id and lost.outcome = 'lost' and duly.is_ours(lost.tenant)
       and not exists (select from duly.attempts where attempts.run_id = refused.run_id and attempts.fence = refused.fence
                          and attempts.worker_id = p_worker_id and attempts.outcome = 'fenced');
end $$;

grant execute on function duly.api_register_worker, duly.api_renew, duly.api_claim, duly.api_held,
    duly.api_refuse to duly_api;
