-- The moves, leaner: docs/decisions/0041-what-a-move-costs.md says what was measured.

-- As before. Not immutable, because what it calls is not: so it is written out where it is called, instead of called for each run.
create or replace function duly.marks_of(p_options jsonb) returns jsonb language sql stable parallel safe as $$
    select case when p_options ?| array['tags', 'request_id', 'traceparent', 'then', 'parent', 'node', 'after']
                then jsonb_strip_nulls(jsonb_build_object('tags', p_options->'tags', 'request_id', p_options->'request_id', 'parent', p_options->'parent',
                                                          'traceparent', p_options->'traceparent', 'then', p_options->'then', 'node', p_options->'node',
                                                          'after', p_options->'after')) end
$$;

-- How many lines a claim of so many looks at, beyond those that are held.
create function duly.lines_max(p_limit integer) returns integer language sql stable as $$
    select least(256, greatest(32, 2 * p_limit)) + (select count(*)::integer from duly.holds)
$$;

-- As before, from the first run of each line on.
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
                             where ready.queue = line.queue and ready.tenant = line.tenant and ready.priority = line.priority and ready.due_at >= line.due_at
                               and ready.handler = any (p_handlers) and (p_takes_suspects or not ready.suspect) and ready.due_at <= p_until
                               and not (p_is_older and duly.is_for_newer(ready.options))
                             order by ready.due_at limit line.rest offset line.taken) as peek
                         where line.rest > 0) as ranked
                 where ranked.place <= ranked.rest group by ranked.number) as first on first.number = given.number
             order by given.number);
    end if;
    return v_quotas;
end $$;

