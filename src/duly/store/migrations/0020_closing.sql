-- The account of what calendars leave out begins, for each job, where its timing does.
-- It needs nothing of the migrations just before it, and takes nothing from them.

alter table duly.jobs add column timed_at timestamptz;  -- since when its occurrences are what they are; null: since it was made

-- From where on a job is accountable for what calendars take from it: it was made, or timed anew, or has run.
create function duly.accountable_from(p_job_id uuid, p_previous timestamptz) returns timestamptz language sql stable as $$
    select greatest(coalesce(timed_at, created_at), p_previous) from duly.jobs where jobs.job_id = p_job_id
$$;

-- Note that a job is timed anew from now on, and what calendars took from it by then.
create function duly.timed_anew_v1(p_job_id uuid, p_skips jsonb) returns void language plpgsql as $$
declare
    v_job duly.jobs;
begin
    update duly.jobs set timed_at = duly.clock_now() where jobs.job_id = p_job_id returning * into v_job;
    perform duly.record_skips_v1(v_job, p_skips, v_job.timed_at);
end $$;

create function duly.api_timed_anew_v1(p_job_id uuid, p_skips jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if duly.is_our_job(p_job_id) then
        perform duly.timed_anew_v1(p_job_id, p_skips);
    end if;
end $$;

-- Of the fires that fall due within the horizon: from where on their jobs are accountable, where that lies behind the first
-- occurrence that a calendar took before the fire. Each moment comes once for a fire.
create function duly.due_accounts_v1(
    p_shards smallint[], p_horizon interval, p_per_shard integer, p_cohorts bigint[], p_scheduled timestamptz[], p_firsts timestamptz[])
returns table (cohort bigint, scheduled_at timestamptz, since timestamptz)
language plpgsql stable set enable_seqscan = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    select distinct due.cohort, due.scheduled_at, job.since
      from unnest(p_shards) as held(shard) cross join lateral (
           select timers.cohort, timers.scheduled_at, timers.job_id, timers.previous_scheduled_at from duly.timers
            where timers.shard = held.shard and timers.due_at <= duly.clock_now() + p_horizon and timers.cohort is not null
            order by due_at limit p_per_shard) as due
      join unnest(p_cohorts, p_scheduled, p_firsts) as taken(cohort, scheduled_at, first)
        on taken.cohort = due.cohort and taken.scheduled_at = due.scheduled_at
     cross join lateral (select duly.accountable_from(due.job_id, due.previous_scheduled_at) as since offset 0) as job
     where job.since > taken.first;
end $$;

-- What one job has to record of what its cohort skips. Of what calendars took, that is what came since it is accountable: `cuts`
-- say how many are left from an occurrence on. A job that came too late to be among them has the last one at least.
create function duly.skips_of(p_skips jsonb, p_job_id uuid, p_previous timestamptz)
returns table (reason text, first timestamptz, last timestamptz, count bigint) language sql stable as $$
    select skip.reason, case when job.since > skip.first then coalesce(cut.first, skip.last) else skip.first end, skip.last,
           case when job.since > skip.first then coalesce(cut.count, 1) else skip.count end
      from jsonb_to_recordset(p_skips) as skip(reason text, first timestamptz, last timestamptz, count bigint, cuts jsonb)
     cross join lateral (
           select case when skip.reason = 'skipped_calendar' then duly.accountable_from(p_job_id, p_previous) end as since offset 0) as job
      left join lateral (
           select each.first, each.count from jsonb_to_recordset(skip.cuts) as each(first timestamptz, count bigint)
            where each.first >= job.since order by each.first limit 1) as cut on job.since > skip.first
     where job.since is null or job.since <= skip.last
$$;

-- Stage, as before; what calendars took is recorded for each job from where it is accountable on.
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
begin
    v_held := array(select shards.shard from unnest(p_shards, p_epochs) as held(shard, epoch)
                      join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder
                     where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now));
    with due as (
        delete from duly.timers where ctid = any (array(
            select t.ctid from (select array(select unnest(p_keys)) as list offset 0) as keys cross join unnest(v_held) as held(shard) cross join lateral (
                select ctid from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon
                   and (timers.due_at <= v_now or (
                           not duly.must_enter(timers.options)                            -- A place is taken when due, not ahead.
                           and (timers.last_run_id is null or timers.overlap is not null
                                or not (exists (select from duly.ready where ready.run_id = timers.last_run_id)
                                        or exists (select from duly.leased where leased.run_id = timers.last_run_id)
                                        or exists (select from duly.blocked where blocked.run_id = timers.last_run_id)
                                        or exists (select from duly.timers as retry where retry.run_id = timers.last_run_id)))))
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
                   exists (select from duly.ready where ready.run_id = due.last_run_id)
                   or exists (select from duly.leased where leased.run_id = due.last_run_id)
                   or exists (select from duly.blocked where blocked.run_id = due.last_run_id)
                   or exists (select from duly.timers as retry where retry.run_id = due.last_run_id)) as overlapping
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
    staging as (
        select new_run_id as run_id, job_id, run_at as scheduled_at, case when missed > 0 then run_at else due_at end as due_at, previous_scheduled_at,
               generation, tenant, 0 as attempt, priority, 0::smallint as losses, false as suspect, payload_stored, queue, handler,
               payload, case when missed > 0 then coalesce(options, '{}') || jsonb_build_object('missed', missed) else options end as options
          from fires where runs
        union all
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
               payload_stored, queue, handler, payload, options
          from due where run_id is not null),
    staged as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select staging.*, duly.rank(due_at, priority) from staging where not duly.must_enter(options)
        on conflict (run_id) do nothing
        returning run_id),
    at_gate as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select staging.*, options->'gate'->>0, v_now from staging where duly.must_enter(options)
        on conflict (run_id) do nothing
        returning run_id, tenant, options),
    losers as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'ready', queue, handler, 'skipped_duplicate'
          from staging where (select count(*) from staged) + (select count(*) from at_gate) < (select count(*) from staging)
           and run_id not in (select staged.run_id from staged union all select at_gate.run_id from at_gate))
    select (select count(*) from due), array_agg(tenant), array_agg(options),
           (select array_agg(last_run_id) from fires where runs and overlap = 'cancel_running' and last_run_id is not null)
      into v_staged, v_tenants, v_options, v_stopped from at_gate;
    perform duly.release_v1(v_tenants, v_options, 0) where v_tenants is not null;
    if v_stopped is not null then
        perform duly.cancel_v1(v_stopped, 'the next occurrence is due');
        perform duly.signal_v1(v_stopped, 'cancel');
    end if;
    return query
    select v_staged, (select min(t.due_at) from unnest(v_held) as held(shard) cross join lateral (
                          select due_at from duly.timers where timers.shard = held.shard and due_at < 'infinity' order by due_at limit 1) as t), v_now;
