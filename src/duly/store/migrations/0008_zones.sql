-- Time zone data: which version of it the pending fires are of, and how they are brought to another one.
-- docs/decisions/0012-time-zone-data.md says why.

alter table duly.schedulers add column tzdb text;      -- null: an older program, which does not say

-- The version that the pending fires are of. It decides until every live scheduler reports another one.
create table duly.zone_data (
    is_only      boolean     primary key default true check (is_only),
    version      text        not null,
    rules        bytea       not null,                  -- of every zone, so that the next version can say what has changed
    changed      text[],                                -- zones whose schedules are timed anew; null: what they were timed by is not known
    before       bytea,                                 -- the rules of these that a fire not yet timed anew is of
    adopted_at   timestamptz not null,
    after        uuid,                                  -- schedules up to this one are timed anew
    waits_for    xid8,                                  -- transactions up to this one may have timed a schedule by the version before
    is_last_pass boolean     not null default false,
    settled_at   timestamptz                            -- all are
);

alter table duly.jobs add column tzdb text;            -- set where another version than the one in force has timed the next fire
create index jobs_timed_otherwise on duly.jobs (job_id) where tzdb is not null and state in ('active', 'paused');

-- Next fires that new time zone data has moved by more than a minute, for the owners of their jobs.
create table duly.zone_moves (
    job_id       uuid        not null,
    tenant       integer     not null,
    tzdb         text        not null,
    was_at       timestamptz not null,
    next_at      timestamptz,                           -- null: nothing is left
    moved_at     timestamptz not null
);
create index zone_moves_by_moment on duly.zone_moves (moved_at);
create index zone_moves_by_job on duly.zone_moves (job_id, moved_at);

-- The zones that a schedule and its calendars name.
create function duly.zones_of(p_schedule jsonb, p_calendars jsonb) returns text[] language sql immutable parallel safe as $$
    select array(select trigger->>'tz' from jsonb_array_elements(coalesce(p_schedule->'trigger'->'of', jsonb_build_array(p_schedule->'trigger'))) as trigger
                  where trigger->>'tz' is not null
                 union select definition->>'tz' from jsonb_each(p_calendars) as calendar(name, definition) where definition->>'tz' is not null)
$$;

