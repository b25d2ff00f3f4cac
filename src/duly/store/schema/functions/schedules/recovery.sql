-- Recovery: decisions about the fires missed while everything was down. docs/decisions/0027-load-shedding-and-recovery.md says why.

-- Record that a scheduler stages. After longer than p_after without staging, a recovery opens, before anything is staged; one that was
-- dismissed before, or of which nothing is left, ends then, so that it hides no second outage. Returns the one that is not over.
create or replace function duly.record_staging(p_after interval, p_recovery_id uuid)
returns table (recovery_id uuid, state text, opened_at timestamptz, rules jsonb, rate double precision, is_new boolean)
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_before timestamptz := (select done_at from duly.maintenance_tasks where name = 'stage');
begin
    if v_before is null then
        insert into duly.maintenance_tasks (name, done_at) values ('stage', v_now) on conflict do nothing;
    elsif v_before < v_now - interval '0.5 seconds' or v_before > v_now then
        -- The second transaction sees the record of the first.
        select done_at into v_before from duly.maintenance_tasks where name = 'stage' for update;
        if v_before < v_now - p_after then
            update duly.recoveries set state = case state when 'dismissing' then 'dismissed' else 'done' end, ended_at = v_now
             where recoveries.state = 'dismissing' or recoveries.state = 'approved'
               and not exists (select from duly.backfills where backfills.recovery_id = recoveries.recovery_id and backfills.state = 'active');
            insert into duly.recoveries (recovery_id, state, down_since, opened_at) values (p_recovery_id, 'open', v_before, v_now) on conflict do nothing;
        end if;
        update duly.maintenance_tasks set done_at = v_now where name = 'stage';
    end if;
    return query
    select recoveries.recovery_id, recoveries.state, recoveries.opened_at, recoveries.rules, recoveries.rate, recoveries.recovery_id = p_recovery_id
      from duly.recoveries where recoveries.state in ('open', 'approved', 'dismissing');
end $$;

-- Missed fires wait, due never, while a recovery is open; and for a moment after a decision, for a scheduler that has yet to read it.
create or replace function duly.defer_missed() returns trigger language plpgsql as $$
begin
    select recoveries.recovery_id into new.recovery_id from duly.recoveries
     where recoveries.state in ('open', 'approved', 'dismissing')
       and (recoveries.state = 'open' or recoveries.decided_at > duly.clock_now() - interval '10 seconds');
    if found then
        new.due_at := 'infinity';
    end if;
    return new;
end $$;

-- Take the missed fires of plain intervals, which staging answers by itself, out of its way: missed fires are held, and the
-- next fire armed. Those that are late within the next second go with them, so that none is staged between two looks.
create or replace function duly.defer_late(p_holder uuid, p_shards smallint[], p_epochs bigint[], p_looked_at integer) returns integer
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now  timestamptz := duly.clock_now();
    v_held integer;
begin
    with ours as (
        select shards.shard from unnest(p_shards, p_epochs) as held(shard, epoch)
          join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder
         where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now)),
    late as (
        delete from duly.timers where ctid = any (array(
            select first.ctid from ours cross join lateral (
                select timers.ctid, timers.run_id, timers.cohort, timers.overlap, timers.due_at, timers.grace_seconds from duly.timers
                 where timers.shard = ours.shard and timers.due_at <= v_now order by timers.due_at limit p_looked_at for update skip locked) as first
             where first.run_id is null and first.cohort is null and first.overlap is distinct from 'after_end'
               and duly.is_late(first.due_at, first.grace_seconds, v_now + interval '1 second')))
        returning *),
    missed as (
        select late.*, late.scheduled_at + make_interval(secs => passed.count * late.every_seconds::double precision) as last_at,
               late.scheduled_at + make_interval(secs => (passed.count + 1) * late.every_seconds::double precision) as next_at, passed.count + 1 as total
          from late cross join lateral (select floor(date_part('epoch', v_now - late.scheduled_at) / late.every_seconds) as count offset 0) as passed),
    next_fires as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard, every_seconds, last_run_id, overlap, runs_left, grace_seconds)
        select job_id, next_at, next_at, last_at, generation, tenant, priority, payload_stored, queue, handler, payload, options, shard,
               every_seconds, last_run_id, overlap, runs_left, grace_seconds from missed),
    held as (
        insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, from_at, to_at, cursor_at, rate, total, due_at,
                                    previous_scheduled_at, requested_at, schedule, every_seconds, anchor_at)
        select duly.occurrence_id(missed.job_id, missed.scheduled_at, 'catch-up'), missed.job_id, missed.tenant, missed.shard, 'schedule',
               missed.scheduled_at, missed.last_at + interval '1 microsecond', missed.scheduled_at, 1, missed.total, v_now,
               missed.previous_scheduled_at, v_now, jobs.schedule, jobs.every_seconds, jobs.anchor_at
          from missed join duly.jobs on jobs.job_id = missed.job_id
        on conflict do nothing)
    select count(*) into v_held from missed;
    return v_held;
