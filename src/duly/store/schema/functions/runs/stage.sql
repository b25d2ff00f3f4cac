-- Stage: what falls due within the horizon leaves timers, for ready or blocked, and the next fires are armed in the same statement.

-- A number for (cohort, moment, late), by which the answer to a fire is found. domain/triggers/schedule/planning.py gives the same.
create or replace function duly.fire_key(p_cohort bigint, p_scheduled_at timestamptz, p_late boolean) returns bigint
language sql stable parallel safe as $$
    select p_cohort + 2 * (date_part('epoch', p_scheduled_at) * 1000000)::bigint + p_late::integer
$$;

create or replace function duly.is_late(p_due_at timestamptz, p_grace integer, p_read_at timestamptz) returns boolean language sql stable parallel safe as $$
    select p_due_at < p_read_at - make_interval(secs => coalesce(p_grace, 60))
$$;

-- The overloads: an object with a key `tenant/queue` for each, found by binary search however many there are; null while there is none.
create or replace function duly.overloaded() returns jsonb language sql stable as $$
    select jsonb_object_agg(overloads.tenant || '/' || overloads.queue, 0) from duly.overloads
$$;

-- Return whether a timer is a next fire of low priority whose tenant is overloaded in its queue: it is staged when that is over.
create or replace function duly.is_postponed(p_overloaded jsonb, p_priority smallint, p_run_id uuid, p_tenant integer, p_queue text) returns boolean
language sql stable parallel safe as $$
    select p_overloaded is not null and p_priority >= 7 and p_run_id is null and p_overloaded ? (p_tenant || '/' || p_queue)
$$;

-- Return when the first timer of these shards falls due that is not left where it is. Of the shards in p_full a whole batch was taken up to
-- p_reached: timers before that are not looked at, because all that were taken just now would have to be passed over, and those that
-- stay there, at a concurrency key or behind the last run of its job, is found by the next look. Of timers that share one moment all are passed
-- over as ever. Runs under the planner settings of its caller.
create or replace function duly.next_due(
    p_shards smallint[], p_overloaded jsonb, p_except uuid[], p_full smallint[], p_reached timestamptz[])
returns timestamptz language plpgsql stable as $$
begin
    return (select min(t.due_at) from unnest(p_shards) as held(shard) cross join lateral (
                select due_at from duly.timers where timers.shard = held.shard and due_at < 'infinity'
                   and timers.due_at >= coalesce(p_reached[array_position(p_full, held.shard)], '-infinity')
                   and not duly.is_postponed(p_overloaded, timers.priority, timers.run_id, timers.tenant, timers.queue)
                   and (p_except = '{}' or coalesce(timers.run_id, timers.job_id) <> all (p_except))
                 order by due_at limit 1) as t);
end $$;

-- The fires of cohorts that fall due within the horizon, each (cohort, moment, on time or late) once. Nothing is locked: what
-- has changed by the time it is staged stays where it is. The fires that stage leaves where they are use up no part of the limit.
create or replace function duly.due_cohorts(p_shards smallint[], p_horizon interval, p_per_shard integer)
returns table (cohort bigint, scheduled_at timestamptz, late boolean, read_at timestamptz)
language plpgsql {planned by index, in order} set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    v_now        timestamptz := duly.clock_now();
    v_overloaded jsonb := duly.overloaded();
begin
    if not exists (select from duly.jobs where jobs.cohort is not null) then
        return;                                        -- Plain intervals only: nothing that is due has to be looked at for this.
    end if;
    return query
    select distinct due.cohort, due.scheduled_at, duly.is_late(due.due_at, due.grace_seconds, v_now), v_now
      from unnest(p_shards) as held(shard) cross join lateral (
           select timers.cohort, timers.scheduled_at, timers.due_at, timers.grace_seconds from duly.timers
            where timers.shard = held.shard and timers.due_at <= v_now + p_horizon and timers.cohort is not null
              and not duly.is_postponed(v_overloaded, timers.priority, timers.run_id, timers.tenant, timers.queue)
            order by due_at limit p_per_shard) as due;
end $$;

-- Of the fires that fall due within the horizon: from where on their jobs are accountable, where that lies behind the first
-- occurrence that a calendar took before the fire. Each moment comes once for a fire.
create or replace function duly.due_accounts(
    p_shards smallint[], p_horizon interval, p_per_shard integer, p_cohorts bigint[], p_scheduled timestamptz[], p_firsts timestamptz[])
