-- The next fire of a schedule. Its timer is the job's mutex and its cursor: every change of a job takes it out first.

-- Take a schedule's next fire out of timers. It is the job's mutex: every change of a job holds it until the end of the
-- transaction, and puts it back. While somebody else has it, it is waited for; nothing comes when the schedule has ended, or is another
-- tenant's.
create or replace function duly.take_next_fire(p_job_id uuid) returns duly.timers
language plpgsql {planned by index} as $$
declare
    v_timer duly.timers;
begin
    for i in 1 .. 1000 loop
        delete from duly.timers where timers.job_id = p_job_id and timers.run_id is null and duly.is_ours(timers.tenant) returning * into v_timer;
        exit when found;
        perform from duly.jobs where jobs.job_id = p_job_id and jobs.state in ('active', 'paused') and duly.is_ours(jobs.tenant);
        exit when not found;
    end loop;
    return v_timer;
end $$;

create or replace function duly.put_next_fire(p_timer duly.timers) returns void language sql as $$
    insert into duly.timers select (p_timer).*
$$;

-- Arm the next fire of a schedule that counts from the end of its last run. A paused one stays where it is.
create or replace function duly.rearm(p_job_id uuid, p_ended_at timestamptz) returns void
language plpgsql as $$
declare
    v_timer duly.timers := duly.take_next_fire(p_job_id);
    v_job   duly.jobs;
begin
    if v_timer.job_id is null or v_timer.overlap is distinct from 'after_end' then
        perform duly.put_next_fire(v_timer) where v_timer.job_id is not null;
        return;
    end if;
    select * into strict v_job from duly.jobs where jobs.job_id = p_job_id;
    v_timer.scheduled_at := p_ended_at + make_interval(secs => v_timer.every_seconds);
    if v_timer.runs_left = 0 or v_timer.scheduled_at >= (v_job.schedule->>'end')::timestamptz then
        update duly.jobs set state = 'completed', updated_at = p_ended_at where jobs.job_id = p_job_id;
        return;
    elsif v_job.state = 'active' then
        v_timer.due_at := v_timer.scheduled_at;
    end if;
    perform duly.put_next_fire(v_timer);
end $$;

-- Arm next fires anew after a calendar or the time zone data have changed. One that has moved on meanwhile is not among the answers.
create or replace function duly.retime(
    p_job_ids uuid[], p_generations integer[], p_seen timestamptz[], p_cohorts bigint[], p_next_at timestamptz[], p_windows integer[])
returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
#variable_conflict use_column
begin
    return query
    with taken as (
        delete from duly.timers using unnest(p_job_ids, p_generations, p_seen, p_cohorts, p_next_at, p_windows)
                                   as new(job_id, generation, seen, cohort, next_at, room)
         where timers.job_id = new.job_id and timers.run_id is null and timers.runs_left is distinct from 0
           and (timers.scheduled_at = new.seen and timers.generation = new.generation) is true and duly.is_ours(timers.tenant)
        returning timers.*, new.cohort as new_cohort, new.next_at, new.room),
    put as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored, queue, handler,
                                 payload, options, shard, every_seconds, cohort, last_run_id, overlap, jitter, runs_left, grace_seconds)
        select job_id, next_at, case when due_at = 'infinity' then 'infinity' else next_at + duly.jitter_delay(jitter, job_id, next_at, room) end,
               previous_scheduled_at, generation, tenant, priority, payload_stored, queue, handler,
               payload, options, shard, every_seconds, new_cohort, last_run_id, overlap, jitter, runs_left, grace_seconds
          from taken where next_at is not null)
    update duly.jobs set cohort = taken.new_cohort, updated_at = duly.clock_now(), state = case when taken.next_at is null then 'completed' else jobs.state end
      from taken where jobs.job_id = taken.job_id
    returning jobs.job_id;
end $$;

----------------------------------------------------------------------------------------- what is staged, and taken back