end $$;

-- Decide held fires: the stretch to be created and how many that are, none of it where the count is 0, and what is left out.
create or replace function duly.decide_missed(
    p_recovery_id uuid, p_backfill_ids uuid[], p_from timestamptz[], p_to timestamptz[], p_totals integer[], p_skips jsonb[])
returns integer
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_decided integer;
begin
    with decided as (
        update duly.backfills set from_at = coalesce(new.from_at, backfills.from_at), cursor_at = coalesce(new.from_at, backfills.from_at),
               to_at = coalesce(new.to_at, backfills.to_at), total = new.total, due_at = v_now,
               state = case when new.total = 0 then 'done' else backfills.state end
          from unnest(p_backfill_ids, p_from, p_to, p_totals, p_skips) as new(backfill_id, from_at, to_at, total, skips)
         where backfills.backfill_id = new.backfill_id and backfills.recovery_id = p_recovery_id
           and backfills.state = 'active' and backfills.due_at = 'infinity'
        returning backfills.job_id, new.skips),
    skipped as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
        select duly.occurrence_id(jobs.job_id, skip.first, 'schedule'), jobs.job_id, skip.first, skip.first, v_now, jobs.tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, jobs.queue, jobs.handler, skip.reason,
               jsonb_build_object('first', skip.first, 'last', skip.last, 'count', skip.count)
          from decided join duly.jobs on jobs.job_id = decided.job_id
         cross join lateral jsonb_to_recordset(decided.skips) as skip(reason text, first timestamptz, last timestamptz, count bigint))
    select count(*) into v_decided from decided;
    return v_decided;
end $$;

-- Take reservations to make runs of a recovery, at its rate: of all schedulers together no second has more, and a rate below one is one run in so
-- much more time. Returns how many reservations are given, at most as many as are wanted.
create or replace function duly.take_recovery_reservations(p_recovery_id uuid, p_wanted integer) returns integer
language plpgsql {planned by index} as $$
declare
    v_now   timestamptz := duly.clock_now();
    v_rate  double precision;
    v_granted jsonb;
    v_used  integer;
    v_given integer;
begin
    select recoveries.rate, recoveries.granted into v_rate, v_granted from duly.recoveries
     where recoveries.recovery_id = p_recovery_id and recoveries.state = 'approved' for update;
    if not found then
        return 0;
    elsif v_rate is null then
        return p_wanted;                               -- At the rate of the lane.
    end if;
    select coalesce(jsonb_agg(reservation), '[]'), coalesce(sum((reservation->>1)::integer), 0) into v_granted, v_used from jsonb_array_elements(v_granted) as reservation
     where (reservation->>0)::timestamptz > v_now - make_interval(secs => ceil(v_rate) / v_rate) and (reservation->>0)::timestamptz <= v_now;
    v_given := greatest(least(p_wanted, ceil(v_rate)::integer - v_used), 0);
    if v_given > 0 then
        update duly.recoveries set granted = v_granted || jsonb_build_array(jsonb_build_array(v_now, v_given)) where recoveries.recovery_id = p_recovery_id;
    end if;
    return v_given;
end $$;

-- Take the catch-ups under way over into a recovery, to change their rate or to stop them. Null: there are none, or one is not over.
create or replace function duly.take_over_catch_ups(p_recovery_id uuid, p_by text, p_limit integer) returns uuid
language plpgsql {planned by index} as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    if not exists (select from duly.backfills where backfills.state = 'active' and backfills.origin = 'schedule' and backfills.recovery_id is null) then
        return null;
    end if;
    insert into duly.recoveries (recovery_id, state, opened_at, decided_at, decided_by)
    values (p_recovery_id, 'approved', v_now, v_now, p_by) on conflict do nothing;
    if not found then
        return null;
    end if;
    update duly.backfills set recovery_id = p_recovery_id where backfills.backfill_id in (
        select backfills.backfill_id from duly.backfills
         where backfills.state = 'active' and backfills.origin = 'schedule' and backfills.recovery_id is null limit p_limit);
    return p_recovery_id;
end $$;
