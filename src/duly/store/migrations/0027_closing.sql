-- What schedules still lacked: the smallest period of a tenant, what calendars took before an occurrence that is left out, and the
-- calendars by which a job was timed that a cut-off change has not reached. It needs nothing of the migrations just before it.

------------------------------------------------------------------------------------------------------------- smallest period

alter table duly.tenants add column least_period interval check (least_period >= interval '1 second');   -- null: no limit but a second

-- The smallest period of a tenant's schedules in seconds, for whoever may know it; null: no limit.
create function duly.least_period(p_tenant integer) returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select ceil(date_part('epoch', tenants.least_period))::integer from duly.tenants where tenants.tenant = p_tenant and duly.is_ours(p_tenant)
$$;

------------------------------------------------------------------------------------------------------------------- skip next

-- Leave one occurrence out, as before. p_skips is what calendars took just before the pending one: no fire will tell of that.
create function duly.skip_next_v2(
    p_job_id uuid, p_generation integer, p_seen timestamptz, p_next_at timestamptz, p_window integer, p_moments timestamptz[], p_skips jsonb)
returns timestamptz
language plpgsql set lock_timeout = '2s' as $$
declare
    v_now     timestamptz := duly.clock_now();
    v_timer   duly.timers := duly.take_next_fire_v1(p_job_id);
    v_job     duly.jobs;
    v_staged  duly.ready;
    v_skipped timestamptz;
begin
    if v_timer.job_id is null then
        return null;
    end if;
    select * into strict v_job from duly.jobs where jobs.job_id = p_job_id;
    if v_timer.generation <> p_generation then
        perform duly.put_next_fire_v1(v_timer);
        return '-infinity';
    end if;
    select * into v_staged from duly.lock_staged_v1(p_job_id, p_moments, v_now) limit 1;
    if found then
        delete from duly.ready where ready.run_id = v_staged.run_id;
        v_skipped := v_staged.scheduled_at;
        v_timer.runs_left := v_timer.runs_left + 1;
        if v_timer.previous_scheduled_at = v_skipped then
            v_timer.previous_scheduled_at := v_staged.previous_scheduled_at;
        end if;
    elsif v_timer.scheduled_at = p_seen then
        v_skipped := v_timer.scheduled_at;
        perform duly.record_skips_v1(v_job, p_skips, v_now);
        if p_next_at is null then
            update duly.jobs set state = 'completed', updated_at = v_now where jobs.job_id = p_job_id;
            v_timer.job_id := null;
        else
            v_timer.scheduled_at := p_next_at;
            v_timer.due_at := case when v_timer.due_at = 'infinity' then 'infinity'
                                   else p_next_at + duly.jitter_delay(v_timer.jitter, p_job_id, p_next_at, p_window) end;
        end if;
    end if;
    if v_skipped is not null then
        perform duly.record_skips_v1(v_job, jsonb_build_array(jsonb_build_object(
            'reason', 'skipped_on_request', 'first', v_skipped, 'last', v_skipped, 'count', 1)), v_now);
    end if;
    perform duly.put_next_fire_v1(v_timer) where v_timer.job_id is not null;
    return coalesce(v_skipped, '-infinity');
end $$;

-- An older process knows nothing of what calendars took.
create or replace function duly.skip_next_v1(
    p_job_id uuid, p_generation integer, p_seen timestamptz, p_next_at timestamptz, p_window integer, p_moments timestamptz[])
returns timestamptz language sql as $$
    select duly.skip_next_v2(p_job_id, p_generation, p_seen, p_next_at, p_window, p_moments, null)
$$;

create function duly.api_skip_next_v2(
    p_job_id uuid, p_generation integer, p_seen timestamptz, p_next_at timestamptz, p_window integer, p_moments timestamptz[], p_skips jsonb)
returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return case when duly.is_our_job(p_job_id)
                then duly.skip_next_v2(p_job_id, p_generation, p_seen, p_next_at, p_window, p_moments, p_skips) end;
end $$;

------------------------------------------------------------------------------------------------------------------- calendars

-- What a calendar was while some of its jobs are still timed by that, the newest first; null: all of them know what it is.
alter table duly.calendars add column earlier jsonb;

-- Keep a calendar, new or changed. What it was stays beside it until its jobs are timed anew.
create function duly.put_calendar_v1(p_tenant integer, p_name text, p_definition jsonb) returns void language sql as $$
    insert into duly.calendars (tenant, name, definition, updated_at) values (p_tenant, p_name, p_definition, duly.clock_now())
    on conflict (tenant, name) do update set definition = excluded.definition, updated_at = excluded.updated_at,
       earlier = case when calendars.definition = excluded.definition then calendars.earlier
                      else jsonb_path_query_array(jsonb_build_array(calendars.definition) || coalesce(calendars.earlier, '[]'), '$[0 to 7]') end
$$;

-- Forget what a calendar was, now that all of its jobs are timed by what it is; unless somebody has changed it since.
create function duly.calendar_settled_v1(p_tenant integer, p_name text, p_definition jsonb) returns void language sql as $$
    update duly.calendars set earlier = null
     where calendars.tenant = p_tenant and calendars.name = p_name and calendars.definition = p_definition and calendars.earlier is not null
$$;

