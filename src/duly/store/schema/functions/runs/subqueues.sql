-- The order of claims: the subqueues, what each may give, and what is within the limits. A subqueue is the runs of one queue, tenant and priority.
-- docs/decisions/0021-claims-share-capacity-fairly.md says why.

-- A number from 0 up to 1, always the same for the same two: chance that a test can repeat.
create or replace function duly.chance(p_seed bigint, p_number bigint) returns double precision language sql immutable parallel safe as $$
    select (hashint8extended(p_seed, p_number) & 9007199254740991) / 9007199254740992.0::double precision
$$;

-- Share a claim out among subqueues. A queue's part follows its weight among the queues that have subqueues, a tenant's part of it follows
-- its weight among the tenants there. Parts are rounded so that each is its share to within one, all together are the limit, and over
-- many claims each gets its exact share: also where the limit is 1. Of a tenant's part, a tenth goes to its priorities evenly and is
-- certain, whatever their rank (`quota`); the rest of it goes by rank (`rest`, repeated on each of its subqueues).
-- Lines come as arrays, in order of queue and tenant.
create or replace function duly.plan_claim(
    p_numbers integer[], p_tenants integer[], p_weights integer[], p_tenant_weights integer[], p_limit integer, p_seed bigint)
returns table (subqueue integer, quota integer, rest integer, is_alone boolean)
language sql immutable as $$
    with subqueues as (
        select subqueue::integer, number, tenant, p_weights[number] as queue_weight, tenant_weight
          from unnest(p_numbers, p_tenants, p_tenant_weights) with ordinality as given(number, tenant, tenant_weight, subqueue)),
    shares as (
        select number, tenant, count(*) as subqueues, min(subqueue) as first,
               p_limit::double precision * min(queue_weight) / (select sum(weight) from (select min(queue_weight) as weight from subqueues group by number) as each)
               * min(tenant_weight) / sum(min(tenant_weight)) over (partition by number) as share
          from subqueues group by number, tenant),
    summed as (select *, sum(share) over (order by first) + duly.chance(p_seed, 0) as upto from shares),
    parts as (select number, tenant, subqueues, (floor(upto) - floor(upto - share))::integer as part from summed),
    floors as (
        select subqueues.subqueue, parts.subqueues, parts.part, subqueues.number, subqueues.tenant, 0.1::double precision * parts.part / parts.subqueues as share,
               row_number() over (partition by subqueues.number, subqueues.tenant order by subqueues.subqueue) * 0.1::double precision * parts.part / parts.subqueues
               + duly.chance(p_seed, subqueues.tenant) as upto
          from subqueues join parts on parts.number = subqueues.number and parts.tenant = subqueues.tenant where parts.part > 0),
    certain as (select *, (floor(upto) - floor(upto - share))::integer as quota from floors)
    select subqueue, quota, part - sum(quota) over (partition by number, tenant)::integer, subqueues = 1 from certain order by subqueue
$$;

-- Return whether a pause of a queue, or of every queue, holds runs of this one. Notifications are sent also of what is paused, so only a pause of
-- their own queue holds them.
create or replace function duly.is_paused_by(p_paused text, p_queue text) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_paused = p_queue, p_queue <> '@notifications')
$$;

-- The number of subqueues that a claim of so many looks at, beyond those that are paused.
create or replace function duly.subqueues_max(p_limit integer) returns integer language sql stable as $$
    select least(256, greatest(32, 2 * p_limit)) + (select count(*)::integer from duly.pauses)
$$;

