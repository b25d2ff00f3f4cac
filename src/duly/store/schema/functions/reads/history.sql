-- The days of history.

-- Create the day partitions of history from p_from on, where they are missing; what waits in the default partition for its day
-- goes along. One that does not get its lock in time is left for the next call: behind a lock we wait for, every settle waits.
create or replace function duly.create_partitions(p_from date, p_days integer) returns integer
language plpgsql set lock_timeout = '200ms' as $$
declare
    v_created   integer := 0;
    v_day    date;
    v_parent text;
    v_moment text;
    v_name   text;
begin
    for v_day, v_parent, v_moment in
        select p_from + i, parent, moment from generate_series(0, p_days - 1) as i
         cross join (values ('attempts_succeeded', 'finished_at'), ('attempts_failed', 'finished_at'), ('logs', 'logged_at')) as kept(parent, moment)
    loop
        v_name := v_parent || to_char(v_day, '_YYYYMMDD');
        continue when to_regclass(format('duly.%I', v_name)) is not null;
        begin
            execute format('lock table duly.%I in access exclusive mode', v_parent || '_default');
            -- A day begins empty and grows by all that happens: by shares of a tenth and a fifth it would be read again every few seconds.
            execute format('create table duly.%I (like duly.%I including all) with (autovacuum_analyze_scale_factor = 0.5,'
                           ' autovacuum_vacuum_insert_scale_factor = 0.5)', v_name, v_parent);
            execute format('with strays as (delete from duly.%1$I where %2$I >= %3$L and %2$I < %4$L returning *) insert into duly.%5$I select * from strays',
                           v_parent || '_default', v_moment, v_day::text || ' 00:00+00', (v_day + 1)::text || ' 00:00+00', v_name);
            execute format('alter table duly.%I attach partition duly.%I for values from (%L) to (%L)',
                           v_parent, v_name, v_day::text || ' 00:00+00', (v_day + 1)::text || ' 00:00+00');
            v_created := v_created + 1;
        exception when lock_not_available or duplicate_table then
            continue;
        end;
    end loop;
    return v_created;
end $$;

-- Return whether a table has rows.
create or replace function duly.has_rows(p_name text) returns boolean language plpgsql as $$
declare
    v_found boolean;
begin
    execute format('select exists (select from duly.%I)', p_name) into v_found;
    return v_found;
end $$;

-- Drop one day of history, whole, or only if it is empty. False: somebody is reading it, so it is left for the next call; or it has rows that are to be archived first, or a legal hold
-- is on a part of it.
create or replace function duly.drop_partition(p_name text, p_only_empty boolean) returns boolean
language plpgsql set lock_timeout = '200ms' as $$
begin
    if p_name like 'attempts%' then
        lock table duly.legal_holds in share mode;
        if duly.has_held_rows(p_name) then
            return false;
        end if;
        if p_only_empty or exists (select from duly.history_limits where archived_at is not null) then
            if duly.has_rows(p_name) then
                return false;
            end if;
            execute format('lock table duly.%I in access exclusive mode', p_name);
            if duly.has_rows(p_name) then
                return false;
            end if;
        end if;
    end if;
    execute format('drop table if exists duly.%I', p_name);
    return true;
exception when lock_not_available then
    return false;
end $$;