returns table (cohort bigint, scheduled_at timestamptz, since timestamptz)
language plpgsql stable {planned by index, in order} set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    v_until      timestamptz := duly.clock_now() + p_horizon;
    v_overloaded jsonb := duly.overloaded();
begin
    return query
    select distinct due.cohort, due.scheduled_at, job.since
      from unnest(p_shards) as held(shard) cross join lateral (
           select timers.cohort, timers.scheduled_at, timers.job_id, timers.previous_scheduled_at from duly.timers
            where timers.shard = held.shard and timers.due_at <= v_until and timers.cohort is not null
              and not duly.is_postponed(v_overloaded, timers.priority, timers.run_id, timers.tenant, timers.queue)
            order by due_at limit p_per_shard) as due
      join unnest(p_cohorts, p_scheduled, p_firsts) as taken(cohort, scheduled_at, first)
        on taken.cohort = due.cohort and taken.scheduled_at = due.scheduled_at
     cross join lateral (select duly.accountable_from(due.job_id, due.previous_scheduled_at) as since offset 0) as job
     where job.since > taken.first;
end $$;

-- Move what falls due within the horizon out of timers: runs, and for a next fire its occurrence, while the following fire goes into
-- timers in the same statement. A next fire carries the definition: every change of a job takes its timer out first, so the two cannot
-- differ, and no other row has to be read. Only shards held by p_holder at the epoch it knows are touched.
-- A fire of a cohort is taken only if its answer is among the given ones, found by its key in p_keys, which ascend. The answer:
-- the moment to run or none, how many were missed, the next moment or none and the room for jitter there, what to record as
-- skipped, and what goes to the backfill lane. Delay is judged at p_read_at, when the fires were requested. What calendars took is
-- recorded for each job from where it is accountable on.
-- A fire under `skip` waits while the last run of its job is active, and is judged when it is due. Whether that run is under way is
-- looked up by its tenant and id, whichever index is taken, and never by reading a box from end to end: `offset 0` keeps the planner from turning
-- the question round.
-- A run that comes to a concurrency key with a free slot goes straight to ready; a run in FIFO order that has no number gets one; and the next fires of low
-- priority whose tenant is overloaded in their queue stay where they are, to be judged as late when that is over. So does what is named in p_except, by
-- run or, of a next fire, by job: something of it was refused before, and must not block all others. Where p_only names some in the same
-- way, all others stay too: so what is refused is found by halves.
create or replace function duly.stage(
    p_holder uuid, p_shards smallint[], p_epochs bigint[], p_horizon interval, p_per_shard integer, p_read_at timestamptz,
    p_keys bigint[], p_cohorts bigint[], p_run_at timestamptz[], p_missed integer[],
    p_next_at timestamptz[], p_windows integer[], p_skips jsonb[], p_catch_up jsonb[], p_except uuid[] default '{}', p_only uuid[] default null)
