-- Who is claimed first, decided at the claim; and how much may be under way at once.
-- docs/decisions/0028-who-is-claimed-first.md says why.

alter table duly.tenants add column weight integer not null default 1 check (weight between 1 and 1000);
alter table duly.workers add column weights integer[] not null default '{}';   -- of its queues, in their order; none: all alike

-- A line is what waits of a queue, a tenant and a priority, the oldest first. Which lines there are is found by this index alone.
create index ready_by_line on duly.ready (queue, tenant, priority, due_at);
drop index duly.ready_by_rank;
drop index duly.ready_of_tenant_by_rank;

-- Where there are more lines than one claim looks at, the tenant of a queue with which the next claim begins.
create table duly.turns (
    queue        text        primary key collate "C",
    tenant       integer     not null
) with (fillfactor = 50);

-- At most `places` runs are under way at once, of everything, a queue, a tenant, or a tenant's share of a queue.
create table duly.limits (
    tenant       integer     check (tenant >= 1),       -- null: of every tenant
    queue        text        collate "C" check (queue <> ''),  -- null: of every queue
    places       integer     not null check (places >= 1),
    set_by       text        not null,
    set_at       timestamptz not null
);
create unique index limits_by_scope on duly.limits (coalesce(tenant, 0), coalesce(queue, ''));

------------------------------------------------------------------------------------------------------------------ the plan

-- A number from 0 up to 1, always the same for the same two: chance that a test can repeat.
create function duly.chance(p_seed bigint, p_number bigint) returns double precision language sql immutable parallel safe as $$
    select (hashint8extended(p_seed, p_number) & 9007199254740991) / 9007199254740992.0::double precision
$$;

-- Share a claim out among lines. A queue's part follows its weight among the queues that have lines, a tenant's part of it follows
-- its weight among the tenants there. Parts are rounded so that each is its share to within one, all together are the limit, and over
-- many claims each gets its exact share: also where the limit is 1. Of a tenant's part, a tenth goes to its priorities evenly and is
-- certain, whatever their rank (`quota`); the rest of it goes by rank (`rest`, told on each of its lines).
-- Lines come as arrays, in order of queue and tenant.
create function duly.plan_claim_v1(
    p_numbers integer[], p_tenants integer[], p_weights integer[], p_tenant_weights integer[], p_limit integer, p_seed bigint)
returns table (line integer, quota integer, rest integer, is_alone boolean)
language sql immutable as $$
    with lines as (
        select line::integer, number, tenant, p_weights[number] as queue_weight, tenant_weight
          from unnest(p_numbers, p_tenants, p_tenant_weights) with ordinality as given(number, tenant, tenant_weight, line)),
    shares as (
        select number, tenant, count(*) as lines, min(line) as first,
               p_limit::double precision * min(queue_weight) / (select sum(weight) from (select min(queue_weight) as weight from lines group by number) as each)
               * min(tenant_weight) / sum(min(tenant_weight)) over (partition by number) as share
          from lines group by number, tenant),
    summed as (select *, sum(share) over (order by first) + duly.chance(p_seed, 0) as upto from shares),
    parts as (select number, tenant, lines, (floor(upto) - floor(upto - share))::integer as part from summed),
    floors as (
        select lines.line, parts.lines, parts.part, lines.number, lines.tenant, 0.1::double precision * parts.part / parts.lines as share,
               row_number() over (partition by lines.number, lines.tenant order by lines.line) * 0.1::double precision * parts.part / parts.lines
               + duly.chance(p_seed, lines.tenant) as upto
          from lines join parts on parts.number = lines.number and parts.tenant = lines.tenant where parts.part > 0),
    certain as (select *, (floor(upto) - floor(upto - share))::integer as quota from floors)
    select line, quota, part - sum(quota) over (partition by number, tenant)::integer, lines = 1 from certain order by line
$$;

-- A line as a claim sees it: the number of its queue among those asked for, the due moment of its first run, its tenant's weight,
-- whether it comes under a limit, and how many were taken of it already.
create type duly.line as
    (number integer, queue text, tenant integer, priority smallint, due_at timestamptz, weight integer, is_limited boolean, taken integer);