end $$;

-- Renew, as before; a run that is settled is not named as one to be stopped, however late its signal is swept.
create or replace function duly.api_renew_v1(
    p_worker_id uuid, p_held uuid[], p_fences bigint[], p_answered bigint,
    out lease interval, out cancel_runs uuid[], out cancel_fences bigint[], out lost_runs uuid[], out lost_fences bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    v_now     timestamptz := duly.clock_now();
    v_below   bigint;
    v_run_ids uuid[];
    v_fences  bigint[];
begin
    update duly.workers set beat = workers.beat + 1, until = v_now + workers.lease, safe_until = greatest(workers.safe_until, v_now + workers.lease * 2 / 3)
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
    perform duly.hand_back_v1(p_worker_id, v_run_ids, v_fences) where v_run_ids is not null;
    select coalesce(array_agg(held.run_id), '{}'), coalesce(array_agg(held.fence), '{}') into lost_runs, lost_fences
      from unnest(p_held, p_fences) as held(run_id, fence)
     where not exists (select from duly.leased where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true);
    select coalesce(array_agg(signals.run_id), '{}'), coalesce(array_agg(signals.fence), '{}') into cancel_runs, cancel_fences
      from duly.signals where signals.worker_id = p_worker_id and signals.what = 'cancel'
       and exists (select from duly.leased where leased.run_id = signals.run_id and leased.fence = signals.fence);
end $$;

create index backfills_of_tenant on duly.backfills (tenant, asked_at, backfill_id);

-------------------------------------------------------------------------------------------------------------- versions

-- What the definitions of jobs were before they were changed, the last hundred of each. What stands is in jobs.
create table duly.job_versions (
    job_id       uuid        not null,
    generation   integer     not null,
    tenant       integer     not null,
    made_at      timestamptz not null,
    replaced_at  timestamptz not null,
    name         text,
    owner        text        not null,
    source       text,
    queue        text        not null,
    handler      text        not null,
    priority     smallint    not null,
    every_seconds integer,
    anchor_at    timestamptz,
    schedule     jsonb,
    payload      jsonb,                                 -- null: it is, or was, among the payloads
    options      jsonb,
    primary key (job_id, generation)
);
alter table duly.job_versions enable row level security;
create policy of_its_tenant on duly.job_versions for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.job_versions to duly_api;

create function duly.keep_version_v1() returns trigger
language plpgsql set enable_seqscan = off set jit = off as $$
begin
    insert into duly.job_versions (job_id, generation, tenant, made_at, replaced_at, name, owner, source, queue, handler, priority, every_seconds,
                                   anchor_at, schedule, payload, options)
    values (old.job_id, old.generation, old.tenant,
            coalesce((select replaced_at from duly.job_versions where job_versions.job_id = old.job_id and job_versions.generation = old.generation - 1),
                     old.created_at),
            duly.clock_now(), old.name, old.owner, old.source, old.queue, old.handler, old.priority, old.every_seconds, old.anchor_at, old.schedule,
            old.payload, old.options);
    delete from duly.job_versions where job_versions.job_id = old.job_id and job_versions.generation < new.generation - 100;
    return null;
end $$;

create trigger jobs_versioned after update of generation on duly.jobs
   for each row when (old.generation <> new.generation) execute function duly.keep_version_v1();

revoke execute on function duly.accountable_from, duly.timed_anew_v1, duly.api_timed_anew_v1, duly.due_accounts_v1, duly.skips_of,
    duly.keep_version_v1 from public;
grant execute on function duly.api_timed_anew_v1 to duly_api;
