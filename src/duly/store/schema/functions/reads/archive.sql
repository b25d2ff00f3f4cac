-- The archive of history: who exports a partition, and the drop that its verified archive permits.

-- Claim the export of a partition, or of late rows; no row: another has it, or it is done. A claim of what is verified keeps its file; one that
-- begins anew leaves the earlier file to be deleted.
create or replace function duly.claim_archive(
    p_name text, p_source text, p_kind text, p_day date, p_is_late boolean, p_holder uuid, p_location text, p_lease interval)
returns setof duly.archived_partitions language plpgsql as $$
#variable_conflict use_column
begin
    return query
    insert into duly.archived_partitions as known (name, source, kind, day, is_late, state, holder, until, begun_at, horizon, location)
    values (p_name, p_source, p_kind, p_day, p_is_late, 'exporting', p_holder, duly.clock_now() + p_lease, duly.clock_now(),
            pg_snapshot_xmin(pg_current_snapshot()), p_location)
    on conflict (name) do update
       set holder = excluded.holder, until = excluded.until,
           begun_at = case when known.state = 'exporting' then excluded.begun_at else known.begun_at end,
           horizon = case when known.state = 'exporting' then excluded.horizon else known.horizon end,
           abandoned = case when known.state = 'exporting' then known.abandoned || known.location else known.abandoned end,
           location = case when known.state = 'exporting' then excluded.location else known.location end
     where known.state in ('exporting', 'verified') and known.until <= duly.clock_now()
    returning known.*;
end $$;

-- Return whether history of a legal hold is in a partition.
create or replace function duly.has_held_rows(p_source text) returns boolean language plpgsql stable as $$
declare
    v_found boolean;
begin
    if not exists (select from duly.legal_holds) then
        return false;
    end if;
    execute format('select exists (select from duly.%I as held join duly.legal_holds on legal_holds.tenant = held.tenant'
                   ' and coalesce(legal_holds.job_id, held.job_id) = held.job_id)', p_source) into v_found;
    return v_found;
end $$;

-- Drop a partition whose archive is verified, and record it in the same transaction. `changed`: rows came after the export began, or a legal hold
-- on what was sampled, so it is exported anew; `busy`: somebody reads it, so the next round tries again; `lost`: another process has it.
create or replace function duly.drop_archived(p_name text, p_holder uuid) returns text
language plpgsql set lock_timeout = '200ms' as $$
declare
    v_one     duly.archived_partitions;
    v_is_new boolean;
begin
    select * into v_one from duly.archived_partitions where name = p_name and holder = p_holder and state = 'verified' and not is_late for update;
    if not found then
        return 'lost';
    end if;
    lock table duly.legal_holds in share mode;
    execute format('lock table duly.%I in access exclusive mode', v_one.source);
    -- A number beyond the current one is of another server, from which this history was restored.
    execute format('select exists (select from duly.%I where xid >= $1 and xid < pg_snapshot_xmax(pg_current_snapshot()))', v_one.source)
       into v_is_new using v_one.horizon;
    if v_is_new or (v_one.left_out > 0 and exists (select from duly.legal_holds where xid >= v_one.horizon)) then
        update duly.archived_partitions set state = 'exporting', until = duly.clock_now() where name = p_name;
        return 'changed';
    end if;
    execute format('drop table duly.%I', v_one.source);
    update duly.archived_partitions set state = 'dropped', dropped_at = duly.clock_now(), until = duly.clock_now() where name = p_name;
    return 'dropped';
exception when lock_not_available then
    return 'busy';
end $$;

-- Give up archives of days before p_before, so many at most, but those with history of a legal hold. Their files are then abandoned.
create or replace function duly.delete_archives(p_before date, p_limit integer) returns integer language plpgsql as $$
declare
    v_deleted integer;
begin
    lock table duly.legal_holds in share mode;
    update duly.archived_partitions set state = 'deleted', abandoned = abandoned || location
     where name in (select name from duly.archived_partitions as old where state = 'dropped' and day < p_before
                       and not exists (select from duly.legal_holds where legal_holds.tenant = any (old.tenants))
                     order by day limit p_limit for update skip locked);
    get diagnostics v_deleted = row_count;
    return v_deleted;
end $$;
