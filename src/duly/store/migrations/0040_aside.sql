-- What no live worker knows stands aside, so that no claim walks over it: docs/decisions/0046-runs-that-nobody-knows.md says why.

-- Still ready, and in no line.
alter table duly.ready add column is_aside boolean not null default false;

-- The lines, as before, of what is in line.
drop index duly.ready_by_line;
create index ready_by_line on duly.ready (queue, tenant, priority, due_at) where not is_aside;

-- What stands aside, by who could take it; and its lines, for whoever brings it back.
create index ready_aside on duly.ready (queue, handler, tenant, priority, due_at) where is_aside;

---------------------------------------------------------------------------------------------------------------- bring back

-- Put in line again what stands aside of these queues, handlers and tenant, about p_limit runs: of each line the oldest, and of each as many.
-- What somebody has locked is left for the next time. Gives how many there were.
create function duly.bring_back_v1(p_queues text[], p_handlers text[], p_tenant integer, p_limit integer) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    c_lines constant integer := 256;
    v_to    integer := coalesce(p_tenant, 2147483647);
    v_back  integer;
begin
    with recursive walk as (
        select first.* from unnest(p_queues) as asked(queue) cross join unnest(p_handlers) as known(handler) cross join lateral (
            select ready.queue, ready.handler, ready.tenant, ready.priority from duly.ready
             where ready.is_aside and ready.queue = asked.queue and ready.handler = known.handler
               and ready.tenant >= coalesce(p_tenant, 0) and ready.tenant <= v_to
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as first
        union all
        select next.* from walk cross join lateral (
            select ready.queue, ready.handler, ready.tenant, ready.priority from duly.ready
             where ready.is_aside and ready.queue = walk.queue and ready.handler = walk.handler
               and (ready.tenant, ready.priority) > (walk.tenant, walk.priority) and ready.tenant <= v_to
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    lines as materialized (select * from walk limit c_lines),
    found as materialized (
        select slice.place from lines cross join lateral (
            select ready.ctid as place from duly.ready
             where ready.is_aside and ready.queue = lines.queue and ready.handler = lines.handler and ready.tenant = lines.tenant
               and ready.priority = lines.priority
             order by ready.due_at limit greatest(1, p_limit / (select count(*) from lines)) for update skip locked) as slice)
    update duly.ready set is_aside = false where ctid = any (array(select place from found));
    get diagnostics v_back = row_count;
    return v_back;
end $$;

-- Put in line again what some live worker knows, about p_limit runs. Of what a worker knows it asks for what stands aside at all, where that
-- is not too much to be named: otherwise each kind of worker would ask in vain for all it knows.
create function duly.bring_back_known_v1(p_limit integer) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    c_kinds    constant integer := 1000;
    v_queues   text[];
    v_handlers text[];
    v_kinds    integer;
    v_kind     record;
    v_back     integer := 0;
begin
    with recursive walk as (
        (select ready.queue, ready.handler from duly.ready where ready.is_aside
          order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1)
        union all
        select next.queue, next.handler from walk cross join lateral (
            select ready.queue, ready.handler from duly.ready where ready.is_aside and (ready.queue, ready.handler) > (walk.queue, walk.handler)
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as next)
    select array_agg(distinct queue), array_agg(distinct handler), count(*) into v_queues, v_handlers, v_kinds
      from (select * from walk limit c_kinds) as kinds;
    for v_kind in
        select distinct
               case when v_kinds < c_kinds then array(select unnest(workers.queues) intersect select unnest(v_queues)) else workers.queues end as queues,
               case when v_kinds < c_kinds then array(select unnest(workers.handlers) intersect select unnest(v_handlers)) else workers.handlers end as handlers,
               workers.tenant
          from duly.workers
         where workers.until > duly.clock_now() and (v_kinds = c_kinds or (workers.queues && v_queues and workers.handlers && v_handlers))
    loop
        exit when v_back >= p_limit;
        v_back := v_back + duly.bring_back_v1(v_kind.queues, v_kind.handlers, v_kind.tenant, p_limit - v_back);
    end loop;
    return v_back;
end $$;

----------------------------------------------------------------------------------------------------------------- set aside

-- Set aside what no live worker of its queue knows, where much of it stands in front of a line: p_crowd among the first p_looks; or p_more,
-- where runs of the same kind stand aside already. Walks from a line on, over p_lines of them at most, looks into 20 at most, and ends with
-- the one of which it took something. Gives how many runs it took, and the line to go on with; none when it has come to the end.
create function duly.set_aside_v1(
    p_queue text, p_tenant integer, p_priority smallint, p_lines integer, p_crowd integer, p_more integer, p_looks integer,
    out moved integer, out queue text, out tenant integer, out priority smallint)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_left  integer := 20;
    v_head  record;
begin
    select ready.queue, ready.tenant, ready.priority, ready.handler into v_head from duly.ready
     where not ready.is_aside and (ready.queue, ready.tenant, ready.priority) >= (p_queue, p_tenant, p_priority)
     order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1;
    moved := 0;
    for line in 1 .. p_lines loop
        exit when v_head.queue is null;
        if exists (select from duly.workers where workers.until > v_now and v_head.queue = any (workers.queues)
                      and coalesce(workers.tenant, v_head.tenant) = v_head.tenant)
           and not exists (select from duly.workers where workers.until > v_now and v_head.queue = any (workers.queues)
                              and coalesce(workers.tenant, v_head.tenant) = v_head.tenant and v_head.handler = any (workers.handlers))
        then
            with known as materialized (               -- As of this very statement: who has come before it is among them.
                select workers.handlers from duly.workers where workers.until > v_now and v_head.queue = any (workers.queues)
                   and coalesce(workers.tenant, v_head.tenant) = v_head.tenant),
            front as materialized (
                select ready.ctid as place, ready.handler from duly.ready
                 where not ready.is_aside and ready.queue = v_head.queue and ready.tenant = v_head.tenant and ready.priority = v_head.priority
                 order by ready.due_at limit p_looks),
            strangers as materialized (
                select front.place from front where front.handler not in (select unnest(known.handlers) from known)),
            crowd as materialized (
                select strangers.place from strangers where exists (select from known) and (select count(*) from strangers) >= case
                       when exists (select from duly.ready where ready.is_aside and ready.queue = v_head.queue and ready.handler = v_head.handler
                                       and ready.tenant = v_head.tenant) then p_more else p_crowd end)
            update duly.ready set is_aside = true
             where ctid = any (array(select ready.ctid from duly.ready where ready.ctid = any (array(select crowd.place from crowd))
                                        and not ready.is_aside for update skip locked));
            get diagnostics moved = row_count;
            exit when moved > 0;
            v_left := v_left - 1;
        end if;
        select ready.queue, ready.tenant, ready.priority, ready.handler into v_head from duly.ready
         where not ready.is_aside and (ready.queue, ready.tenant, ready.priority) > (v_head.queue, v_head.tenant, v_head.priority)
         order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1;
        exit when v_left = 0;
    end loop;
    queue := v_head.queue;
    tenant := v_head.tenant;
    priority := v_head.priority;
end $$;

revoke execute on function duly.bring_back_v1, duly.bring_back_known_v1, duly.set_aside_v1 from public;

------------------------------------------------------------------------------------------------------------------ lines

-- As before, of what is in line.
create or replace function duly.walk_v1(p_queues text[], p_from integer[], p_to integer[], p_lines_max integer)
returns table (step bigint, number integer, tenant integer, priority smallint, due_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    with recursive walk as (
        select first.* from unnest(p_queues, p_from, p_to) with ordinality as wanted(queue, tenant_from, tenant_to, number)
         cross join lateral (
            select wanted.number::integer as number, ready.tenant, ready.priority, ready.due_at from duly.ready
             where not ready.is_aside and ready.queue = wanted.queue and ready.tenant >= wanted.tenant_from and ready.tenant <= wanted.tenant_to
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as first
        union all
        select next.* from walk cross join lateral (
            select walk.number, ready.tenant, ready.priority, ready.due_at from duly.ready
             where not ready.is_aside and ready.queue = p_queues[walk.number] and (ready.tenant, ready.priority) > (walk.tenant, walk.priority)
               and ready.tenant <= p_to[walk.number]
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as next)
    select row_number() over (), walk.number, walk.tenant, walk.priority, walk.due_at from (select * from walk limit p_lines_max) as walk;
end $$;

-- As before, of what is in line.
create or replace function duly.quotas_v1(
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
                             where not ready.is_aside and ready.queue = line.queue and ready.tenant = line.tenant and ready.priority = line.priority and ready.due_at >= line.due_at
                               and ready.handler = any (p_handlers) and (p_takes_suspects or not ready.suspect) and ready.due_at <= p_until
                               and not (p_is_older and duly.is_for_newer(ready.options))
                             order by ready.due_at limit line.rest offset line.taken) as peek
                         where line.rest > 0) as ranked
                 where ranked.place <= ranked.rest group by ranked.number) as first on first.number = given.number
             order by given.number);
    end if;
    return v_quotas;
end $$;

-- As before, of what is in line.
create or replace function duly.choose_v2(
    p_lines duly.line[], p_weights integer[], p_handlers text[], p_is_ahead boolean, p_takes_suspects boolean, p_is_older boolean,
    p_limit integer, p_fence bigint, p_now timestamptz)
returns tid[]
language plpgsql as $$
#variable_conflict use_column
declare
    v_lines  duly.line[] := p_lines;
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
    if exists (select from duly.limits) then
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
             where not ready.is_aside and ready.queue = (v_lines[1]).queue and ready.tenant = (v_lines[1]).tenant and ready.priority = (v_lines[1]).priority and ready.due_at >= (v_lines[1]).due_at
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
                 where not ready.is_aside and ready.queue = line.queue and ready.tenant = line.tenant and ready.priority = line.priority and ready.due_at >= line.due_at
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

------------------------------------------------------------------------------------------------------------------ claim

-- As before; but first it puts in line what it knows of what stands aside.
create or replace function duly.claim_v2(
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
    v_aside   boolean;
    v_lines   duly.line[];
    v_places  tid[];
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    select array_agg(asked.queue order by asked.number), array_agg(coalesce(asked.weight, 1) order by asked.number),
           exists (select from duly.ready where ready.is_aside and ready.queue = any (p_queues) and ready.handler = any (p_handlers))
      into v_open, v_weights, v_aside
      from unnest(p_queues, p_weights) with ordinality as asked(queue, weight, number)
     where not exists (select from duly.holds where holds.tenant is null and coalesce(holds.queue, asked.queue) = asked.queue);
    if v_aside and v_open is not null then
        perform duly.bring_back_v1(v_open, p_handlers, null, greatest(100, 2 * p_limit));
    end if;
    v_lines := case when v_open is not null then duly.lines_v1(v_open, null, duly.lines_max(p_limit)) else '{}' end;
    if v_lines = '{}' then
        return;                                        -- An idle poll ends here: no fence drawn, nothing written, no commit to wait for.
    end if;
    v_fence := nextval('duly.fences');
    v_places := duly.choose_v2(v_lines, v_weights, p_handlers, true, true, p_is_older, p_limit, v_fence, v_now);
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

-- As before, and likewise.
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
    v_lines  duly.line[];
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
    if exists (select from duly.ready where ready.is_aside and ready.queue = any (v_open) and ready.handler = any (v_worker.handlers)
                  and ready.tenant = v_worker.tenant) then
        perform duly.bring_back_v1(v_open, v_worker.handlers, v_worker.tenant, greatest(100, 2 * v_room));
    end if;
    v_lines := duly.lines_v1(v_open, v_worker.tenant, duly.lines_max(v_room));
    if v_lines = '{}' then
        return;
    end if;
    v_fence := nextval('duly.fences');
    v_places := duly.choose_v2(v_lines, array_fill(1, array[cardinality(v_open)]), v_worker.handlers, false, not v_crowd, false, v_room, v_fence, v_now);
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

-- As before; what stands aside and is known is there for the asking.
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
    if exists (select from duly.ready where ready.is_aside and ready.queue = any (v_open) and ready.handler = any (v_worker.handlers)
                  and ready.tenant = p_tenant) then
        return 0;                                      -- The claim puts it in line.
    end if;
    return (
        select min(case when next.due_at <= v_now then 0 else date_part('epoch', next.due_at - v_now) end)
          from duly.walk_v1(v_open, array_fill(p_tenant, array[cardinality(v_open)]), array_fill(p_tenant, array[cardinality(v_open)]), 10000) as line
         cross join lateral (
            select ready.due_at from duly.ready
             where not ready.is_aside and ready.queue = v_open[line.number] and ready.tenant = p_tenant and ready.priority = line.priority
               and ready.handler = any (v_worker.handlers) and not (ready.suspect and v_crowd)
             order by ready.due_at limit 1) as next
         where v_open <> '{}');
end $$;

--------------------------------------------------------------------------------------------------------------- overload

-- As before; what stands aside counts where nobody serves its queue.
create or replace function duly.note_overloads_v1(p_default interval, p_lines integer) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    c_looks constant integer := 100;                   -- into a line whose head nobody knows
    v_now   timestamptz := duly.clock_now();
begin
    insert into duly.duties (name, done_at) values ('overload', v_now)
    on conflict (name) do update set done_at = excluded.done_at
     where duties.done_at < excluded.done_at - interval '0.4 seconds' or duties.done_at > excluded.done_at;
    if not found then
        return null;
    end if;
    with recursive heads as (
        (select queue, tenant, priority, due_at from duly.ready where not is_aside order by queue, tenant, priority, due_at limit 1)
        union all
        select next.queue, next.tenant, next.priority, next.due_at from heads cross join lateral (
            select ready.queue, ready.tenant, ready.priority, ready.due_at from duly.ready
             where not ready.is_aside and (ready.queue, ready.tenant, ready.priority) > (heads.queue, heads.tenant, heads.priority)
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    asides as (
        (select queue, handler, tenant, priority, due_at from duly.ready where is_aside order by queue, handler, tenant, priority, due_at limit 1)
        union all
        select next.queue, next.handler, next.tenant, next.priority, next.due_at from asides cross join lateral (
            select ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at from duly.ready
             where ready.is_aside and (ready.queue, ready.handler, ready.tenant, ready.priority) > (asides.queue, asides.handler, asides.tenant, asides.priority)
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    oldest as (
        select each.queue, min(each.due_at) as due_at from (
            select head.queue, first.due_at from (select * from heads limit p_lines) as head cross join lateral (
                   select waiting.due_at from (
                       select ready.due_at, ready.handler from duly.ready
                        where not ready.is_aside and ready.queue = head.queue and ready.tenant = head.tenant and ready.priority = head.priority
                        order by ready.due_at limit c_looks) as waiting
                    where exists (select from duly.workers where workers.until > v_now and head.queue = any (workers.queues)
                                     and waiting.handler = any (workers.handlers) and coalesce(workers.tenant, head.tenant) = head.tenant)
                       or not exists (select from duly.workers where workers.until > v_now and head.queue = any (workers.queues)
                                         and coalesce(workers.tenant, head.tenant) = head.tenant)
                    limit 1) as first
             where head.priority < 100 and head.due_at <= v_now
               and not exists (select from duly.holds where coalesce(holds.tenant, head.tenant) = head.tenant and coalesce(holds.queue, head.queue) = head.queue)
            union all                                  -- Where nobody serves the queue any more, what stands aside waits like all the rest.
            select head.queue, head.due_at from (select * from asides limit p_lines) as head
             where head.priority < 100 and head.due_at <= v_now
               and not exists (select from duly.workers where workers.until > v_now and head.queue = any (workers.queues)
                                  and coalesce(workers.tenant, head.tenant) = head.tenant)
               and not exists (select from duly.holds where coalesce(holds.tenant, head.tenant) = head.tenant and coalesce(holds.queue, head.queue) = head.queue)) as each
         group by each.queue),
    judged as (
        select oldest.queue, oldest.due_at, coalesce(queue_ages.age_limit, p_default) as age_limit from oldest
          left join duly.queue_ages on queue_ages.queue = oldest.queue)
    insert into duly.overloads (queue, oldest_due_at, noted_at, age_limit)
    select judged.queue, judged.due_at, v_now, judged.age_limit from judged
     where v_now - judged.due_at > judged.age_limit
        or (v_now - judged.due_at > judged.age_limit / 2 and exists (select from duly.overloads where overloads.queue = judged.queue))
     order by judged.queue
    on conflict (queue) do update set oldest_due_at = excluded.oldest_due_at, noted_at = excluded.noted_at, age_limit = excluded.age_limit;
    delete from duly.overloads where overloads.noted_at < v_now or overloads.noted_at > v_now;
    return (select count(*) from duly.overloads);
end $$;
