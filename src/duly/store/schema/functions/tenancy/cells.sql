-- Cells: the move of a tenant from one primary to another. docs/decisions/0057-a-tenant-is-in-one-cell.md says why. Each step names the epoch of its move, so that one
-- that comes late, or again, has no effect.

-- What a move does with each table. `moved`: the tenant's rows go along; `dropped`: they are made anew where the tenant arrives; `local`: the table
-- is about the cell. Rows are found by the tenant's number or, where they have none, by an id that rows which go along have. A test compares
-- this list with the schema.
create or replace function duly.tenant_tables() returns table (name text, fate text, found_by text) language sql immutable as $$
    select listed.name, listed.fate, listed.found_by from (values
        (1, 'tenant', 'moved', array[
            'timers', 'blocked', 'ready', 'dead', 'attempts', 'tallies', 'rollups', 'audit', 'purges', 'jobs', 'job_versions', 'job_tags',
            'idempotency_keys', 'calendars', 'backfills', 'zone_moves', 'files', 'events', 'key_limits', 'rate_limits', 'pauses', 'limits', 'api_keys',
            'browser_sessions', 'idempotent_responses', 'destinations', 'destination_secrets', 'workflows', 'workflow_nodes', 'workflow_edges',
            'dependencies', 'dependents', 'subtasks', 'completion_callbacks', 'redactions', 'legal_holds', 'channels', 'notification_rules',
            'notifications', 'notification_states', 'notification_deliveries', 'concurrency_keys']),
        (2, 'tenant', 'dropped', array['tenant_usage', 'overloads', 'job_changes', 'workflow_changes']),
        (3, 'run_id', 'moved', array['checkpoints', 'progress', 'logs']),
        (3, 'job_id', 'moved', array['payloads']),
        (3, 'workflow_id', 'moved', array['workflow_tasks']),
        (3, 'child', 'moved', array['dependency_checks']),
        (3, 'run_id', 'dropped', array['signals', 'awaited']),
        (3, 'destination_id', 'dropped', array['destination_shares']),
        (4, null, 'local', array[
            'run', 'leased', 'tenants', 'workers', 'expired_workers', 'schedulers', 'shards', 'processes', 'drained_hosts', 'clock_high_water',
            'maintenance_tasks', 'metrics', 'counters', 'functions', 'migrations', 'history_limits', 'archived_partitions', 'zone_data', 'recoveries',
            'queue_ages', 'claim_positions', 'token_buckets', 'destination_reports', 'notification_cursor', 'ended_nodes', 'ended_dependencies',
            'cell', 'cells', 'placements', 'absent_tenants', 'departures', 'arrivals', 'moved_keys'])) as listed_at(step, found_by, fate, names)
     cross join lateral (select unnest(listed_at.names) as name, listed_at.fate, listed_at.found_by) as listed order by listed_at.step
$$;

-- Return whether this transaction takes a tenant's rows out of a cell or puts them into one: then triggers do not take them for new. Never in a
-- tenant's request.
create or replace function duly.is_in_transit() returns boolean language sql stable as $$
    select coalesce(current_setting('duly.in_transit', true) = 'yes', false) and not duly.is_tenant_session()
$$;

-- Make this database a cell. Answers with null, or says why it cannot be: it is another one, or has tenants whose numbers others may have. The
-- first cell, which has the directory, keeps its tenants; any other numbers its own from its own million on.
create or replace function duly.become_cell(p_name text, p_number integer, p_region text, p_directory uuid) returns text language plpgsql as $$
declare
    v_cell  duly.cell;
    v_found text;