-- Hold shards, as before; but only those whose time zone data is in force have a share. While nothing is in force all have
-- one; an older program, which does not say what it has, has one where nobody else could.
create function duly.hold_shards_v2(p_scheduler_id uuid, p_name text, p_version text, p_lease interval, p_tzdb text)
returns table (shard smallint, epoch bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_tzdb  text := (select zone_data.version from duly.zone_data);
    v_live  uuid[];
    v_held  integer;
    v_share integer := 0;
begin
    insert into duly.schedulers (scheduler_id, name, version, started_at, until, tzdb)
    values (p_scheduler_id, p_name, p_version, v_now, v_now + p_lease, p_tzdb)
    on conflict (scheduler_id) do update set until = excluded.until;
    v_live := array(
        with live as (select scheduler_id, tzdb from duly.schedulers where until > v_now and until <= v_now + 2 * p_lease)
        select scheduler_id from live
         where v_tzdb is null or tzdb = v_tzdb or (tzdb is null and not exists (select from live as other where other.tzdb = v_tzdb))
         order by scheduler_id);
    if p_scheduler_id = any (v_live) then
        v_share := 64 / cardinality(v_live) + (array_position(v_live, p_scheduler_id) <= 64 % cardinality(v_live))::integer;
    end if;
    select count(*) into v_held from duly.shards where holder = p_scheduler_id;
    if v_held > v_share then
        update duly.shards set holder = null where shards.shard in (
            select shards.shard from duly.shards where holder = p_scheduler_id order by shards.shard desc limit v_held - v_share for update skip locked);
    elsif v_held < v_share then
        update duly.shards set holder = p_scheduler_id, epoch = epoch + 1 where shards.shard in (
            select shards.shard from duly.shards
             where holder is null or holder <> all (v_live)
             order by shards.shard limit v_share - v_held for update skip locked);
    end if;
    return query select shards.shard, shards.epoch from duly.shards where holder = p_scheduler_id order by 1;
end $$;

create or replace function duly.hold_shards_v1(p_scheduler_id uuid, p_name text, p_version text, p_lease interval)
returns table (shard smallint, epoch bigint) language sql as $$
    select * from duly.hold_shards_v2(p_scheduler_id, p_name, p_version, p_lease, null)
$$;

-- Put another version in force, when no live scheduler reports a different one and the version in force is the one that was seen.
create function duly.adopt_zones_v1(p_seen text, p_seen_after uuid, p_version text, p_rules bytea, p_changed text[], p_before bytea) returns boolean
language plpgsql as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    if exists (select from duly.schedulers where until > v_now and tzdb is distinct from p_version) then
        return false;
    elsif p_seen is null then
        insert into duly.zone_data (version, rules, changed, before, adopted_at) values (p_version, p_rules, p_changed, p_before, v_now)
        on conflict do nothing;
    else
        update duly.zone_data set version = p_version, rules = p_rules, changed = p_changed, before = p_before, adopted_at = v_now,
               after = null, waits_for = null, is_last_pass = false, settled_at = null
         where zone_data.version = p_seen and zone_data.after is not distinct from p_seen_after;
    end if;
    return found;
end $$;

-- Say with which version a next fire was timed. It is written down only where that is not the one in force.
create function duly.timed_by_v1(p_job_id uuid, p_tzdb text) returns void language sql as $$
    update duly.jobs set tzdb = p_tzdb
     where jobs.job_id = p_job_id and jobs.cohort is not null and exists (select from duly.zone_data where zone_data.version <> p_tzdb)
$$;

-- Look at so many schedules in the order of their ids, and give those of them that one of the zones decides about, or any zone
-- where none are named. With each comes the last one that was looked at.
create function duly.zoned_page_v1(p_after uuid, p_zones text[], p_limit integer)
returns table (last_id uuid, job_id uuid, name text, generation integer, scheduled_at timestamptz, previous_scheduled_at timestamptz, schedule text,
               calendars text, cohort bigint, tzdb text, made_at timestamptz, read_at timestamptz)
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    with looked_at as materialized (
        select jobs.* from duly.jobs where jobs.job_id > coalesce(p_after, '00000000-0000-0000-0000-000000000000') order by jobs.job_id limit p_limit),
    found as (
        select looked_at.job_id, looked_at.name, looked_at.tzdb, looked_at.schedule, timers.generation, timers.scheduled_at,
               timers.previous_scheduled_at, timers.cohort, calendars.list
          from looked_at cross join lateral (select duly.calendars_of(looked_at.tenant, looked_at.schedule) as list offset 0) as calendars
          join duly.timers on timers.job_id = looked_at.job_id and timers.run_id is null and timers.cohort is not null
         where looked_at.cohort is not null and looked_at.state in ('active', 'paused')
           and case when p_zones is null then duly.zones_of(looked_at.schedule, calendars.list) <> '{}'
                    else duly.zones_of(looked_at.schedule, calendars.list) && p_zones end)
    select last.job_id, found.job_id, coalesce(found.name, found.job_id::text), found.generation, found.scheduled_at, found.previous_scheduled_at,
           found.schedule::text, found.list::text, found.cohort, found.tzdb, duly.made_at(found.job_id), duly.clock_now()
      from (select job_id from looked_at order by job_id desc limit 1) as last left join found on true
     order by found.job_id;
end $$;

-- The schedules whose next fire was timed by a version that was not in force.
create function duly.timed_otherwise_v1(p_limit integer)
returns table (job_id uuid, name text, generation integer, scheduled_at timestamptz, previous_scheduled_at timestamptz, schedule text,
               calendars text, cohort bigint, tzdb text, made_at timestamptz, read_at timestamptz)
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    select jobs.job_id, coalesce(jobs.name, jobs.job_id::text), timers.generation, timers.scheduled_at, timers.previous_scheduled_at,
           jobs.schedule::text, duly.calendars_of(jobs.tenant, jobs.schedule)::text, timers.cohort, jobs.tzdb, duly.made_at(jobs.job_id), duly.clock_now()
      from (select * from duly.jobs where jobs.tzdb is not null and jobs.state in ('active', 'paused') order by jobs.job_id limit p_limit) as jobs
      join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null and timers.cohort is not null;
end $$;

-- Time next fires anew by the version in force, and write down which of them moved far. One that has moved on meanwhile is not
-- among the answers.
create function duly.retime_zoned_v1(
    p_tzdb text, p_job_ids uuid[], p_generations integer[], p_seen timestamptz[], p_cohorts bigint[], p_next_at timestamptz[], p_windows integer[],
    p_listed boolean[])
returns setof uuid
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    v_done uuid[];
begin
    perform from duly.zone_data where zone_data.version = p_tzdb for share;        -- So that no other version comes into force meanwhile.
    if not found then
        return;
    end if;
    v_done := array(select * from duly.retime_v1(p_job_ids, p_generations, p_seen, p_cohorts, p_next_at, p_windows));
    update duly.jobs set tzdb = null where jobs.job_id = any (v_done) and jobs.tzdb is not null;
    insert into duly.zone_moves (job_id, tenant, tzdb, was_at, next_at, moved_at)
    select jobs.job_id, jobs.tenant, p_tzdb, new.seen, new.next_at, duly.clock_now()
      from unnest(p_job_ids, p_seen, p_next_at, p_listed) as new(job_id, seen, next_at, listed)
      join duly.jobs on jobs.job_id = new.job_id
     where new.listed and new.job_id = any (v_done);
    return query select unnest(v_done);
end $$;

-- Go on after the schedules up to p_after. Without one a pass has ended. A statement that read the version before may still
-- insert a schedule behind us, for some seconds or until its caller commits; so the last pass begins when all of these have ended.
create function duly.zones_swept_v1(p_tzdb text, p_seen_after uuid, p_after uuid) returns boolean
language plpgsql as $$
declare
    v_data duly.zone_data;
begin
    select * into v_data from duly.zone_data where version = p_tzdb and after is not distinct from p_seen_after and settled_at is null for update;
    if not found then
        null;
    elsif p_after is not null then
        update duly.zone_data set after = p_after;
    elsif v_data.is_last_pass then
        update duly.zone_data set after = null, before = null, settled_at = duly.clock_now();
    elsif v_data.waits_for is null and v_data.adopted_at <= duly.clock_now() - interval '10 seconds' then
        update duly.zone_data set waits_for = pg_current_xact_id();
    elsif v_data.waits_for < pg_snapshot_xmin(pg_current_snapshot()) then
        update duly.zone_data set after = null, is_last_pass = true;
    end if;
    return exists (select from duly.zone_data where version = p_tzdb and settled_at is not null);
end $$;

-- Take runs out of their holders' hands that were asked to stop long ago and have not, where the next run of their job waits for
-- their place (overlap cancel_running). Their fence is void: what they come to is refused. The attempt is lost and the run cancelled, on record.
create function duly.void_overstayed_v1(p_stop interval) returns setof uuid
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_gone    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with overstayed as (
        select leased.run_id, leased.fence, signals.worker_id from duly.signals
          join duly.leased on leased.run_id = signals.run_id and leased.fence = signals.fence and leased.worker_id = signals.worker_id
         where signals.what = 'cancel' and signals.sent_at <= v_now - p_stop and leased.options->'overlap'->>0 = 'cancel_running'
           and exists (select from duly.blocked where blocked.tenant = leased.tenant and blocked.gate = leased.options->'gate'->>0)
         limit 1000),
    gone as (
        delete from duly.leased using overstayed
         where leased.run_id = overstayed.run_id and leased.fence = overstayed.fence and (leased.worker_id = overstayed.worker_id) is true
        returning leased.*),
    heard as (delete from duly.signals using gone where signals.worker_id = gone.worker_id and signals.run_id = gone.run_id and signals.fence = gone.fence),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became, queue, handler, worker_id, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, fence, tenant, attempt, 'lost', 'cancelled', queue, handler, worker_id,
               'did not stop in time, and the next run takes its place'
          from gone)
    select array_agg(run_id), array_agg(job_id), array_agg(tenant), array_agg(options) into v_gone, v_job_ids, v_tenants, v_options from gone;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_gone);
