-- Claim: move runs from ready to a live worker.

-- Move up to p_limit runs to a live worker: shared out between queues by their weights, between tenants by theirs, and
-- within a tenant by rank, with a floor for each of its priorities. First it makes unroutable runs claimable whose handler it has; that there is
-- nothing to claim is learnt from the subqueues themselves. The worker's row is held for key share, which does not hinder its heartbeat but makes
-- the reaper's delete wait, so that no lease can outlive the row it hangs on. What is held stays where it is.
create or replace function duly.claim(
    p_worker_id uuid, p_queues text[], p_weights integer[], p_handlers text[], p_limit integer)
returns table (tid tid, fence bigint, {run types})
language plpgsql {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_fence   bigint;
    v_open    text[];
    v_weights integer[];
    v_has_unroutable   boolean;
    v_subqueues   duly.subqueue[];
    v_tids  tid[];
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    select array_agg(requested.queue order by requested.number), array_agg(coalesce(requested.weight, 1) order by requested.number),
           duly.has_unroutable(p_queues, p_handlers, null)
      into v_open, v_weights, v_has_unroutable
      from unnest(p_queues, p_weights) with ordinality as requested(queue, weight, number)
     where not exists (select from duly.pauses where pauses.tenant is null and duly.is_paused_by(pauses.queue, requested.queue));
    if v_has_unroutable and v_open is not null then
        perform duly.restore_routable(v_open, p_handlers, null, greatest(100, 2 * p_limit));
    end if;
    v_subqueues := case when v_open is not null then duly.subqueues(v_open, null, duly.subqueues_max(p_limit)) else '{}' end;
    if v_subqueues = '{}' then
        return;                                        -- An idle poll ends here: no fence drawn, nothing written, no commit to wait for.
    end if;
    v_fence := nextval('duly.fences');
    v_tids := duly.choose(v_subqueues, v_weights, p_handlers, true, true, p_limit, v_fence, v_now);
    if v_tids = '{}' then
        return;
    end if;
    return query
    with taken as (
        delete from duly.ready where ctid = any (v_tids) returning *)
    insert into duly.leased ({run}, fence, worker_id, claimed_at)
    select {run: attempt = attempt + 1}, v_fence, p_worker_id, v_now
      from taken
    returning ctid, fence, {run};
end $$;

-- Claim everything that waits, where no more waits in these queues than p_limit and no pause, limit or unroutable run has a say: then there is
-- nothing to share out. Otherwise it is a claim. For a worker that was idle: in a backlog the count would be for nothing. The count and the
-- lock are one statement, so that nothing is locked where there is too much; what comes in meanwhile is for the next claim.
create or replace function duly.claim_all(
    p_worker_id uuid, p_queues text[], p_weights integer[], p_handlers text[], p_limit integer)
returns table (tid tid, fence bigint, {run types})
language plpgsql {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_fence bigint;
    v_tids  tid[];
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    select case when waiting.runs > p_limit or exists (select from duly.pauses) or exists (select from duly.limits)
                     or duly.has_unroutable(p_queues, p_handlers, null) then null
                when waiting.runs = 0 then '{}'
                else array(select ready.ctid from duly.ready
                            where not ready.is_unroutable and ready.queue = any (p_queues) and ready.handler = any (p_handlers)
                              and (not exists (select from duly.absent_tenants)
                                   or not exists (select from duly.absent_tenants where absent_tenants.tenant = ready.tenant))
                              for update skip locked) end
      into v_tids
      from (select count(*) as runs
              from (select from duly.ready where not ready.is_unroutable and ready.queue = any (p_queues) limit p_limit + 1) as first) as waiting;
    if v_tids is null then
        return query select * from duly.claim(p_worker_id, p_queues, p_weights, p_handlers, p_limit);
        return;
    elsif v_tids = '{}' then
        return;
    end if;
    v_fence := nextval('duly.fences');
    return query
    with taken as (
        delete from duly.ready where ctid = any (v_tids) returning *)
    insert into duly.leased ({run}, fence, worker_id, claimed_at)
    select {run: attempt = attempt + 1}, v_fence, p_worker_id, v_now
      from taken
    returning ctid, fence, {run};
end $$;

-- Choose and lock what a claim takes of these subqueues, up to p_limit runs, and return their row ids. Only what is taken is locked. What is due
-- comes before what is ahead of its moment; and what a subqueue cannot give goes to the others, in a further round. Unroutable runs are in no subqueue.
-- Of each subqueue it reads from the run on that was the first when the subqueues were found: before it are runs that others have taken, which
-- stay in the index until no transaction can see them any more. What comes in before it meanwhile is for the next claim.
-- Under a limit only what is due is taken, because what is held ahead would use up slots. A claim under a limit holds its row
-- until the commit, and counts in a statement that began after that lock was had: so the count is exact, and who leaves only lowers it.
-- Runs under the planner settings of the claim that calls it.
create or replace function duly.choose(
    p_subqueues duly.subqueue[], p_weights integer[], p_handlers text[], p_is_ahead boolean, p_takes_suspects boolean,
    p_limit integer, p_fence bigint, p_now timestamptz)
returns tid[]
language plpgsql as $$
#variable_conflict use_column
declare
    v_subqueues  duly.subqueue[] := p_subqueues;
    v_limits duly.limits[] := '{}';
    v_rooms  integer[] := '{}';
    v_until  timestamptz := case when p_is_ahead then 'infinity' else p_now end;
    v_left   integer := p_limit;
    v_is_due boolean;                                  -- This round takes what is due, and nothing else,
    v_upto   timestamptz;                              -- so up to here.
    v_requested  duly.subqueue[];
    v_quotas integer[];
    v_taken   integer[];
    v_slice  tid[];
    v_tids tid[] := '{}';
begin
    if exists (select from duly.limits) then
        v_limits := duly.lock_limits(v_subqueues);
        v_rooms := array(select one.slots - duly.count_leased(one.tenant, one.queue, one.slots) from unnest(v_limits) as one);
        v_subqueues := array(
            select row(subqueue.number, subqueue.queue, subqueue.tenant, subqueue.priority, subqueue.due_at, subqueue.weight,
                       exists (select from unnest(v_limits) as one where duly.is_within(one, subqueue.tenant, subqueue.queue)), 0)::duly.subqueue
              from unnest(v_subqueues) as subqueue
             where not exists (select from unnest(v_limits, v_rooms) as one(tenant, queue, slots, set_by, set_at, room)
                                where one.room <= 0 and coalesce(one.tenant, subqueue.tenant) = subqueue.tenant and coalesce(one.queue, subqueue.queue) = subqueue.queue));
        if v_subqueues = '{}' then
            return v_tids;
        end if;
    end if;
    if cardinality(v_subqueues) = 1 and v_limits = '{}' then       -- One queue, one tenant, one priority: nothing to share out.
        return array(
            select ctid from duly.ready
             where not ready.is_unroutable and ready.queue = (v_subqueues[1]).queue and ready.tenant = (v_subqueues[1]).tenant and ready.priority = (v_subqueues[1]).priority and ready.due_at >= (v_subqueues[1]).due_at
               and ready.handler = any (p_handlers) and (p_takes_suspects or not ready.suspect) and ready.due_at <= v_until
             order by ready.due_at limit p_limit for update skip locked);
    end if;
    v_is_due := true;
    v_requested := array(select subqueue from unnest(v_subqueues) as subqueue where subqueue.due_at <= p_now);
    for round in 1 .. 4 loop
        if v_requested = '{}' and v_is_due and p_is_ahead then
            v_is_due := false;
            v_requested := array(select subqueue from unnest(v_subqueues) as subqueue where not subqueue.is_limited);
        end if;
        exit when v_requested = '{}' or v_left <= 0;
        v_upto := case when v_is_due then p_now else v_until end;
        v_quotas := duly.quotas(v_requested, p_weights, p_handlers, p_takes_suspects, v_upto, v_left, p_fence * 8 + round);
        if v_limits <> '{}' then
            v_quotas := duly.within_rooms(v_requested, v_quotas, v_limits, v_rooms, p_fence);
        end if;
        with found as materialized (
            select subqueue.position as number, slice.tid
              from unnest(v_requested, v_quotas) with ordinality as subqueue(number, queue, tenant, priority, due_at, weight, is_limited, taken, quota, position)
             cross join lateral (                      -- Those we have taken before are locked by ourselves, and so they are not skipped.
                select ready.ctid as tid from duly.ready
                 where not ready.is_unroutable and ready.queue = subqueue.queue and ready.tenant = subqueue.tenant and ready.priority = subqueue.priority and ready.due_at >= subqueue.due_at
                   and ready.handler = any (p_handlers) and (p_takes_suspects or not ready.suspect) and ready.due_at <= v_upto
                 order by ready.due_at limit subqueue.quota offset subqueue.taken for update skip locked) as slice
             where subqueue.quota > 0)
        select array(select found.tid from found),
               array(select coalesce(counted.runs, 0)::integer from generate_subscripts(v_requested, 1) as each(number)
                       left join (select found.number, count(*) as runs from found group by found.number) as counted on counted.number = each.number
                      order by each.number)
          into v_slice, v_taken;
        v_tids := v_tids || v_slice;
        v_left := v_left - cardinality(v_slice);
        for i in 1 .. cardinality(v_rooms) loop
            v_rooms[i] := v_rooms[i] - (select coalesce(sum(subqueue.taken_now), 0)
                                          from unnest(v_requested, v_taken) as subqueue(number, queue, tenant, priority, due_at, weight, is_limited, taken, taken_now)
                                         where duly.is_within(v_limits[i], subqueue.tenant, subqueue.queue));
        end loop;
        v_subqueues := array(
            select row(subqueue.number, subqueue.queue, subqueue.tenant, subqueue.priority, subqueue.due_at, subqueue.weight, subqueue.is_limited, subqueue.taken + coalesce(given.taken_now, 0))::duly.subqueue
              from unnest(v_subqueues) as subqueue
              left join unnest(v_requested, v_taken) as given(number, queue, tenant, priority, due_at, weight, is_limited, taken, taken_now)
                on given.number = subqueue.number and given.tenant = subqueue.tenant and given.priority = subqueue.priority
             order by subqueue.number, subqueue.tenant, subqueue.priority);
        v_requested := array(
            select row(subqueue.number, subqueue.queue, subqueue.tenant, subqueue.priority, subqueue.due_at, subqueue.weight, subqueue.is_limited, subqueue.taken + subqueue.taken_now)::duly.subqueue
              from unnest(v_requested, v_taken, v_quotas) with ordinality
                   as subqueue(number, queue, tenant, priority, due_at, weight, is_limited, taken, taken_now, quota, position)
             where subqueue.taken_now >= subqueue.quota
               and not exists (select from unnest(v_rooms) with ordinality as one(room, i)
                                where one.room <= 0 and duly.is_within(v_limits[one.i], subqueue.tenant, subqueue.queue))
             order by subqueue.position);
    end loop;
    return v_tids;
end $$;

-- Take out of ready what is leased already, with a record. A claim that met such a duplicate was refused by the unique key of
-- leased; it must not catch that itself, because rows it has returned by then would stay in its answer.
create or replace function duly.drop_duplicates() returns void
language plpgsql {planned by index, by loop} as $$
declare
    v_tenants integer[];
    v_options jsonb[];
begin
    with losers as (
        delete from duly.ready using duly.leased where ready.run_id = leased.run_id returning ready.*),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, duly.clock_now(), tenant, attempt, 'skipped', 'running', queue, handler, 'skipped_duplicate'
          from losers)
    select array_agg(tenant), array_agg(options) into v_tenants, v_options from losers where duly.has_limits(options);
    perform duly.release(v_tenants, v_options, 1, null) where v_tenants is not null;
end $$;