begin
    lock table duly.cell in share row exclusive mode;
    select * into v_cell from duly.cell;
    if found then
        return case when v_cell.name = p_name and v_cell.directory = p_directory and v_cell.number = p_number then null
                    when v_cell.directory = p_directory then format('it is cell %s already', v_cell.name)
                    else format('it is cell %s of another directory', v_cell.name) end;
    end if;
    select tenants.name into v_found from duly.tenants
     where tenants.tenant > 1 and not exists (select from duly.absent_tenants where absent_tenants.tenant = tenants.tenant and absent_tenants.state = 'gone') limit 1;
    if found and p_number > 0 then
        return format('it has tenants already, such as %s; a cell is added empty, and its tenants come by moves', v_found);
    end if;
    insert into duly.cell (name, number, region, directory) values (p_name, p_number, p_region, p_directory);
    if p_number > 0 then
        perform setval(pg_get_serial_sequence('duly.tenants', 'tenant'), p_number * 1000000, false);
    end if;
    return null;
end $$;

------------------------------------------------------------------------------------------------------------------ presence

-- Refuse to add to a tenant that is not here. A transaction that began before the tenant was frozen may not see that; the move waits for it.
create or replace function duly.check_presence(p_tenant integer) returns void language plpgsql as $$
declare
    v_absent duly.absent_tenants;
begin
    select * into v_absent from duly.absent_tenants where absent_tenants.tenant = p_tenant;
    if found then
        perform duly.refuse_absent(v_absent);
    end if;
end $$;

create or replace function duly.refuse_absent(p_absent duly.absent_tenants) returns void language plpgsql as $$
declare
    v_name text := (select tenants.name from duly.tenants where tenants.tenant = p_absent.tenant);
begin
    if p_absent.state = 'gone' then
        raise exception using errcode = 'DU025', detail = p_absent.cell,
            message = format('tenant %s is in cell %s since epoch %s', v_name, p_absent.cell, p_absent.epoch);
    end if;
    raise exception using errcode = 'DU024', detail = p_absent.cell,
        message = case when p_absent.state = 'arriving' then format('tenant %s is arriving from cell %s', v_name, p_absent.cell)
                       else format('tenant %s is moving to cell %s', v_name, p_absent.cell) end;
end $$;

-- A tenant's rows that would go along with it, by table, in one snapshot: a row that moves from table to table meanwhile is found in one of them.
-- Without p_tenant, those of all tenants that are not here. Leased rows count, too.
create or replace function duly.rows_of_tenants(p_tenant integer default null) returns table (tenant integer, table_name text)
language plpgsql stable set jit = off as $$
declare
    v_tenants integer[] := case when p_tenant is not null then array[p_tenant] else array(
        select absent_tenants.tenant from duly.absent_tenants where absent_tenants.state <> 'leaving') end;
begin
    if v_tenants = '{}' then
        return;
    end if;
    return query execute (
        select string_agg(format('select one.tenant, %L from unnest($1) as one(tenant) where exists (select from duly.%I as held where held.tenant = one.tenant)',
                                 listed.name, listed.name), ' union all ')
          from (select tables.name from duly.tenant_tables() as tables where tables.found_by = 'tenant' and tables.fate = 'moved' union all select 'leased') as listed) using v_tenants;
end $$;

------------------------------------------------------------------------------------------------------------------ leaving

-- Let a tenant begin to leave: nothing more is added to it or claimed. Repeated, it answers alike. Answers with the state that it is in, or
-- `other` under another move.
create or replace function duly.freeze_tenant(p_tenant integer, p_epoch bigint, p_to text) returns text language plpgsql as $$
declare
    v_absent duly.absent_tenants;
begin
    insert into duly.absent_tenants (tenant, state, epoch, cell, since) values (p_tenant, 'leaving', p_epoch, p_to, duly.clock_now()) on conflict do nothing;
    select * into strict v_absent from duly.absent_tenants where absent_tenants.tenant = p_tenant;
    return case when v_absent.epoch = p_epoch and v_absent.state in ('leaving', 'departed', 'gone') then v_absent.state else 'other' end;
end $$;

-- Let a tenant that began to leave stay; false: it has departed, or another move has it.
create or replace function duly.unfreeze_tenant(p_tenant integer, p_epoch bigint) returns boolean language plpgsql as $$
begin
    delete from duly.absent_tenants where absent_tenants.tenant = p_tenant and absent_tenants.epoch = p_epoch and absent_tenants.state = 'leaving';
    return found;