end $$;

---------------------------------------------------------------------------------------------------------- backfill lane

alter table duly.backfills add column places integer not null default 1 check (places > 0);     -- how many of its runs may be under way at once

-- The gate of the lane: one for all that is made up for of a job; a backfill whose runs need not wait has its own.
create function duly.lane_gate(p_job_id uuid, p_backfill_id uuid, p_places integer) returns text language sql immutable parallel safe as $$
    select case when p_places = 1 then 'catch-up/' || p_job_id else 'backfill/' || p_backfill_id end
$$;

-- Make the next occurrences of backfills, under one gate for each job, so that they wait for each other, or one of their own where they may run beside each other; a job with a concurrency
-- key of its own keeps that. p_seen guards the cursor: a backfill that somebody else has moved on is passed over. Without a new
-- cursor it is done.
create or replace function duly.backfill_v1(
    p_backfill_ids uuid[], p_seen timestamptz[], p_cursors timestamptz[], p_due timestamptz[], p_counts integer[],
    p_run_backfills uuid[], p_moments timestamptz[])
returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_tenants integer[];
    v_options jsonb[];
begin
    with moved as (
        update duly.backfills set cursor_at = coalesce(new.cursor_at, backfills.to_at), due_at = new.due_at, made = backfills.made + new.count,
               state = case when new.cursor_at is null then 'done' else backfills.state end,
               previous_scheduled_at = coalesce((select max(moment) from unnest(p_run_backfills, p_moments) as run(backfill_id, moment)
                                                  where run.backfill_id = new.backfill_id), backfills.previous_scheduled_at)
          from unnest(p_backfill_ids, p_seen, p_cursors, p_due, p_counts) as new(backfill_id, seen, cursor_at, due_at, count)
          join duly.backfills as before on before.backfill_id = new.backfill_id
         where backfills.backfill_id = new.backfill_id and backfills.cursor_at = new.seen and backfills.state = 'active'
        returning backfills.*, before.previous_scheduled_at as previous_at),
    runs as (
        select duly.occurrence_id(jobs.job_id, run.moment, moved.origin) as run_id, jobs.job_id, run.moment as scheduled_at, v_now as due_at,
               coalesce(lag(run.moment) over (partition by moved.backfill_id order by run.moment), moved.previous_at) as previous_scheduled_at,
               jobs.generation, jobs.tenant, 0 as attempt, duly.lane_priority(jobs.priority) as priority, 0::smallint as losses, false as suspect,
               jobs.payload_stored, jobs.queue, jobs.handler, jobs.payload,
               jsonb_build_object('gate', jsonb_build_array(duly.lane_gate(jobs.job_id, moved.backfill_id, moved.places), moved.places)) || coalesce(jobs.options, '{}') as options
          from unnest(p_run_backfills, p_moments) as run(backfill_id, moment)
          join moved on moved.backfill_id = run.backfill_id join duly.jobs on jobs.job_id = moved.job_id),
    waiting as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select runs.*, options->'gate'->>0, v_now from runs
        on conflict do nothing
        returning tenant, options)
    select array_agg(tenant), array_agg(options) into v_tenants, v_options from waiting;
    perform duly.release_v1(v_tenants, v_options, 0) where v_tenants is not null;
    return coalesce(cardinality(v_tenants), 0);
end $$;

create function duly.submit_backfill_v2(
    p_backfill_id uuid, p_job_id uuid, p_from timestamptz, p_to timestamptz, p_rate double precision, p_total integer, p_previous timestamptz,
    p_places integer)
returns boolean language plpgsql as $$
declare
    v_is_made boolean := duly.submit_backfill_v1(p_backfill_id, p_job_id, p_from, p_to, p_rate, p_total, p_previous);
begin
    update duly.backfills set places = p_places where backfills.backfill_id = p_backfill_id and backfills.places <> p_places;
    return v_is_made;
end $$;