-- The subqueues of these queues, of the tenants from one to another, given for each queue; without unroutable runs. One step of the index for
-- each subqueue, whatever waits in it.
create or replace function duly.walk(p_queues text[], p_from integer[], p_to integer[], p_subqueues_max integer)
returns table (step bigint, number integer, tenant integer, priority smallint, due_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    with recursive walk as (
        select first.* from unnest(p_queues, p_from, p_to) with ordinality as wanted(queue, tenant_from, tenant_to, number)
         cross join lateral (
            select wanted.number::integer as number, ready.tenant, ready.priority, ready.due_at from duly.ready
             where not ready.is_unroutable and ready.queue = wanted.queue and ready.tenant >= wanted.tenant_from and ready.tenant <= wanted.tenant_to
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as first
        union all
        select next.* from walk cross join lateral (
            select walk.number, ready.tenant, ready.priority, ready.due_at from duly.ready
             where not ready.is_unroutable and ready.queue = p_queues[walk.number] and (ready.tenant, ready.priority) > (walk.tenant, walk.priority)
               and ready.tenant <= p_to[walk.number]
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as next)
    select row_number() over (), walk.number, walk.tenant, walk.priority, walk.due_at from (select * from walk limit p_subqueues_max) as walk;
end $$;

-- Let the next claim of these queues begin with these tenants. A claim that finds the row locked changes nothing: only the order depends on it.
create or replace function duly.set_claim_positions(p_queues text[], p_tenants integer[]) returns void
language plpgsql as $$
begin
    update duly.claim_positions set tenant = given.tenant
      from unnest(p_queues, p_tenants) as given(queue, tenant)
     where claim_positions.ctid = any (array(select ctid from duly.claim_positions where claim_positions.queue = any (p_queues) for update skip locked)) and claim_positions.queue = given.queue;
    insert into duly.claim_positions (queue, tenant)
    select given.queue, given.tenant from unnest(p_queues, p_tenants) as given(queue, tenant)
     where not exists (select from duly.claim_positions where claim_positions.queue = given.queue) on conflict do nothing;
end $$;

-- The subqueues that a claim may take from, in order of queue, tenant and priority; without those of paused tenants. Where there are more than
-- it looks at, it begins where the last one ended, so that all come up.
create or replace function duly.subqueues(p_queues text[], p_tenant integer, p_subqueues_max integer) returns duly.subqueue[]
language plpgsql as $$
declare
    v_from integer[] := array_fill(coalesce(p_tenant, 0), array[cardinality(p_queues)]);
    v_to   integer[] := array_fill(coalesce(p_tenant, 2147483647), array[cardinality(p_queues)]);
    v_seen duly.subqueue[];
    v_more duly.subqueue[];
begin
    if p_tenant is null and exists (select from duly.claim_positions) then
        v_from := array(select coalesce(claim_positions.tenant, 0) from unnest(p_queues) with ordinality as requested(queue, number)
                          left join duly.claim_positions on claim_positions.queue = requested.queue order by requested.number);
    end if;
    v_seen := array(select row(w.number, p_queues[w.number], w.tenant, w.priority, w.due_at, 1, false, 0)::duly.subqueue
                      from duly.walk(p_queues, v_from, v_to, p_subqueues_max) as w order by w.step);
    if p_tenant is null and cardinality(v_seen) < p_subqueues_max and 0 < any (v_from) then      -- From the first tenant on to where we began.
        v_more := array(select row(w.number, p_queues[w.number], w.tenant, w.priority, w.due_at, 1, false, 0)::duly.subqueue
                          from duly.walk(p_queues, array_fill(0, array[cardinality(p_queues)]), array(select f.tenant - 1 from unnest(v_from) as f(tenant)),
                                            p_subqueues_max - cardinality(v_seen)) as w order by w.step);
        v_seen := v_seen || v_more;
        if cardinality(v_seen) < p_subqueues_max then
            perform duly.set_claim_positions(p_queues, array_fill(0, array[cardinality(p_queues)]));
        end if;
    end if;
    if p_tenant is null and cardinality(v_seen) >= p_subqueues_max then
        perform duly.set_claim_positions(array_agg(last.queue), array_agg(last.tenant))
           from (select distinct on (seen.queue) seen.queue, seen.tenant from unnest(v_seen) with ordinality
                     as seen(number, queue, tenant, priority, due_at, weight, is_limited, taken, step) order by seen.queue, seen.step desc) as last;
    end if;
    return array(
        select row(seen.number, seen.queue, seen.tenant, seen.priority, seen.due_at,
                   coalesce((select tenants.weight from duly.tenants where tenants.tenant = seen.tenant), 1), false, 0)::duly.subqueue
          from unnest(v_seen) as seen
         where not exists (select from duly.pauses where pauses.tenant = seen.tenant and duly.is_paused_by(pauses.queue, seen.queue))
           and not exists (select from duly.absent_tenants where absent_tenants.tenant = seen.tenant)
         order by seen.number, seen.tenant, seen.priority);
end $$;

-- The number that each subqueue gives in one round: its part of the plan, where what goes by rank is counted out among a tenant's priorities.
-- Looks at waiting runs, from the first run of each subqueue on, and locks nothing.
create or replace function duly.quotas(
    p_subqueues duly.subqueue[], p_weights integer[], p_handlers text[], p_takes_suspects boolean, p_until timestamptz, p_limit integer,
    p_seed bigint)
returns integer[]
language plpgsql stable as $$
#variable_conflict use_column
declare
    v_quotas integer[] := array_fill(0, array[cardinality(p_subqueues)]);
    v_rest   integer[] := array_fill(0, array[cardinality(p_subqueues)]);
    v_plan   record;
    v_ranked boolean := false;
begin
    for v_plan in
        select plan.* from (select array_agg(subqueue.number) as numbers, array_agg(subqueue.tenant) as tenants, array_agg(subqueue.weight) as weights
                              from unnest(p_subqueues) as subqueue) as given
         cross join lateral duly.plan_claim(given.numbers, given.tenants, p_weights, given.weights, p_limit, p_seed) as plan
    loop
        v_quotas[v_plan.subqueue] := v_plan.quota + case when v_plan.is_alone then v_plan.rest else 0 end;
        if not v_plan.is_alone and v_plan.rest > 0 then
            v_rest[v_plan.subqueue] := v_plan.rest;
            v_ranked := true;
        end if;
    end loop;
    if v_ranked then
        v_quotas := array(
            select (given.quota + coalesce(first.runs, 0))::integer
              from unnest(v_quotas) with ordinality as given(quota, number)
              left join (
                select ranked.number, count(*) as runs
                  from (select subqueue.position as number, subqueue.rest, row_number() over (partition by subqueue.number, subqueue.tenant order by peek.rank) as position
                          from unnest(p_subqueues, v_rest) with ordinality
                               as subqueue(number, queue, tenant, priority, due_at, weight, is_limited, taken, rest, position)
                         cross join lateral (
                            select duly.rank(ready.due_at, subqueue.priority) as rank from duly.ready
                             where not ready.is_unroutable and ready.queue = subqueue.queue and ready.tenant = subqueue.tenant and ready.priority = subqueue.priority and ready.due_at >= subqueue.due_at
                               and ready.handler = any (p_handlers) and (p_takes_suspects or not ready.suspect) and ready.due_at <= p_until
                             order by ready.due_at limit subqueue.rest offset subqueue.taken) as peek
                         where subqueue.rest > 0) as ranked
                 where ranked.position <= ranked.rest group by ranked.number) as first on first.number = given.number
             order by given.number);
    end if;
    return v_quotas;
end $$;

----------------------------------------------------------------------------------------------------------------- limits

-- The number of runs of a scope that are leased, counted up to a bound. One that waits for its workflow is not, because the nodes
-- of that workflow are: counted with them it would hold the slot that they wait for. Reads the whole of leased, which is as large as
-- all leases together; an index would cost every claim of tenants without limits.
create or replace function duly.count_leased(p_tenant integer, p_queue text, p_up_to integer) returns integer
language plpgsql stable set enable_seqscan = on set enable_indexscan = off set enable_indexonlyscan = off set jit = off as $$
begin
    return (select count(*) from (select from duly.leased where (p_tenant is null or leased.tenant = p_tenant)
                                     and (p_queue is null or leased.queue = p_queue) and leased.handler <> '@workflow' limit p_up_to) as counted);
end $$;

create or replace function duly.is_within(p_limit duly.limits, p_tenant integer, p_queue text) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_limit.tenant, p_tenant) = p_tenant and coalesce(p_limit.queue, p_queue) = p_queue
$$;

-- The limits that these subqueues come under, locked until the commit; in one order, so that two claims do not wait for each other.
create or replace function duly.lock_limits(p_subqueues duly.subqueue[]) returns duly.limits[]
language plpgsql as $$
begin
    perform from duly.limits
      where exists (select from unnest(p_subqueues) as subqueue where duly.is_within(limits, subqueue.tenant, subqueue.queue))
      order by coalesce(limits.tenant, 0), coalesce(limits.queue, '') for update;
    -- As they are now: one may have changed while we waited for it.
    return array(select limits from duly.limits
                  where exists (select from unnest(p_subqueues) as subqueue where duly.is_within(limits, subqueue.tenant, subqueue.queue))
                  order by coalesce(limits.tenant, 0), coalesce(limits.queue, ''));
end $$;

-- Lower quotas until no limit has more than its room: of all the subqueues under it, as many as fit, from one that chance names.
create or replace function duly.within_rooms(p_subqueues duly.subqueue[], p_quotas integer[], p_limits duly.limits[], p_rooms integer[], p_seed bigint) returns integer[]
language plpgsql immutable as $$
declare
    v_quotas integer[] := p_quotas;
begin
    for i in 1 .. cardinality(p_limits) loop
        v_quotas := array(
            select case when requested.is_within then greatest(0, least(requested.quota, p_rooms[i] - requested.upto + requested.quota))::integer else requested.quota end
              from (select subqueue.quota, subqueue.position, duly.is_within(p_limits[i], subqueue.tenant, subqueue.queue) as is_within,
                           sum(subqueue.quota) filter (where duly.is_within(p_limits[i], subqueue.tenant, subqueue.queue))
                               over (order by duly.chance(p_seed, subqueue.position), subqueue.position) as upto
                      from unnest(p_subqueues, v_quotas) with ordinality
                           as subqueue(number, queue, tenant, priority, due_at, weight, is_limited, taken, quota, position)) as requested
             order by requested.position);
    end loop;
    return v_quotas;
end $$;

-- Of these queues, those that are not paused for a tenant, and where it has a slot left under each limit. A caller that asks whether to
-- claim may be wrong; the claim itself counts under a lock.
create or replace function duly.roomy_queues(p_queues text[], p_tenant integer) returns text[]
language plpgsql stable set jit = off as $$
begin
    return array(
        select requested.queue from unnest(duly.open_queues(p_queues, p_tenant)) with ordinality as requested(queue, number)
         where not exists (select from duly.limits where coalesce(limits.tenant, p_tenant) = p_tenant and coalesce(limits.queue, requested.queue) = requested.queue
                              and duly.count_leased(limits.tenant, limits.queue, limits.slots) >= limits.slots)
         order by requested.number);
end $$;

-- Return whether a worker was asked to take nothing more.
create or replace function duly.is_draining(p_worker_id uuid) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (select from duly.workers where worker_id = p_worker_id and draining_at is not null and duly.is_ours(tenant))
$$;

grant execute on function duly.is_draining to duly_api;
