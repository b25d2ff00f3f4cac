-- The backfill lane: occurrences that were missed or are requested again, created at a rate, below what is on time.

-- Runs of the lane stand a hundred priorities below what is on time, so they run when nothing younger than 50 minutes waits.
create or replace function duly.lane_priority(p_priority smallint) returns smallint language sql immutable parallel safe as $$
    select (100 + p_priority)::smallint
$$;

-- The concurrency key of the lane: one for all catch-ups of a job; a backfill whose runs need not wait has its own.
create or replace function duly.lane_key(p_job_id uuid, p_backfill_id uuid, p_slots integer) returns text language sql immutable parallel safe as $$
    select case when p_slots = 1 then 'catch-up/' || p_job_id else 'backfill/' || p_backfill_id end
$$;

-- Request the occurrences of a stretch, so many of them under way at once. The schedule is not moved. p_previous is the occurrence
-- before the first.
create or replace function duly.submit_backfill(
    p_backfill_id uuid, p_job_id uuid, p_from timestamptz, p_to timestamptz, p_rate double precision, p_total integer, p_previous timestamptz,
    p_slots integer)
returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, from_at, to_at, cursor_at, rate, total, due_at, requested_at,
                                previous_scheduled_at, schedule, calendars, every_seconds, anchor_at, slots)
    select p_backfill_id, jobs.job_id, jobs.tenant, duly.shard_of(jobs.job_id), p_backfill_id::text, p_from, p_to, p_from, p_rate, p_total, v_now, v_now,
           p_previous, jobs.schedule, duly.calendars_of(jobs.tenant, jobs.schedule), jobs.every_seconds, jobs.anchor_at, p_slots
      from duly.jobs where jobs.job_id = p_job_id and jobs.state in ('active', 'paused') and duly.is_ours(jobs.tenant)
    on conflict do nothing;
    return exists (select from duly.backfills where backfills.backfill_id = p_backfill_id and duly.is_ours(backfills.tenant));
end $$;

-- Create the next occurrences of backfills, under one concurrency key for each job, so that they wait for each other, or one of their own where they
-- may run beside each other; a job with a concurrency key of its own keeps that. p_seen guards the cursor: a backfill that somebody else has
-- moved on is passed over. Without a new cursor it is done. For p_waits nothing more of the job is created: that is its rate, and it counts from
-- here, so that it holds for the next look.
create or replace function duly.backfill(
    p_backfill_ids uuid[], p_seen timestamptz[], p_cursors timestamptz[], p_waits interval[], p_counts integer[],
    p_run_backfills uuid[], p_moments timestamptz[])
returns integer
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_tenants integer[];
    v_options jsonb[];
begin
    with moved as (
        update duly.backfills set cursor_at = coalesce(new.cursor_at, backfills.to_at), due_at = v_now + new.wait, created = backfills.created + new.count,
               state = case when new.cursor_at is null then 'done' else backfills.state end,
               previous_scheduled_at = coalesce((select max(moment) from unnest(p_run_backfills, p_moments) as run(backfill_id, moment)
                                                  where run.backfill_id = new.backfill_id), backfills.previous_scheduled_at)
          from unnest(p_backfill_ids, p_seen, p_cursors, p_waits, p_counts) as new(backfill_id, seen, cursor_at, wait, count)
          join duly.backfills as before on before.backfill_id = new.backfill_id
         where backfills.backfill_id = new.backfill_id and backfills.cursor_at = new.seen and backfills.state = 'active'
           and backfills.due_at <= v_now
        returning backfills.*, before.previous_scheduled_at as previous_at),
    runs as (
        select duly.occurrence_id(jobs.job_id, run.moment, moved.origin) as run_id, jobs.job_id, run.moment as scheduled_at, v_now as due_at,
               coalesce(lag(run.moment) over (partition by moved.backfill_id order by run.moment), moved.previous_at) as previous_scheduled_at,
               jobs.generation, jobs.tenant, 0 as attempt, duly.lane_priority(jobs.priority) as priority, 0::smallint as losses, false as suspect,
               jobs.payload_stored, jobs.queue, jobs.handler, jobs.payload,
               jsonb_build_object('concurrency', jsonb_build_array(duly.lane_key(jobs.job_id, moved.backfill_id, moved.slots), moved.slots)) || coalesce(jobs.options, '{}') as options
          from unnest(p_run_backfills, p_moments) as run(backfill_id, moment)
          join moved on moved.backfill_id = run.backfill_id join duly.jobs on jobs.job_id = moved.job_id),
    waiting as (
        insert into duly.blocked ({run}, waits_for, key, blocked_at)
        select runs.*, 'concurrency', options->'concurrency'->>0, v_now from runs
        on conflict do nothing
        returning tenant, options)
    select array_agg(tenant), array_agg(options) into v_tenants, v_options from waiting;
    perform duly.release(v_tenants, v_options, 0, null) where v_tenants is not null;
    return coalesce(cardinality(v_tenants), 0);
end $$;

-- Stop a backfill: nothing more is created, and created runs that are not leased are cancelled.
create or replace function duly.cancel_backfill(p_backfill_id uuid) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_backfill duly.backfills;
    v_removed     integer;
begin
    select * into v_backfill from duly.backfills where backfills.backfill_id = p_backfill_id and duly.is_ours(backfills.tenant)
       for update;
    if not found or v_backfill.state = 'cancelled' then
        return null;
    end if;
    update duly.backfills set state = 'cancelled' where backfills.backfill_id = p_backfill_id;
    if v_backfill.state = 'active' and v_backfill.origin = 'schedule' then         -- Missed, and not to be caught up: that is on record.
        perform duly.record_skips(jobs, jsonb_build_array(jsonb_build_object('reason', 'skipped_on_request', 'first', v_backfill.cursor_at,
                    'last', v_backfill.to_at - interval '1 microsecond', 'count', v_backfill.total - v_backfill.created)), duly.clock_now())
           from duly.jobs where jobs.job_id = v_backfill.job_id;
    end if;
    select count(*) into v_removed from duly.cancel(array(
        select waiting.run_id from (
            select blocked.run_id, blocked.job_id, blocked.scheduled_at from duly.blocked
            union all select ready.run_id, ready.job_id, ready.scheduled_at from duly.ready
            union all select timers.run_id, timers.job_id, timers.scheduled_at from duly.timers where timers.run_id is not null) as waiting
         where waiting.job_id = v_backfill.job_id and waiting.scheduled_at >= v_backfill.from_at and waiting.scheduled_at < v_backfill.to_at
           and waiting.run_id = duly.occurrence_id(v_backfill.job_id, waiting.scheduled_at, v_backfill.origin)), 'the backfill was cancelled');
    if v_backfill.state = 'done' and v_removed = 0 then
        update duly.backfills set state = 'done' where backfills.backfill_id = p_backfill_id;
        return null;                                   -- All of it had begun.
    end if;
    return v_removed;
end $$;

grant execute on function duly.submit_backfill, duly.cancel_backfill to duly_api;