-- Return whether a run is under way: waiting, leased by a worker, or between two attempts.
create or replace function duly.is_active(p_run_id uuid) returns boolean
language plpgsql stable {planned by index} as $$
begin
    return exists (select from duly.ready where ready.run_id = p_run_id) or exists (select from duly.leased where leased.run_id = p_run_id)
        or exists (select from duly.blocked where blocked.run_id = p_run_id) or exists (select from duly.timers where timers.run_id = p_run_id);
end $$;

-- Return whether the end of a run under way will arm the next fire of its schedule.
create or replace function duly.will_rearm(p_run_id uuid) returns boolean
language plpgsql stable {planned by index} as $$
begin
    return exists (select from duly.ready where ready.run_id = p_run_id and ready.options ? 'rearm')
        or exists (select from duly.leased where leased.run_id = p_run_id and leased.options ? 'rearm')
        or exists (select from duly.blocked where blocked.run_id = p_run_id and blocked.options ? 'rearm')
        or exists (select from duly.timers where timers.run_id = p_run_id and timers.options ? 'rearm');
end $$;

-- The fires of a schedule that can be taken back, the latest thousand: never tried, not due and not held, or given back by their worker
-- on request, due or not. The last one of a spent schedule can be, due or not: its schedule speaks of it until it starts. They are locked, so that
-- no claim takes them. A run with a concurrency key is none of them: it holds its slot.
create or replace function duly.lock_staged(p_timer duly.timers, p_now timestamptz) returns setof duly.ready
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
begin
    return query
    select ready.* from duly.ready
     where job_id = p_timer.job_id and run_id <> job_id and attempt = 0 and not duly.has_limits(options)
       and due_at > case when p_timer.runs_left = 0 then '-infinity' else p_now end
       and run_id = duly.occurrence_id(job_id, scheduled_at, 'schedule')         -- Not one that was requested by hand.
     order by scheduled_at desc limit 1000 for update;
    return query
    select {run}, false from duly.blocked
     where job_id = p_timer.job_id and run_id <> job_id and waits_for = 'recall' and attempt = 0
       and run_id = duly.occurrence_id(job_id, scheduled_at, 'schedule')
     order by scheduled_at desc limit 1000 for update;
end $$;

-- Return how many runs a schedule has left when so many are taken back. A spent one without `max_runs` is bounded by its rule alone.
create or replace function duly.runs_left_with(p_timer duly.timers, p_recalled integer) returns integer language sql stable as $$
    select case when (p_timer).runs_left = 0 and (select jobs.schedule->>'max_runs' from duly.jobs where jobs.job_id = (p_timer).job_id) is null
                then null else (p_timer).runs_left + p_recalled end
$$;

-- Return whether a coming run of a schedule is out of reach: a worker holds it, or it is on its way there or back. What can be taken back stays
-- locked, so that the answer holds until the end of the transaction.
create or replace function duly.is_coming_run_held(p_timer duly.timers, p_moments timestamptz[], p_now timestamptz) returns boolean
language plpgsql {planned by index, in order} as $$
declare
    v_moments timestamptz[] := p_moments || array(
        select coming.scheduled_at from duly.coming_runs(p_timer.job_id, p_timer.previous_scheduled_at, p_now) as coming);
    v_ours    uuid[] := array(select staged.run_id from duly.lock_staged(p_timer, p_now) as staged);
    v_others  uuid[] := array(select run.id from unnest(v_moments) as moment cross join lateral (
                                  select duly.occurrence_id(p_timer.job_id, moment, 'schedule') as id) as run where run.id <> all (v_ours));