create or replace function duly.api_put_calendar_v1(p_tenant integer, p_name text, p_definition jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.put_calendar_v1(p_tenant, p_name, p_definition);
end $$;

create function duly.api_calendar_settled_v1(p_tenant integer, p_name text, p_definition jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.calendar_settled_v1(p_tenant, p_name, p_definition);
end $$;

------------------------------------------------------------------------------------------------------------ end of a schedule

-- End a schedule through its next fire. p_skips is what it has named and not fired by then, as of the pending moment p_seen: if that
-- has moved on, nothing is done. What its catch-up had still to make is on record, too. No row: there is no next fire at this moment.
create function duly.cancel_schedule_v2(p_job_id uuid, p_seen timestamptz, p_skips jsonb) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
declare
    v_now      timestamptz := duly.clock_now();
    v_job      duly.jobs;
    v_backfill duly.backfills;
begin
    delete from duly.timers where timers.job_id = p_job_id and timers.run_id is null and (timers.scheduled_at = p_seen) is true;
    if not found then
        return;
    end if;
    update duly.jobs set state = 'cancelled', updated_at = v_now where jobs.job_id = p_job_id and jobs.state in ('active', 'paused') returning * into v_job;
    if not found then
        return;
    end if;
    perform duly.record_skips_v1(v_job, p_skips, v_now);
    for v_backfill in update duly.backfills set state = 'cancelled' where backfills.job_id = p_job_id and backfills.state = 'active' returning * loop
        if v_backfill.origin = 'schedule' then
            perform duly.record_skips_v1(v_job, jsonb_build_array(jsonb_build_object('reason', 'skipped_on_request', 'first', v_backfill.cursor_at,
                        'last', v_backfill.to_at - interval '1 microsecond', 'count', v_backfill.total - v_backfill.made)), v_now);
        end if;
    end loop;
    return next p_job_id;
end $$;

create function duly.api_cancel_schedule_v2(p_job_id uuid, p_seen timestamptz, p_skips jsonb) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if duly.is_our_job(p_job_id) then
        return query select * from duly.cancel_schedule_v2(p_job_id, p_seen, p_skips);
    end if;
end $$;

-------------------------------------------------------------------------------------------------------------------- subtasks

-- Subtasks that have not ended, by rising id: these can be cancelled, or asked to stop.
create function duly.live_subtasks_v1(p_parent uuid, p_after uuid, p_limit integer) returns setof uuid
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    return query
    select subtasks.run_id from duly.subtasks
     cross join lateral (
                  select from duly.timers where timers.run_id = subtasks.run_id
        union all select from duly.blocked where blocked.run_id = subtasks.run_id
        union all select from duly.ready where ready.run_id = subtasks.run_id
        union all select from duly.leased where leased.run_id = subtasks.run_id limit 1) as place
     where subtasks.parent = p_parent and subtasks.run_id > p_after
     order by subtasks.run_id limit p_limit;
end $$;

create function duly.api_live_subtasks_v1(p_parent uuid, p_after uuid, p_limit integer) returns setof uuid
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    if duly.owns(p_parent) then
        return query select * from duly.live_subtasks_v1(p_parent, p_after, p_limit);
    end if;
end $$;

----------------------------------------------------------------------------------------------------------- changes of jobs

-- What was done to definitions, for those who listen, by the transaction that did it; kept for an hour or so.
create table duly.job_changes (
    xid          xid8        not null default pg_current_xact_id(),
    number       bigint      generated always as identity,
    tenant       integer     not null,
    job_id       uuid        not null,
    generation   integer     not null,
    change       text        not null check (change in ('made', 'edited', 'paused', 'resumed', 'completed', 'cancelled')),
    name         text,
    queue        text        not null,
    handler      text        not null,
    changed_at   timestamptz not null
);
create index job_changes_by_transaction on duly.job_changes (xid, number);
create index job_changes_by_time on duly.job_changes (changed_at);

create function duly.note_made_jobs_v1() returns trigger language plpgsql as $$
begin
    insert into duly.job_changes (tenant, job_id, generation, change, name, queue, handler, changed_at)
    select tenant, job_id, generation, 'made', name, queue, handler, duly.clock_now() from made;
    return null;
end $$;

create function duly.note_changed_job_v1() returns trigger language plpgsql as $$
begin
    insert into duly.job_changes (tenant, job_id, generation, change, name, queue, handler, changed_at)
    values (new.tenant, new.job_id, new.generation,
            case when new.generation <> old.generation then 'edited' when new.state = 'active' then 'resumed' else new.state end,
            new.name, new.queue, new.handler, duly.clock_now());
    return null;
end $$;

create trigger jobs_made after insert on duly.jobs referencing new table as made for each statement execute function duly.note_made_jobs_v1();
create trigger jobs_changed after update of generation, state on duly.jobs
   for each row when (old.generation <> new.generation or old.state <> new.state) execute function duly.note_changed_job_v1();

-- Give the changes that a snapshot could not see yet, of some tenants, in the order of their transactions.
create function duly.job_changes_since_v1(p_seen pg_snapshot, p_tenants integer[], p_limit integer) returns setof duly.job_changes
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return query
    select * from duly.job_changes
     where job_changes.xid >= pg_snapshot_xmin(p_seen) and not pg_visible_in_snapshot(job_changes.xid, p_seen) and job_changes.tenant = any (p_tenants)
     order by job_changes.xid, job_changes.number limit p_limit;
end $$;

revoke execute on function duly.cancel_schedule_v2, duly.api_cancel_schedule_v2, duly.live_subtasks_v1, duly.api_live_subtasks_v1, duly.note_made_jobs_v1, duly.note_changed_job_v1, duly.job_changes_since_v1, duly.least_period, duly.skip_next_v2, duly.api_skip_next_v2, duly.put_calendar_v1, duly.calendar_settled_v1,
    duly.api_calendar_settled_v1 from public;
grant execute on function duly.api_cancel_schedule_v2, duly.api_live_subtasks_v1, duly.least_period, duly.api_skip_next_v2, duly.api_calendar_settled_v1 to duly_api;