returns table (staged integer, next_due_at timestamptz, read_at timestamptz)
language plpgsql {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_held    smallint[];
    v_staged  integer;
    v_tenants integer[];
    v_options jsonb[];
    v_stopped uuid[];
    v_arrived duly.blocked[];
    v_full    smallint[];
    v_reached timestamptz[];
    v_overloaded jsonb := duly.overloaded();
begin
    v_held := array(select shards.shard from unnest(p_shards, p_epochs) as held(shard, epoch)
                      join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder
                     where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now));
    perform duly.complete(v_held, v_now);
    if not exists (select from unnest(v_held) as held(shard) cross join lateral (
                       select from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon limit 1) as t) then
        return query select 0, duly.next_due(v_held, v_overloaded, p_except, '{}', '{}'), v_now;      -- Even to do nothing, the rest takes milliseconds.
        return;
    end if;
    -- Each timer that falls due within the horizon leaves `timers` once: locked rows are another's, and a fire of a cohort goes only with its answer.
    with due as (
        delete from duly.timers where ctid = any (array(
            select t.ctid from (select array(select unnest(p_keys)) as list offset 0) as keys cross join unnest(v_held) as held(shard) cross join lateral (
                select ctid from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon
                   and not duly.is_postponed(v_overloaded, timers.priority, timers.run_id, timers.tenant, timers.queue)
                   and (p_except = '{}' or coalesce(timers.run_id, timers.job_id) <> all (p_except))
                   and (p_only is null or coalesce(timers.run_id, timers.job_id) = any (p_only))
                   and (timers.due_at <= v_now or (
                           not duly.must_enter(timers.options)                            -- A slot is taken when due, not ahead.
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
    -- Each next fire knows the index of its answer, and whether the last run of its job is still active.
    answered as (
        select due.*, case when cohort is not null
                           then width_bucket(duly.fire_key(cohort, scheduled_at, duly.is_late(due_at, grace_seconds, p_read_at)), keys.list) end as answer,
               overlap is null and last_run_id is not null and due_at <= v_now and (
                   exists (select from duly.ready where ready.tenant = due.tenant and ready.run_id = due.last_run_id offset 0)
                   or exists (select from duly.leased where leased.tenant = due.tenant and leased.run_id = due.last_run_id offset 0)
                   or exists (select from duly.blocked where blocked.tenant = due.tenant and blocked.run_id = due.last_run_id offset 0)
                   or exists (select from duly.timers as retry where retry.tenant = due.tenant and retry.run_id = due.last_run_id offset 0)) as overlapping
          from (select array(select unnest(p_keys)) as list offset 0) as keys cross join due where due.run_id is null
        offset 0),                                     -- So each is requested once.
    -- Each next fire has the moment to run at, if any, how many moments were missed, the moment after, and whether it was the last.
    fires as (
        select fire.*, moment.*, moment.run_at is not null and not fire.overlapping as runs,
               coalesce(moment.next_at is null or fire.runs_left = (moment.run_at is not null and not fire.overlapping)::integer, false) as is_last,
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
    -- A schedule that goes on has its next fire in `timers` again, in this statement: it is never without one.
    next_fires as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard, every_seconds, cohort, last_run_id, overlap, jitter, runs_left, grace_seconds)
        select job_id, case when next_at = 'infinity' or is_last then scheduled_at else next_at end,
               case when is_last then 'infinity' when jitter is null then next_at
                    else next_at + duly.jitter_delay(jitter, job_id, next_at, p_windows[answer]) end,
               case when runs then run_at when p_catch_up[answer] is not null then (p_catch_up[answer]->>'last_at')::timestamptz
                    else previous_scheduled_at end, generation, tenant, priority, payload_stored,
               queue, handler, payload, options, shard, every_seconds, cohort, case when runs then new_run_id else last_run_id end, overlap, jitter,
               case when is_last then 0 else runs_left - runs::integer end, grace_seconds
          from fires where not is_last or (runs and due_at > v_now)),       -- Spent: its last occurrence is staged ahead of its moment.
    -- The few fires that do more than run and go on: what follows looks at these alone, and not at all fires once more.
    special_fires as materialized (
        select * from fires
         where is_last or overlapping or missed > 1 or p_skips[answer] is not null or p_catch_up[answer] is not null
            or overlap = 'cancel_running' or options ? 'fifo'),
    -- A schedule that has no moment left, and no last run ahead of it, is completed.
    completed as (
        update duly.jobs set state = 'completed', updated_at = v_now
          from special_fires as fires where jobs.job_id = fires.job_id and fires.is_last and not (fires.runs and fires.due_at > v_now)),
    -- Each stretch of moments that does not run is on record once, with its reason.
    skipped as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
        select duly.occurrence_id(job_id, scheduled_at, 'schedule'), job_id, scheduled_at, scheduled_at, v_now, tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, 'skipped_misfire',
               jsonb_build_object('first', scheduled_at, 'last', run_at - make_interval(secs => every_seconds), 'count', missed - 1)
          from special_fires where cohort is null and missed > 1
        union all
        select duly.occurrence_id(job_id, skip.first, 'schedule'), job_id, skip.first, skip.first, v_now, tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, skip.reason, jsonb_build_object('first', skip.first, 'last', skip.last, 'count', skip.count)
          from special_fires cross join lateral duly.skips_of(p_skips[answer], job_id, previous_scheduled_at) as skip where p_skips[answer] is not null
        union all
        select new_run_id, job_id, run_at, due_at, v_now, tenant, 0, 'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, 'skipped_overlap', null
          from special_fires where overlapping and run_at is not null),
    -- Missed moments that are to run go to the backfill lane, once for each stretch.
    catching_up as (
        insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, from_at, to_at, cursor_at, rate, total, due_at,
                                    previous_scheduled_at, requested_at, schedule, calendars)
        select duly.occurrence_id(fires.job_id, catch_up.from_at, 'catch-up'), fires.job_id, fires.tenant, shard, 'schedule', catch_up.from_at,
               catch_up.to_at, catch_up.from_at, catch_up.rate, catch_up.total, v_now, previous_scheduled_at, v_now, jobs.schedule,
               duly.calendars_of(fires.tenant, jobs.schedule)
          from special_fires as fires join duly.jobs on jobs.job_id = fires.job_id
         cross join lateral jsonb_to_record(p_catch_up[answer])
                                     as catch_up(from_at timestamptz, to_at timestamptz, rate double precision, total integer)
         where p_catch_up[answer] is not null
        on conflict do nothing),
    -- Each occurrence and each one-shot or retry that is due, as the run that it is from now on.
    bringing as not materialized (
        select {run: run_id = new_run_id, scheduled_at = run_at, due_at = case when missed > 0 then run_at else due_at end,
                attempt = 0, losses = 0::smallint, suspect = false,
                options = case when missed > 0 then coalesce(options, '{}') || jsonb_build_object('missed', missed) else options end}
          from fires where runs
        union all
        select {run}
          from due where run_id is not null),
    -- Runs that wait for nothing are ready. One that is ready already refuses the batch: the caller then names runs in p_only, by halves.
    staged as (
        insert into duly.ready ({run})
        select {run} from bringing where p_only is null and not duly.has_limits(options)),
    -- All others; those that keep FIFO order have a number.
    staging as materialized (
        select {run: options = case when options ? 'fifo' then duly.numbered(options) else options end}
          from bringing where p_only is not null or duly.has_limits(options)),
    -- A run that is ready already stays as it is.
    staged_one_by_one as (
        insert into duly.ready ({run})
        select staging.* from staging where not duly.must_enter(options)
        on conflict (run_id) do nothing
        returning run_id),
    -- Runs that wait for a slot or a reservation are blocked under it, in the order of their due moments.
    at_concurrency_key as (
        insert into duly.blocked ({run}, waits_for, key, blocked_at)
        select staging.*, duly.wait_kind(options), duly.wait_key(options), v_now from staging where duly.must_enter(options) and not duly.may_pass(options)
        on conflict (run_id) do nothing
        returning run_id, tenant, options),
    -- A run that stood in its next box already is on record as a duplicate, and nothing of the batch is held up.
    losers as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'ready', queue, handler, 'skipped_duplicate'
          from staging where (select count(*) from staged_one_by_one) + (select count(*) from at_concurrency_key)
                             < (select count(*) from staging where not duly.may_pass(options))
           and not duly.may_pass(options)
           and run_id not in (select staged_one_by_one.run_id from staged_one_by_one union all select at_concurrency_key.run_id from at_concurrency_key)),
    -- Each shard: how many were taken, and how far. Where that is a whole batch, next_due begins there.
    taken as materialized (
        select shard, count(*)::integer as timers, max(due_at) as due_at from due group by shard),
    full_shards as (
        select shard, due_at from taken where p_only is null and timers >= p_per_shard)
    select (select coalesce(sum(timers), 0) from taken), (select array_agg(shard order by shard) from full_shards),
           (select array_agg(due_at order by shard) from full_shards), array_agg(tenant), array_agg(options),
           (select array_agg(last_run_id) from special_fires where runs and overlap = 'cancel_running' and last_run_id is not null),
           (select array_agg(row(staging.*, 'concurrency', options->'concurrency'->>0, v_now)::duly.blocked) from staging where duly.may_pass(options))
      into v_staged, v_full, v_reached, v_tenants, v_options, v_stopped, v_arrived
      from (select tenant, options from at_concurrency_key
            union all                                  -- Others may have waited for this one, which does not run.
            select tenant, options from special_fires where not runs and options ? 'fifo') as looked_at;
    perform duly.release(v_tenants, v_options, 0, v_arrived) where v_tenants is not null or v_arrived is not null;
    if v_stopped is not null then
        perform duly.cancel(v_stopped, 'the next occurrence is due');
        perform duly.signal(v_stopped, 'cancel');
    end if;
    return query select v_staged, duly.next_due(v_held, v_overloaded, p_except, v_full, v_reached), v_now;
end $$;