begin
    return exists (select from duly.ready where ready.run_id = any (v_others) and ready.attempt = 0 and ready.due_at > p_now and not duly.has_limits(ready.options))
        or exists (select from duly.leased where leased.run_id = any (v_others) and leased.attempt = 1
                      and (leased.due_at > p_now or (p_timer.runs_left = 0 and duly.is_unstarted(leased.run_id, leased.worker_id, leased.due_at, p_now))))
        or exists (select from duly.blocked where blocked.run_id = any (v_others) and blocked.attempt = 0 and blocked.waits_for = 'recall');
end $$;

-- Take back what a schedule has staged, as far back as its coming runs go without a gap: not behind one that has started, is due in its
-- queue, or was left out. The next fire is then as if they had not been staged.
create or replace function duly.withdraw(p_timer duly.timers, p_moments timestamptz[], p_now timestamptz) returns duly.timers
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_staged duly.ready[] := array(select staged from duly.lock_staged(p_timer, p_now) as staged);
    v_coming timestamptz[] := array(select coming.scheduled_at from duly.coming_runs(p_timer.job_id, p_timer.previous_scheduled_at, p_now) as coming);
    v_floor  timestamptz := (select max(moment) from unnest(p_moments || v_coming) as moment
                              where moment not in (select scheduled_at from unnest(v_staged)));
    v_first  duly.ready;
    v_taken  uuid[];
begin
    select * into v_first from unnest(v_staged) where scheduled_at > coalesce(v_floor, '-infinity') and scheduled_at = any (v_coming)
     order by scheduled_at limit 1;
    if not found then
        return p_timer;
    end if;
    v_taken := array(select run_id from unnest(v_staged) where scheduled_at >= v_first.scheduled_at);
    delete from duly.ready where run_id = any (v_taken);
    delete from duly.blocked where run_id = any (v_taken);
    p_timer.scheduled_at := v_first.scheduled_at;
    p_timer.due_at := case when exists (select from duly.jobs where jobs.job_id = p_timer.job_id and jobs.state = 'paused') then 'infinity' else v_first.due_at end;
    p_timer.previous_scheduled_at := v_first.previous_scheduled_at;
    p_timer.runs_left := duly.runs_left_with(p_timer, cardinality(v_taken));
    return p_timer;
end $$;

------------------------------------------------------------------------------------------------------ what does not run

-- Record a stretch of occurrences that do not run, as {reason, first, last, count}.
create or replace function duly.record_skips(p_job duly.jobs, p_skips jsonb, p_now timestamptz) returns void language sql as $$
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
    select duly.occurrence_id((p_job).job_id, first, 'schedule'), (p_job).job_id, first, first, p_now, (p_job).tenant, 0, 'skipped', 'skipped',
           (p_job).queue, (p_job).handler, reason, jsonb_build_object('first', first, 'last', last, 'count', count)
      from jsonb_to_recordset(coalesce(p_skips, '[]')) as skip(reason text, first timestamptz, last timestamptz, count bigint)
$$;

-- From where on a job is accountable for what calendars take from it: it was made, or timed anew, or has run.
create or replace function duly.accountable_from(p_job_id uuid, p_previous timestamptz) returns timestamptz language sql stable as $$
    select greatest(coalesce(timed_at, created_at), p_previous) from duly.jobs where jobs.job_id = p_job_id
$$;

-- Return the skips that one job records, of those of its cohort. Of skips by calendars, those since it is accountable: `cuts`
-- say how many are left from an occurrence on. A job that came too late to be among them has the last one at least.
create or replace function duly.skips_of(p_skips jsonb, p_job_id uuid, p_previous timestamptz)
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

-- Record that a job is timed anew from now on, and what calendars took from it by then.
create or replace function duly.timed_anew(p_job_id uuid, p_skips jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_job duly.jobs;
begin
    update duly.jobs set timed_at = duly.clock_now() where jobs.job_id = p_job_id and duly.is_ours(jobs.tenant) returning * into v_job;
    if found then
        perform duly.record_skips(v_job, p_skips, v_job.timed_at);
    end if;
end $$;

grant execute on function duly.retime, duly.timed_anew to duly_api;
