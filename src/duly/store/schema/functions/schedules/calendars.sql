-- Calendars: kept, changed and dropped. next_fire.sql times schedules anew after a change.

-- Keep a calendar, new or changed. What it was stays beside it until its jobs are timed anew.
create or replace function duly.put_calendar(p_tenant integer, p_name text, p_definition jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    insert into duly.calendars (tenant, name, definition, updated_at) values (p_tenant, p_name, p_definition, duly.clock_now())
    on conflict (tenant, name) do update set definition = excluded.definition, updated_at = excluded.updated_at,
       earlier = case when calendars.definition = excluded.definition then calendars.earlier
                      else jsonb_path_query_array(jsonb_build_array(calendars.definition) || coalesce(calendars.earlier, '[]'), '$[0 to 7]') end;
end $$;

-- Forget what a calendar was, now that all of its jobs are timed by what it is; unless somebody has changed it since.
create or replace function duly.calendar_settled(p_tenant integer, p_name text, p_definition jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    update duly.calendars set earlier = null
     where calendars.tenant = p_tenant and calendars.name = p_name and calendars.definition = p_definition and calendars.earlier is not null;
end $$;

-- Drop a calendar that no schedule uses: dropped, missing, or used by a job.
create or replace function duly.drop_calendar(p_tenant integer, p_name text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_user text;
begin
    perform duly.must_be_ours(p_tenant);
    select coalesce(jobs.name, jobs.job_id::text) into v_user from duly.jobs where jobs.tenant = p_tenant and jobs.state in ('active', 'paused')
       and jobs.schedule @> jsonb_build_object('calendars', jsonb_build_array(jsonb_build_object('name', p_name))) limit 1;
    if found then
        return 'used by ' || v_user;
    end if;
    delete from duly.calendars where calendars.tenant = p_tenant and calendars.name = p_name;
    return case when found then 'dropped' else 'missing' end;
end $$;

grant execute on function duly.put_calendar, duly.calendar_settled, duly.drop_calendar to duly_api;