-- Choose and lock what a claim takes of these lines, up to p_limit runs, and give their places. Only what is taken is locked. What is due
-- comes before what is ahead of its moment; and what a line cannot give goes to the others, in a further round.
-- Of each line it reads from the run on that was the first when the lines were found: before it stands what others have taken, which
-- stays in the index until nobody can see it any more. What comes in before it meanwhile is for the next claim.
-- Under a limit only what is due is taken, because what is held ahead would use up places. Whoever claims under a limit holds its row
-- until the commit, and counts in a statement that began after that lock was had: so the count is exact, and who leaves only lowers it.
-- Runs under the planner settings of the claim that calls it.
create function duly.choose_v2(
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
             where ready.queue = (v_lines[1]).queue and ready.tenant = (v_lines[1]).tenant and ready.priority = (v_lines[1]).priority and ready.due_at >= (v_lines[1]).due_at
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
                 where ready.queue = line.queue and ready.tenant = line.tenant and ready.priority = line.priority and ready.due_at >= line.due_at
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

-- As before; that there is nothing to claim is learnt from the lines themselves.
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
    v_lines   duly.line[];
    v_places  tid[];
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    select array_agg(asked.queue order by asked.number), array_agg(coalesce(asked.weight, 1) order by asked.number) into v_open, v_weights
      from unnest(p_queues, p_weights) with ordinality as asked(queue, weight, number)
     where not exists (select from duly.holds where holds.tenant is null and coalesce(holds.queue, asked.queue) = asked.queue);
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

-- As before.
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

drop function duly.choose_v1;

-- As before. Whether the run before is under way is asked by its tenant and id, whichever index is taken, and never by reading a box
-- from end to end: `offset 0` keeps the planner from turning the question round.
create or replace function duly.stage_v2(
    p_holder uuid, p_shards smallint[], p_epochs bigint[], p_horizon interval, p_per_shard integer, p_read_at timestamptz,
    p_keys bigint[], p_cohorts bigint[], p_run_at timestamptz[], p_missed integer[],
    p_next_at timestamptz[], p_windows integer[], p_skips jsonb[], p_catch_up jsonb[])
returns table (staged integer, next_due_at timestamptz, read_at timestamptz)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_held    smallint[];
    v_staged  integer;
    v_tenants integer[];
    v_options jsonb[];
    v_stopped uuid[];
    v_arrived duly.blocked[];
    v_overloaded text[] := duly.overloaded();
begin
    v_held := array(select shards.shard from unnest(p_shards, p_epochs) as held(shard, epoch)
                      join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder
                     where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now));
    if not exists (select from unnest(v_held) as held(shard) cross join lateral (
                       select from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon limit 1) as t) then
        return query select 0, duly.next_due(v_held, v_overloaded), v_now;      -- Even to do nothing, what follows takes milliseconds.
        return;
    end if;
    with due as (
        delete from duly.timers where ctid = any (array(
            select t.ctid from (select array(select unnest(p_keys)) as list offset 0) as keys cross join unnest(v_held) as held(shard) cross join lateral (
                select ctid from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon
                   and (timers.priority < 7 or timers.run_id is not null or timers.queue <> all (v_overloaded))
                   and (timers.due_at <= v_now or (
                           not duly.must_enter(timers.options)                            -- A place is taken when due, not ahead.
                           and (timers.last_run_id is null or timers.overlap is not null
                                or not (exists (select from duly.ready where ready.tenant = timers.tenant and ready.run_id = timers.last_run_id offset 0)
                                        or exists (select from duly.leased where leased.tenant = timers.tenant and leased.run_id = timers.last_run_id offset 0)
                                        or exists (select from duly.blocked where blocked.tenant = timers.tenant and blocked.run_id = timers.last_run_id offset 0)
                                        or exists (select from duly.timers as retry where retry.tenant = timers.tenant and retry.run_id = timers.last_run_id offset 0)))))
                   and (timers.cohort is null
                        or (p_keys[width_bucket(duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at)), keys.list)]
                                = duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at))
                            and p_cohorts[width_bucket(duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at)), keys.list)]
                                = timers.cohort))
                 order by due_at limit p_per_shard for update skip locked) as t))
        returning *),
    answered as (
        select due.*, case when cohort is not null
                           then width_bucket(duly.fire_key(cohort, scheduled_at, duly.is_late(due_at, grace_seconds, p_read_at)), keys.list) end as answer,
               overlap is null and last_run_id is not null and due_at <= v_now and (
                   exists (select from duly.ready where ready.tenant = due.tenant and ready.run_id = due.last_run_id offset 0)
                   or exists (select from duly.leased where leased.tenant = due.tenant and leased.run_id = due.last_run_id offset 0)
                   or exists (select from duly.blocked where blocked.tenant = due.tenant and blocked.run_id = due.last_run_id offset 0)
                   or exists (select from duly.timers as retry where retry.tenant = due.tenant and retry.run_id = due.last_run_id offset 0)) as overlapping
          from (select array(select unnest(p_keys)) as list offset 0) as keys cross join due where due.run_id is null),
    fires as (
        select fire.*, moment.*, moment.run_at is not null and not fire.overlapping as runs,
               duly.occurrence_id(fire.job_id, coalesce(moment.run_at, fire.scheduled_at), 'schedule') as new_run_id
          from answered as fire cross join lateral (
               select case when fire.cohort is null then fire.scheduled_at + make_interval(secs => late.count * fire.every_seconds::double precision)
                           else p_run_at[fire.answer] end as run_at,
                      case when fire.cohort is not null then p_missed[fire.answer] else late.count::integer + late.is_late::integer end as missed,
                      case when fire.overlap = 'after_end' then 'infinity' when fire.cohort is null
                           then fire.scheduled_at + make_interval(secs => (late.count + 1) * fire.every_seconds::double precision)
                           else p_next_at[fire.answer] end as next_at
                 from (select is_late, case when is_late then floor(date_part('epoch', v_now - fire.scheduled_at) / fire.every_seconds) else 0 end as count
                         from (select fire.cohort is null and fire.overlap is distinct from 'after_end'
                                      and duly.is_late(fire.due_at, fire.grace_seconds, v_now) as is_late) as judged offset 0) as late
               offset 0) as moment),                   -- Computed once for each row, and not once for each use.
    next_fires as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard, every_seconds, cohort, last_run_id, overlap, jitter, runs_left, grace_seconds)
        select job_id, case when next_at = 'infinity' then scheduled_at else next_at end,
               case when jitter is null then next_at else next_at + duly.jitter_delay(jitter, job_id, next_at, p_windows[answer]) end,
               case when runs then run_at when p_catch_up[answer] is not null then (p_catch_up[answer]->>'last_at')::timestamptz
                    else previous_scheduled_at end, generation, tenant, priority, payload_stored,
               queue, handler, payload, options, shard, every_seconds, cohort, case when runs then new_run_id else last_run_id end, overlap, jitter,
               runs_left - runs::integer, grace_seconds
          from fires where next_at is not null and (runs_left is null or runs_left > runs::integer)),
    completed as (
        update duly.jobs set state = 'completed', updated_at = v_now
          from fires where jobs.job_id = fires.job_id and (fires.next_at is null or fires.runs_left = fires.runs::integer)),
    skipped as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
        select duly.occurrence_id(job_id, scheduled_at, 'schedule'), job_id, scheduled_at, scheduled_at, v_now, tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, 'skipped_misfire',
               jsonb_build_object('first', scheduled_at, 'last', run_at - make_interval(secs => every_seconds), 'count', missed - 1)
          from fires where cohort is null and missed > 1
        union all
        select duly.occurrence_id(job_id, skip.first, 'schedule'), job_id, skip.first, skip.first, v_now, tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, skip.reason, jsonb_build_object('first', skip.first, 'last', skip.last, 'count', skip.count)
          from fires cross join lateral duly.skips_of(p_skips[answer], job_id, previous_scheduled_at) as skip where p_skips[answer] is not null
        union all
        select new_run_id, job_id, run_at, due_at, v_now, tenant, 0, 'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, 'skipped_overlap', null
          from fires where overlapping and run_at is not null),
    catching_up as (
        insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, from_at, to_at, cursor_at, rate, total, due_at,
                                    previous_scheduled_at, asked_at, schedule, calendars)
        select duly.occurrence_id(fires.job_id, catch_up.from_at, 'catch-up'), fires.job_id, fires.tenant, shard, 'schedule', catch_up.from_at,
               catch_up.to_at, catch_up.from_at, catch_up.rate, catch_up.total, v_now, previous_scheduled_at, v_now, jobs.schedule,
               duly.calendars_of(fires.tenant, jobs.schedule)
          from fires join duly.jobs on jobs.job_id = fires.job_id
         cross join lateral jsonb_to_record(p_catch_up[answer])
                                     as catch_up(from_at timestamptz, to_at timestamptz, rate double precision, total integer)
         where p_catch_up[answer] is not null
        on conflict do nothing),
    bringing as (
        select new_run_id as run_id, job_id, run_at as scheduled_at, case when missed > 0 then run_at else due_at end as due_at, previous_scheduled_at,
               generation, tenant, 0 as attempt, priority, 0::smallint as losses, false as suspect, payload_stored, queue, handler,
               payload, case when missed > 0 then coalesce(options, '{}') || jsonb_build_object('missed', missed) else options end as options
          from fires where runs
        union all
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
               payload_stored, queue, handler, payload, options
          from due where run_id is not null),
    staging as materialized (
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
               payload_stored, queue, handler, payload, case when options ? 'fifo' then duly.numbered(options) else options end as options
          from bringing),
    staged as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select staging.*, duly.rank(due_at, priority) from staging where not duly.must_enter(options)
        on conflict (run_id) do nothing
        returning run_id),
    at_gate as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select staging.*, duly.waits_at(options), v_now from staging where duly.must_enter(options) and not duly.may_pass(options)
        on conflict (run_id) do nothing
        returning run_id, tenant, options),
    losers as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'ready', queue, handler, 'skipped_duplicate'
          from staging where (select count(*) from staged) + (select count(*) from at_gate) < (select count(*) from staging where not duly.may_pass(options))
           and not duly.may_pass(options)
           and run_id not in (select staged.run_id from staged union all select at_gate.run_id from at_gate))
    select (select count(*) from due), array_agg(tenant), array_agg(options),
           (select array_agg(last_run_id) from fires where runs and overlap = 'cancel_running' and last_run_id is not null),
           (select array_agg(row(staging.*, options->'gate'->>0, v_now)::duly.blocked) from staging where duly.may_pass(options))
      into v_staged, v_tenants, v_options, v_stopped, v_arrived
      from (select tenant, options from at_gate
            union all                                  -- Others may have waited for this one, which does not run.
            select tenant, options from fires where not runs and options ? 'fifo') as looked_at;
    perform duly.release_v2(v_tenants, v_options, 0, v_arrived) where v_tenants is not null or v_arrived is not null;
    if v_stopped is not null then
        perform duly.cancel_v1(v_stopped, 'the next occurrence is due');
        perform duly.signal_v1(v_stopped, 'cancel');
    end if;
    return query select v_staged, duly.next_due(v_held, v_overloaded), v_now;
end $$;

revoke execute on function duly.lines_max, duly.choose_v2 from public;