-- The lines of these queues, of the tenants from one to another, given for each queue. One step of the index for each line, whatever
-- waits in it.
create function duly.walk_v1(p_queues text[], p_from integer[], p_to integer[], p_lines_max integer)
returns table (step bigint, number integer, tenant integer, priority smallint, due_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    with recursive walk as (
        select first.* from unnest(p_queues, p_from, p_to) with ordinality as wanted(queue, tenant_from, tenant_to, number)
         cross join lateral (
            select wanted.number::integer as number, ready.tenant, ready.priority, ready.due_at from duly.ready
             where ready.queue = wanted.queue and ready.tenant >= wanted.tenant_from and ready.tenant <= wanted.tenant_to
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as first
        union all
        select next.* from walk cross join lateral (
            select walk.number, ready.tenant, ready.priority, ready.due_at from duly.ready
             where ready.queue = p_queues[walk.number] and (ready.tenant, ready.priority) > (walk.tenant, walk.priority)
               and ready.tenant <= p_to[walk.number]
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as next)
    select row_number() over (), walk.number, walk.tenant, walk.priority, walk.due_at from (select * from walk limit p_lines_max) as walk;
end $$;

-- Let the next claim of these queues begin with these tenants. Whoever finds that another is about to says nothing: it is only a turn.
create function duly.turn_v1(p_queues text[], p_tenants integer[]) returns void
language plpgsql as $$
begin
    update duly.turns set tenant = given.tenant
      from unnest(p_queues, p_tenants) as given(queue, tenant)
     where turns.ctid = any (array(select ctid from duly.turns where turns.queue = any (p_queues) for update skip locked)) and turns.queue = given.queue;
    insert into duly.turns (queue, tenant)
    select given.queue, given.tenant from unnest(p_queues, p_tenants) as given(queue, tenant)
     where not exists (select from duly.turns where turns.queue = given.queue) on conflict do nothing;
end $$;

-- The lines that a claim may take from, in order of queue, tenant and priority; without those of tenants that are held. Where there are more than
-- it looks at, it begins where the last one ended, so that all come up.
create function duly.lines_v1(p_queues text[], p_tenant integer, p_lines_max integer) returns duly.line[]
language plpgsql as $$
declare
    v_from integer[] := array_fill(coalesce(p_tenant, 0), array[cardinality(p_queues)]);
    v_to   integer[] := array_fill(coalesce(p_tenant, 2147483647), array[cardinality(p_queues)]);
    v_seen duly.line[];
    v_more duly.line[];
begin
    if p_tenant is null and exists (select from duly.turns) then
        v_from := array(select coalesce(turns.tenant, 0) from unnest(p_queues) with ordinality as asked(queue, number)
                          left join duly.turns on turns.queue = asked.queue order by asked.number);
    end if;
    v_seen := array(select row(w.number, p_queues[w.number], w.tenant, w.priority, w.due_at, 1, false, 0)::duly.line
                      from duly.walk_v1(p_queues, v_from, v_to, p_lines_max) as w order by w.step);
    if p_tenant is null and cardinality(v_seen) < p_lines_max and 0 < any (v_from) then      -- From the first tenant on to where we began.
        v_more := array(select row(w.number, p_queues[w.number], w.tenant, w.priority, w.due_at, 1, false, 0)::duly.line
                          from duly.walk_v1(p_queues, array_fill(0, array[cardinality(p_queues)]), array(select f.tenant - 1 from unnest(v_from) as f(tenant)),
                                            p_lines_max - cardinality(v_seen)) as w order by w.step);
        v_seen := v_seen || v_more;
        if cardinality(v_seen) < p_lines_max then
            perform duly.turn_v1(p_queues, array_fill(0, array[cardinality(p_queues)]));
        end if;
    end if;
    if p_tenant is null and cardinality(v_seen) >= p_lines_max then
        perform duly.turn_v1(array_agg(last.queue), array_agg(last.tenant))
           from (select distinct on (seen.queue) seen.queue, seen.tenant from unnest(v_seen) with ordinality
                     as seen(number, queue, tenant, priority, due_at, weight, is_limited, taken, step) order by seen.queue, seen.step desc) as last;
    end if;
    return array(
        select row(seen.number, seen.queue, seen.tenant, seen.priority, seen.due_at,
                   coalesce((select tenants.weight from duly.tenants where tenants.tenant = seen.tenant), 1), false, 0)::duly.line
          from unnest(v_seen) as seen
         where not exists (select from duly.holds where holds.tenant = seen.tenant and coalesce(holds.queue, seen.queue) = seen.queue)
         order by seen.number, seen.tenant, seen.priority);
end $$;

---------------------------------------------------------------------------------------------------------------- limits

-- How many runs of a scope are in somebody's hands, counted up to a bound. One that waits for its workflow is not, because the nodes
-- of that workflow are: counted with them it would hold the place that they wait for. Reads the whole of leased, which is as large as
-- all workers' hands together; an index would cost every claim of those who have no limits.
create function duly.count_leased(p_tenant integer, p_queue text, p_up_to integer) returns integer
language plpgsql stable set enable_seqscan = on set enable_indexscan = off set enable_indexonlyscan = off set jit = off as $$
begin
    return (select count(*) from (select from duly.leased where (p_tenant is null or leased.tenant = p_tenant)
                                     and (p_queue is null or leased.queue = p_queue) and leased.handler <> '@workflow' limit p_up_to) as counted);
end $$;

create function duly.is_within(p_limit duly.limits, p_tenant integer, p_queue text) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_limit.tenant, p_tenant) = p_tenant and coalesce(p_limit.queue, p_queue) = p_queue
$$;

-- The limits that these lines come under, locked until the commit; in one order, so that two claims do not wait for each other.
create function duly.lock_limits(p_lines duly.line[]) returns duly.limits[]
language plpgsql as $$
begin
    perform from duly.limits
      where exists (select from unnest(p_lines) as line where duly.is_within(limits, line.tenant, line.queue))
      order by coalesce(limits.tenant, 0), coalesce(limits.queue, '') for update;
    -- As they are now: one may have changed while we waited for it.
    return array(select limits from duly.limits
                  where exists (select from unnest(p_lines) as line where duly.is_within(limits, line.tenant, line.queue))
                  order by coalesce(limits.tenant, 0), coalesce(limits.queue, ''));
end $$;

-- Lower quotas until no limit has more than its room: of all the lines under it, as many as fit, from one that chance names.
create function duly.within_rooms(p_lines duly.line[], p_quotas integer[], p_limits duly.limits[], p_rooms integer[], p_seed bigint) returns integer[]
language plpgsql immutable as $$
declare
    v_quotas integer[] := p_quotas;
begin
    for i in 1 .. cardinality(p_limits) loop
        v_quotas := array(
            select case when asked.is_within then greatest(0, least(asked.quota, p_rooms[i] - asked.upto + asked.quota))::integer else asked.quota end
              from (select line.quota, line.place, duly.is_within(p_limits[i], line.tenant, line.queue) as is_within,
                           sum(line.quota) filter (where duly.is_within(p_limits[i], line.tenant, line.queue))
                               over (order by duly.chance(p_seed, line.place), line.place) as upto
                      from unnest(p_lines, v_quotas) with ordinality
                           as line(number, queue, tenant, priority, due_at, weight, is_limited, taken, quota, place)) as asked
             order by asked.place);
    end loop;
    return v_quotas;
end $$;

---------------------------------------------------------------------------------------------------------------- choose

-- Whether a run asks for what a worker of the version before knows nothing of: it would run a node without what its parents gave, start
-- what has expired, and retry by other rules.
create function duly.is_for_newer(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ?| array['node', 'expires_at', 'expires_seconds']
                    or p_options->'retry' ?| array['policy', 'rules', 'delays', 'jitter', 'max_age_seconds'], false)
$$;

-- How much each line gives in one round: its part of the plan, where what goes by rank is counted out among a tenant's priorities.
-- Looks at what waits and locks nothing.
create function duly.quotas_v1(
    p_lines duly.line[], p_weights integer[], p_handlers text[], p_takes_suspects boolean, p_is_older boolean, p_until timestamptz, p_limit integer,
    p_seed bigint)
returns integer[]
language plpgsql stable as $$
#variable_conflict use_column
declare
    v_quotas integer[] := array_fill(0, array[cardinality(p_lines)]);
    v_rest   integer[] := array_fill(0, array[cardinality(p_lines)]);
    v_plan   record;
    v_ranked boolean := false;
begin
    for v_plan in
        select plan.* from (select array_agg(line.number) as numbers, array_agg(line.tenant) as tenants, array_agg(line.weight) as weights
                              from unnest(p_lines) as line) as given
         cross join lateral duly.plan_claim_v1(given.numbers, given.tenants, p_weights, given.weights, p_limit, p_seed) as plan
    loop
        v_quotas[v_plan.line] := v_plan.quota + case when v_plan.is_alone then v_plan.rest else 0 end;
        if not v_plan.is_alone and v_plan.rest > 0 then
            v_rest[v_plan.line] := v_plan.rest;
            v_ranked := true;
        end if;
    end loop;
    if v_ranked then
        v_quotas := array(
            select (given.quota + coalesce(first.runs, 0))::integer
              from unnest(v_quotas) with ordinality as given(quota, number)
              left join (
                select ranked.number, count(*) as runs
                  from (select line.place as number, line.rest, row_number() over (partition by line.number, line.tenant order by peek.rank) as place
                          from unnest(p_lines, v_rest) with ordinality
                               as line(number, queue, tenant, priority, due_at, weight, is_limited, taken, rest, place)
                         cross join lateral (
                            select duly.rank(ready.due_at, line.priority) as rank from duly.ready
                             where ready.queue = line.queue and ready.tenant = line.tenant and ready.priority = line.priority
                               and ready.handler = any (p_handlers) and (p_takes_suspects or not ready.suspect) and ready.due_at <= p_until
                               and not (p_is_older and duly.is_for_newer(ready.options))
                             order by ready.due_at limit line.rest offset line.taken) as peek
                         where line.rest > 0) as ranked
                 where ranked.place <= ranked.rest group by ranked.number) as first on first.number = given.number
             order by given.number);
    end if;
    return v_quotas;
end $$;

-- Choose and lock what a claim takes, up to p_limit runs, and give their places. Only what is taken is locked. What is due comes before
-- what is ahead of its moment; and what a line cannot give goes to the others, in a further round.
-- Under a limit only what is due is taken, because what is held ahead would use up places. Whoever claims under a limit holds its row
-- until the commit, and counts in a statement that began after that lock was had: so the count is exact, and who leaves only lowers it.
-- Runs under the planner settings of the claim that calls it.
create function duly.choose_v1(
    p_queues text[], p_weights integer[], p_handlers text[], p_tenant integer, p_is_ahead boolean, p_takes_suspects boolean, p_is_older boolean,
    p_limit integer, p_fence bigint, p_now timestamptz)
returns tid[]
language plpgsql as $$
#variable_conflict use_column
declare
    v_lines  duly.line[] := duly.lines_v1(p_queues, p_tenant, least(256, greatest(32, 2 * p_limit)) + (select count(*)::integer from duly.holds));
    v_limits duly.limits[] := '{}';
    v_rooms  integer[] := '{}';
    v_until  timestamptz := case when p_is_ahead then 'infinity' else p_now end;
    v_left   integer := p_limit;
    v_is_due boolean;                                  -- This round takes what is due, and nothing else,
    v_upto   timestamptz;                              -- so up to here.
    v_asked  duly.line[];
    v_quotas integer[];
    v_took   integer[];
    v_slice  tid[];
    v_places tid[] := '{}';
begin
    if v_lines = '{}' then
        return v_places;
    elsif exists (select from duly.limits) then
        v_limits := duly.lock_limits(v_lines);
        v_rooms := array(select one.places - duly.count_leased(one.tenant, one.queue, one.places) from unnest(v_limits) as one);
        v_lines := array(
            select row(line.number, line.queue, line.tenant, line.priority, line.due_at, line.weight,
                       exists (select from unnest(v_limits) as one where duly.is_within(one, line.tenant, line.queue)), 0)::duly.line
              from unnest(v_lines) as line
             where not exists (select from unnest(v_limits, v_rooms) as one(tenant, queue, places, set_by, set_at, room)
                                where one.room <= 0 and coalesce(one.tenant, line.tenant) = line.tenant and coalesce(one.queue, line.queue) = line.queue));
        if v_lines = '{}' then
            return v_places;
        end if;
    end if;
    if cardinality(v_lines) = 1 and v_limits = '{}' then       -- One queue, one tenant, one priority: nothing to share out.
        return array(
            select ctid from duly.ready
             where ready.queue = (v_lines[1]).queue and ready.tenant = (v_lines[1]).tenant and ready.priority = (v_lines[1]).priority
               and ready.handler = any (p_handlers) and (p_takes_suspects or not ready.suspect) and ready.due_at <= v_until
               and not (p_is_older and duly.is_for_newer(ready.options))
             order by ready.due_at limit p_limit for update skip locked);
    end if;
    v_is_due := true;
    v_asked := array(select line from unnest(v_lines) as line where line.due_at <= p_now);
    for round in 1 .. 4 loop
        if v_asked = '{}' and v_is_due and p_is_ahead then
            v_is_due := false;
            v_asked := array(select line from unnest(v_lines) as line where not line.is_limited);
        end if;
        exit when v_asked = '{}' or v_left <= 0;
        v_upto := case when v_is_due then p_now else v_until end;
        v_quotas := duly.quotas_v1(v_asked, p_weights, p_handlers, p_takes_suspects, p_is_older, v_upto, v_left, p_fence * 8 + round);
        if v_limits <> '{}' then
            v_quotas := duly.within_rooms(v_asked, v_quotas, v_limits, v_rooms, p_fence);
        end if;
        with found as materialized (
            select line.place as number, slice.place
              from unnest(v_asked, v_quotas) with ordinality as line(number, queue, tenant, priority, due_at, weight, is_limited, taken, quota, place)
             cross join lateral (                      -- Those we have taken before are locked by ourselves, and so they are not skipped.
                select ready.ctid as place from duly.ready
                 where ready.queue = line.queue and ready.tenant = line.tenant and ready.priority = line.priority
                   and ready.handler = any (p_handlers) and (p_takes_suspects or not ready.suspect) and ready.due_at <= v_upto
                   and not (p_is_older and duly.is_for_newer(ready.options))
                 order by ready.due_at limit line.quota offset line.taken for update skip locked) as slice
             where line.quota > 0)
        select array(select found.place from found),
               array(select coalesce(counted.runs, 0)::integer from generate_subscripts(v_asked, 1) as each(number)
                       left join (select found.number, count(*) as runs from found group by found.number) as counted on counted.number = each.number
                      order by each.number)
          into v_slice, v_took;
        v_places := v_places || v_slice;
        v_left := v_left - cardinality(v_slice);
        for i in 1 .. cardinality(v_rooms) loop
            v_rooms[i] := v_rooms[i] - (select coalesce(sum(line.took), 0)
                                          from unnest(v_asked, v_took) as line(number, queue, tenant, priority, due_at, weight, is_limited, taken, took)
                                         where duly.is_within(v_limits[i], line.tenant, line.queue));
        end loop;
        v_lines := array(
            select row(line.number, line.queue, line.tenant, line.priority, line.due_at, line.weight, line.is_limited, line.taken + coalesce(given.took, 0))::duly.line
              from unnest(v_lines) as line
              left join unnest(v_asked, v_took) as given(number, queue, tenant, priority, due_at, weight, is_limited, taken, took)
                on given.number = line.number and given.tenant = line.tenant and given.priority = line.priority
             order by line.number, line.tenant, line.priority);
        v_asked := array(
            select row(line.number, line.queue, line.tenant, line.priority, line.due_at, line.weight, line.is_limited, line.taken + line.took)::duly.line
              from unnest(v_asked, v_took, v_quotas) with ordinality
                   as line(number, queue, tenant, priority, due_at, weight, is_limited, taken, took, quota, place)
             where line.took >= line.quota
               and not exists (select from unnest(v_rooms) with ordinality as one(room, i)
                                where one.room <= 0 and duly.is_within(v_limits[one.i], line.tenant, line.queue))
             order by line.place);
    end loop;
    return v_places;
end $$;

----------------------------------------------------------------------------------------------------------------- claim

-- Move up to p_limit runs into the hands of a live worker: shared out between queues by their weights, between tenants by theirs, and
-- within a tenant by rank, with a floor for each of its priorities. The worker's row is held for key share, which does not hinder its
-- heartbeat but makes the reaper's delete wait, so that no lease can outlive the row it hangs on. What is held stays where it is.
create function duly.claim_v2(
    p_worker_id uuid, p_queues text[], p_weights integer[], p_handlers text[], p_limit integer, p_is_older boolean default false)
returns table (place tid, fence bigint, run_id uuid, job_id uuid, scheduled_at timestamptz, due_at timestamptz,
               previous_scheduled_at timestamptz, generation integer, tenant integer, attempt integer, priority smallint, losses smallint,
               suspect boolean, payload_stored boolean, queue text, handler text, payload jsonb, options jsonb)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_fence   bigint;
    v_open    text[];
    v_weights integer[];
    v_places  tid[];
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    select array_agg(asked.queue order by asked.number), array_agg(coalesce(asked.weight, 1) order by asked.number) into v_open, v_weights
      from unnest(p_queues, p_weights) with ordinality as asked(queue, weight, number)
     where not exists (select from duly.holds where holds.tenant is null and coalesce(holds.queue, asked.queue) = asked.queue);
    if not exists (select from unnest(v_open) as wanted(queue) where exists (select from duly.ready where ready.queue = wanted.queue)) then
        return;                                        -- An idle poll ends here: no fence drawn, nothing written, no commit to wait for.
    end if;
    v_fence := nextval('duly.fences');
    v_places := duly.choose_v1(v_open, v_weights, p_handlers, null, true, true, p_is_older, p_limit, v_fence, v_now);
    if v_places = '{}' then
        return;
    end if;
    return query
    with taken as (
        delete from duly.ready where ctid = any (v_places) returning *)
    insert into duly.leased (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                             suspect, payload_stored, queue, handler, payload, options, fence, worker_id, claimed_at)
    select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt + 1, priority, losses,
           suspect, payload_stored, queue, handler, payload, options, v_fence, p_worker_id, v_now
      from taken
    returning ctid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
              suspect, payload_stored, queue, handler, payload, options;
end $$;

-- For workers of the version before: all queues weigh the same, and what they cannot run as it asks stays for others.
create or replace function duly.claim_v1(p_worker_id uuid, p_queues text[], p_handlers text[], p_limit integer)
returns table (place tid, fence bigint, run_id uuid, job_id uuid, scheduled_at timestamptz, due_at timestamptz,
               previous_scheduled_at timestamptz, generation integer, tenant integer, attempt integer, priority smallint, losses smallint,
               suspect boolean, payload_stored boolean, queue text, handler text, payload jsonb, options jsonb)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
begin
    return query select * from duly.claim_v2(p_worker_id, p_queues, '{}', p_handlers, p_limit, true);
end $$;

-- Of these queues, those that are not held for a tenant, and where it has a place left under each limit. Who asks to know whether to
-- claim may be wrong; the claim itself counts under a lock.
create function duly.roomy_queues(p_queues text[], p_tenant integer) returns text[]
language plpgsql stable set jit = off as $$
begin
    return array(
        select asked.queue from unnest(duly.open_queues(p_queues, p_tenant)) with ordinality as asked(queue, number)
         where not exists (select from duly.limits where coalesce(limits.tenant, p_tenant) = p_tenant and coalesce(limits.queue, asked.queue) = asked.queue
                              and duly.count_leased(limits.tenant, limits.queue, limits.places) >= limits.places)
         order by asked.number);
end $$;

-- In how many seconds a claim may find something: 0 when it should ask, null when nothing is in sight. Locks nothing and writes nothing.
-- For a worker that is gone it says 0, because the claim will say so.
create or replace function duly.foresee_v1(p_worker_id uuid, p_tenant integer) returns double precision
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
    v_now    timestamptz := duly.clock_now();
    v_worker duly.workers;
    v_open   text[];
    v_crowd  boolean;
begin
    select * into v_worker from duly.workers where workers.worker_id = p_worker_id and workers.tenant = p_tenant;
    if not found or v_worker.until <= v_now then
        return 0;
    elsif v_worker.safe_until < v_now then
        return null;                                   -- It has to renew its lease first.
    end if;
    v_crowd := exists (select from duly.leased where leased.worker_id = p_worker_id and leased.suspect);
    v_open := duly.roomy_queues(v_worker.queues, p_tenant);
    return (
        select min(case when next.due_at <= v_now then 0 else date_part('epoch', next.due_at - v_now) end)
          from duly.walk_v1(v_open, array_fill(p_tenant, array[cardinality(v_open)]), array_fill(p_tenant, array[cardinality(v_open)]), 10000) as line
         cross join lateral (
            select ready.due_at from duly.ready
             where ready.queue = v_open[line.number] and ready.tenant = p_tenant and ready.priority = line.priority
               and ready.handler = any (v_worker.handlers) and not (ready.suspect and v_crowd)
             order by ready.due_at limit 1) as next
         where v_open <> '{}');
end $$;

-- Move runs that are due into the hands of a worker of this session's tenant. As claim_v2, with these differences. Queues and handlers
-- are those that the worker was registered with, and the tenant is its own. Nothing is held ahead, and never more than it has slots.
-- Its row is locked for the length of the claim, so that its claims follow each other and the fence of each is higher. It is given
-- one suspect at a time, which is named here, before it can have started.
create or replace function duly.api_claim_v1(p_worker_id uuid, p_number bigint, p_limit integer)
returns table (place tid, fence bigint, run_id uuid, job_id uuid, scheduled_at timestamptz, due_at timestamptz,
               previous_scheduled_at timestamptz, generation integer, tenant integer, attempt integer, priority smallint, losses smallint,
               suspect boolean, payload_stored boolean, queue text, handler text, payload jsonb, options jsonb, claimed_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_worker duly.workers;
    v_fence  bigint;
    v_open   text[];
    v_room   integer;
    v_crowd  boolean;
    v_places tid[];
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
        return;                                        -- What it started now would be taken for not started, should it die.
    end if;
    v_open := duly.open_queues(v_worker.queues, v_worker.tenant);
    v_room := least(p_limit, v_worker.slots - (select count(*) from duly.leased where leased.worker_id = p_worker_id));
    if v_room <= 0 or v_open = '{}' then
        return;
    end if;
    v_crowd := exists (select from duly.leased where leased.worker_id = p_worker_id and leased.suspect);
    v_fence := nextval('duly.fences');
    v_places := duly.choose_v1(v_open, array_fill(1, array[cardinality(v_open)]), v_worker.handlers, v_worker.tenant, false, not v_crowd, false, v_room, v_fence, v_now);
    if v_places = '{}' then
        return;
    end if;
    return query
    with found as (
        select ready.ctid as place, ready.suspect, row_number() over (partition by ready.suspect order by ready.rank) as number
          from duly.ready where ready.ctid = any (v_places)),
    taken as (
        delete from duly.ready where ctid = any (array(select found.place from found where not found.suspect or found.number = 1))
        returning *),
    held as (
        insert into duly.leased (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                 suspect, payload_stored, queue, handler, payload, options, fence, worker_id, claimed_at)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt + 1, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, v_fence, p_worker_id, v_now
          from taken
        returning leased.ctid as place, leased.*),
    noted as (
        update duly.workers set claim_number = p_number, claim_fence = v_fence,
               named = coalesce((select array_agg(held.run_id || '/' || v_fence) from held where held.suspect), workers.named)
         where workers.worker_id = p_worker_id and exists (select from held))
    select place, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
           suspect, payload_stored, queue, handler, payload, options, claimed_at
      from held;
end $$;

revoke execute on function
    duly.chance, duly.plan_claim_v1, duly.walk_v1, duly.turn_v1, duly.lines_v1, duly.count_leased, duly.is_within, duly.lock_limits, duly.within_rooms,
    duly.is_for_newer, duly.quotas_v1, duly.choose_v1, duly.claim_v2, duly.roomy_queues
    from public;