end $$;

-- Take all rows of a tenant out of their tables. From the commit on nothing of it can fire or be claimed here, whatever a process believes, because
-- there is nothing. Rows that move meanwhile are followed until one snapshot has none of them. Returns how many rows have departed.
create or replace function duly.depart(p_tenant integer, p_epoch bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    v_absent duly.absent_tenants;
    v_table  record;
    v_rest   text[];
begin
    select * into v_absent from duly.absent_tenants where absent_tenants.tenant = p_tenant and absent_tenants.epoch = p_epoch for update;
    if not found or v_absent.state not in ('leaving', 'departed') then
        raise exception using errcode = 'DU026', message = format('tenant %s does not leave in epoch %s', p_tenant, p_epoch);
    end if;
    if v_absent.state = 'leaving' then
        perform set_config('duly.in_transit', 'yes', true);
        for pass in 1 .. 20 loop
            for v_table in select * from duly.tenant_tables() as tables where tables.found_by = 'tenant' loop
                perform duly.take_rows(p_tenant, p_epoch, v_table.name, v_table.fate, 'tenant');
            end loop;
            v_rest := array(select held.table_name from duly.rows_of_tenants(p_tenant) as held);
            exit when v_rest = '{}';
        end loop;
        if v_rest <> '{}' then
            raise exception using errcode = 'DU026', message = format('rows of tenant %s keep coming: %s', p_tenant, array_to_string(v_rest, ', '));
        end if;
        for v_table in select * from duly.tenant_tables() as tables where tables.fate <> 'local' and tables.found_by <> 'tenant' loop
            perform duly.take_rows(p_tenant, p_epoch, v_table.name, v_table.fate, v_table.found_by);
        end loop;
        insert into duly.departures (tenant, epoch, table_name, body)
        select p_tenant, p_epoch, 'tenants', duly.texts_of(to_jsonb(tenants)) from duly.tenants where tenants.tenant = p_tenant;
        insert into duly.moved_keys (key_id, tenant, secret_hash)
        select left_keys.body->>'key_id', p_tenant, (left_keys.body->>'secret_hash')::bytea from duly.departures as left_keys
         where left_keys.tenant = p_tenant and left_keys.epoch = p_epoch and left_keys.table_name = 'api_keys' and left_keys.body->>'revoked_at' is null
        on conflict do nothing;
        update duly.absent_tenants set state = 'departed' where absent_tenants.tenant = p_tenant;
    end if;
    return (select count(*) from duly.departures where departures.tenant = p_tenant and departures.epoch = p_epoch);
end $$;

-- The values of a row as texts.
create or replace function duly.texts_of(p_row jsonb) returns jsonb language sql immutable as $$
    select jsonb_object_agg(key, value) from jsonb_each_text(p_row)
$$;

-- Move a tenant's rows of one table to `departures`, or delete them. The texts do not depend on the session, and tell a JSON null from none.
create or replace function duly.take_rows(p_tenant integer, p_epoch bigint, p_table text, p_fate text, p_found_by text) returns void
language plpgsql set datestyle = 'ISO, YMD' set intervalstyle = 'postgres' set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
    v_names  text := (select string_agg(quote_literal(attname), ', ' order by attnum) from pg_attribute
                       where attrelid = format('duly.%I', p_table)::regclass and attnum > 0 and not attisdropped);
    v_values text := (select string_agg(format('one.%I::text', attname), ', ' order by attnum) from pg_attribute
                       where attrelid = format('duly.%I', p_table)::regclass and attnum > 0 and not attisdropped);
    v_which  text := case when p_found_by = 'tenant' then 'one.tenant = $1'
                          else format('one.%I in (select distinct (body->>%L)::uuid from duly.departures where tenant = $1 and epoch = $2 and body ? %L)',
                                      p_found_by, p_found_by, p_found_by) end;
begin
    if p_found_by = 'child' then                       -- By the run that waits, which may be listed as a run alone.
        v_which := 'one.child in (select distinct (body->>''run_id'')::uuid from duly.departures where tenant = $1 and epoch = $2 and body ? ''run_id'')';
    end if;
    execute format('with taken as (delete from duly.%I as one where %s returning one.*)'
                   ' insert into duly.departures (tenant, epoch, table_name, body)'
                   ' select $1, $2, %L, jsonb_object(array[%s], array[%s]) from taken as one where %L = ''moved''',
                   p_table, v_which, p_table, v_names, v_values, p_fate) using p_tenant, p_epoch;
end $$;

-- Forget what has arrived, and say from now on where the tenant is. Repeated, it changes nothing.
create or replace function duly.finish_departure(p_tenant integer, p_epoch bigint) returns void language plpgsql as $$
begin
    update duly.absent_tenants set state = 'gone' where absent_tenants.tenant = p_tenant and absent_tenants.epoch = p_epoch and absent_tenants.state = 'departed';
    delete from duly.departures where departures.tenant = p_tenant and departures.epoch = p_epoch
       and exists (select from duly.absent_tenants where absent_tenants.tenant = p_tenant and absent_tenants.epoch = p_epoch and absent_tenants.state = 'gone');
end $$;

------------------------------------------------------------------------------------------------------------------ arriving

-- Make room for a tenant. Answers with null, or says why it cannot arrive. One that was here before comes back under its number.
create or replace function duly.prepare_arrival(p_tenant integer, p_name text, p_epoch bigint, p_from text) returns text language plpgsql as $$
declare
    v_tables text[];
begin
    insert into duly.tenants (tenant, name, created_at) values (p_tenant, p_name, duly.clock_now()) on conflict do nothing;
    if found then
        insert into duly.absent_tenants (tenant, state, epoch, cell, since) values (p_tenant, 'gone', 0, p_from, duly.clock_now()) on conflict do nothing;
    elsif not exists (select from duly.tenants where tenants.tenant = p_tenant and tenants.name = p_name) then
        return 'its name or number is that of another tenant there';
    end if;
    v_tables := array(select held.table_name from duly.rows_of_tenants(p_tenant) as held);
    if v_tables <> '{}' and exists (select from duly.absent_tenants where absent_tenants.tenant = p_tenant and absent_tenants.epoch < p_epoch) then
        return format('rows of it are there already (%s)', array_to_string(v_tables, ', '));
    end if;
    update duly.absent_tenants set state = 'arriving', epoch = p_epoch, cell = p_from, since = duly.clock_now()
     where absent_tenants.tenant = p_tenant and absent_tenants.state in ('gone', 'arriving') and absent_tenants.epoch <= p_epoch;
    if not found and not exists (select from duly.arrivals where arrivals.tenant = p_tenant and arrivals.epoch = p_epoch) then
        return 'it is there already';
    end if;
    return null;
end $$;

-- Undo that.
create or replace function duly.undo_arrival(p_tenant integer, p_epoch bigint) returns void language sql as $$
    update duly.absent_tenants set state = 'gone' where absent_tenants.tenant = p_tenant and absent_tenants.epoch = p_epoch and absent_tenants.state = 'arriving'
$$;

-- Begin the transaction in which a tenant arrives, or what came late of one that is here; false: it has. The archive waits for its end: rows that
-- arrive look old, and an export that began before would miss them.
create or replace function duly.begin_arrival(p_tenant integer, p_epoch bigint, p_is_late boolean) returns boolean language plpgsql as $$
begin
    insert into duly.arrivals (tenant, epoch) values (p_tenant, p_epoch) on conflict do nothing;
    if not found then
        return false;
    end if;
    perform from duly.absent_tenants where absent_tenants.tenant = p_tenant
       and (p_is_late or (absent_tenants.epoch = p_epoch and absent_tenants.state = 'arriving')) for update;
    if found = p_is_late then
        raise exception using errcode = 'DU026', message = format('tenant %s does not arrive in epoch %s', p_tenant, p_epoch);
    end if;
    perform set_config('duly.in_transit', 'yes', true);
    lock table duly.archived_partitions in share row exclusive mode;
    return true;
end $$;

-- Put rows that have departed elsewhere into one table. History keeps no transaction of its own cell: what arrives is recorded under one that
-- lies before every reader's position, so that no event and no metric repeats it. Of what came late, rows that are here already are left out.
create or replace function duly.put_rows(p_tenant integer, p_table text, p_rows jsonb[], p_is_late boolean) returns void language plpgsql as $$
declare
    v_past    xid8 := greatest(3, pg_current_xact_id()::text::bigint - 1073741824)::text::xid8;
    v_columns text;
    v_values  text;
    v_days    date[];
begin
    select string_agg(quote_ident(attname), ', ' order by attnum),
           string_agg(case when p_table = 'attempts' and attname = 'xid' then '$2'
                           when p_table = 'workflows' and attname = 'ended_xid' then 'case when one.body->>''ended_xid'' is not null then $2 end'
                           when p_table = 'legal_holds' and attname = 'xid' then 'pg_current_xact_id()'
                           else format('(one.body->>%L)::%s', attname, format_type(atttypid, atttypmod)) end, ', ' order by attnum)
      into v_columns, v_values
      from pg_attribute
     where attrelid = format('duly.%I', p_table)::regclass and attnum > 0 and not attisdropped
       and (attidentity = '' or p_table = 'notifications')  -- Rules know their notifications by number; other numbers are given anew.
       and (p_table <> 'tenants' or attname not in ('tenant', 'name'));
    if p_table = 'tenants' and p_is_late then
        return;
    elsif p_table = 'tenants' then
        execute format('update duly.tenants set (%s) = (select %s from unnest($1) as one(body)) where tenants.tenant = $3', v_columns, v_values)
          using p_rows, v_past, p_tenant;
        return;
    end if;
    execute format('insert into duly.%I (%s) overriding system value select %s from unnest($1) as one(body)%s', p_table, v_columns, v_values,
                   case when p_is_late then ' on conflict do nothing' else '' end)
      using p_rows, v_past;
    if p_table = 'notifications' then
        perform duly.raise_sequence('duly.notifications_notification_id_seq', (select max((one.body->>'notification_id')::bigint) from unnest(p_rows) as one(body)));
    elsif p_table = 'attempts' then                    -- An archive that was made of such a day lacks them: it is made anew.
        v_days := array(select distinct ((one.body->>'finished_at')::timestamptz at time zone 'UTC')::date from unnest(p_rows) as one(body));
        update duly.archived_partitions set state = 'exporting', holder = gen_random_uuid(), until = duly.clock_now()
         where archived_partitions.day = any (v_days) and archived_partitions.state in ('exporting', 'verified');
    end if;
end $$;

-- Raise a sequence above a number of another cell, with room for those who draw meanwhile: it never goes back.
create or replace function duly.raise_sequence(p_sequence regclass, p_above bigint) returns void language plpgsql as $$
declare
    v_last bigint;
begin
    execute format('select last_value from %s', p_sequence) into v_last;
    if v_last <= p_above then
        perform setval(p_sequence, p_above + 1000000);
    end if;
end $$;

-- The tenant is here: its fences and its numbers in FIFO order go on above those of the cell that it comes from.
create or replace function duly.finish_arrival(p_tenant integer, p_epoch bigint, p_fence bigint, p_fifo_number bigint) returns void language plpgsql as $$
begin
    perform duly.raise_sequence('duly.fences', p_fence), duly.raise_sequence('duly.fifo_numbers', p_fifo_number);
    delete from duly.moved_keys where moved_keys.tenant = p_tenant;
    delete from duly.absent_tenants where absent_tenants.tenant = p_tenant and absent_tenants.epoch = p_epoch and absent_tenants.state = 'arriving';
end $$;
