-- Time zone data: which version of it the pending fires are of, and how they are brought to another one.
-- docs/decisions/0017-one-version-of-time-zone-data.md says why.

-- The zones that a schedule and its calendars name.
create or replace function duly.zones_of(p_schedule jsonb, p_calendars jsonb) returns text[] language sql immutable parallel safe as $$
    select array(select trigger->>'tz' from jsonb_array_elements(coalesce(p_schedule->'trigger'->'of', jsonb_build_array(p_schedule->'trigger'))) as trigger
                  where trigger->>'tz' is not null
                 union select definition->>'tz' from jsonb_each(p_calendars) as calendar(name, definition) where definition->>'tz' is not null)
$$;

-- Put another version in force, when no live scheduler reports a different one and the version in force is the one that was seen.
create or replace function duly.adopt_zones(p_seen text, p_seen_after uuid, p_version text, p_rules bytea, p_changed text[], p_before bytea) returns boolean
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
create or replace function duly.timed_by(p_job_id uuid, p_tzdb text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
    update duly.jobs set tzdb = p_tzdb
     where jobs.job_id = p_job_id and jobs.cohort is not null and duly.is_ours(jobs.tenant)
       and exists (select from duly.zone_data where zone_data.version <> p_tzdb)
$$;

-- The schedules whose next fire was timed by a version that was not in force.
create or replace function duly.timed_otherwise(p_limit integer)
returns table (job_id uuid, name text, generation integer, scheduled_at timestamptz, previous_scheduled_at timestamptz, schedule text,
               calendars text, cohort bigint, tzdb text, created_at timestamptz, read_at timestamptz)
language plpgsql stable {planned by index, by loop} as $$
#variable_conflict use_column
begin
    return query
    select jobs.job_id, coalesce(jobs.name, jobs.job_id::text), timers.generation, timers.scheduled_at, timers.previous_scheduled_at,
           jobs.schedule::text, duly.calendars_of(jobs.tenant, jobs.schedule)::text, timers.cohort, jobs.tzdb, duly.created_at(jobs.job_id), duly.clock_now()
      from (select * from duly.jobs where jobs.tzdb is not null and jobs.state in ('active', 'paused') order by jobs.job_id limit p_limit) as jobs
      join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null and timers.cohort is not null and timers.runs_left is distinct from 0;
end $$;

-- Look at so many schedules in the order of their ids, and give those of them that one of the zones decides about, or any zone
-- where none are named. With each comes the last one that was looked at.
create or replace function duly.zoned_page(p_after uuid, p_zones text[], p_limit integer)
returns table (last_id uuid, job_id uuid, name text, generation integer, scheduled_at timestamptz, previous_scheduled_at timestamptz, schedule text,
               calendars text, cohort bigint, tzdb text, created_at timestamptz, read_at timestamptz)
language plpgsql stable {planned by index, by loop, in order} as $$
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
           and timers.runs_left is distinct from 0
         where looked_at.cohort is not null and looked_at.state in ('active', 'paused')
           and case when p_zones is null then duly.zones_of(looked_at.schedule, calendars.list) <> '{}'
                    else duly.zones_of(looked_at.schedule, calendars.list) && p_zones end)
    select last.job_id, found.job_id, coalesce(found.name, found.job_id::text), found.generation, found.scheduled_at, found.previous_scheduled_at,
           found.schedule::text, found.list::text, found.cohort, found.tzdb, duly.created_at(found.job_id), duly.clock_now()
      from (select job_id from looked_at order by job_id desc limit 1) as last left join found on true
     order by found.job_id;
end $$;

-- Time next fires anew by the version in force, and write down which of them moved far. One that has moved on meanwhile is not
-- among the answers.
create or replace function duly.retime_zoned(
    p_tzdb text, p_job_ids uuid[], p_generations integer[], p_seen timestamptz[], p_cohorts bigint[], p_next_at timestamptz[], p_windows integer[],
    p_listed boolean[])
returns setof uuid
language plpgsql {planned by index, by loop} as $$
declare
    v_done uuid[];
begin
    perform from duly.zone_data where zone_data.version = p_tzdb for share;        -- So that no other version comes into force meanwhile.
    if not found then
        return;
    end if;
    v_done := array(select * from duly.retime(p_job_ids, p_generations, p_seen, p_cohorts, p_next_at, p_windows));
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
create or replace function duly.zones_swept(p_tzdb text, p_seen_after uuid, p_after uuid) returns boolean
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

grant execute on function duly.timed_by to duly_api;
