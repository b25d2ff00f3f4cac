-- Restore: hold a database that is as it was at a backup, until a person has decided. docs/decisions/0047-restored-systems-are-held.md says why.

-- Void every lease, pause everything, and open a recovery. Fences and epochs continue far above those that were granted after the backup, and
-- are lost with it: so nothing that lived through the restore can write, and receivers see rising fences. Runs that were in flight stay where
-- they are, held by workers that never expire, until the recovery is decided; any of them may have ended after the backup.
create or replace function duly.hold_restored(p_backup_at timestamptz) returns uuid
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_now         timestamptz := duly.clock_now();
    v_far         timestamptz := v_now + interval '100 years';
    v_recovery_id uuid;
begin
    insert into duly.expired_workers (worker_id, name, safe_until, named, expired_at)
    select distinct leased.worker_id, coalesce(workers.name, 'unknown'), v_far, '{}'::text[], timestamptz 'infinity'
      from duly.leased left join duly.workers on workers.worker_id = leased.worker_id where leased.worker_id <> duly.receiver()
    on conflict (worker_id) do update set safe_until = excluded.safe_until, named = excluded.named, expired_at = excluded.expired_at;
    delete from duly.workers;
    delete from duly.schedulers;
    delete from duly.browser_sessions;
    update duly.shards set holder = null, epoch = epoch + 1000000;

    perform setval('duly.fences', nextval('duly.fences') + 100000000000);
    with held as (
        select leased.run_id, leased.fence, nextval('duly.fences') as raised from duly.leased where leased.worker_id <> duly.receiver()),
    raised as (
        update duly.leased set fence = held.raised, suspect = false from held where leased.run_id = held.run_id
        returning leased.worker_id, leased.run_id, held.fence, held.raised)
    update duly.signals set fence = raised.raised from raised
     where signals.worker_id = raised.worker_id and signals.run_id = raised.run_id and signals.fence = raised.fence;

    -- Exports of rows that are still here are made anew: their horizon may be a number of another server. Files that are given up stay, because the
    -- system from which the backup came may need them.
    delete from duly.archived_partitions where state = 'exporting' or (state = 'verified' and not is_late);
    update duly.archived_partitions set abandoned = '{}' where abandoned <> '{}';

    insert into duly.pauses (reason, paused_by, paused_at)
    values ('restored from the backup of ' || to_char(p_backup_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), 'duly restore', v_now)
    on conflict do nothing;
    update duly.recoveries set state = 'open', down_since = p_backup_at, opened_at = v_now, decided_at = null, decided_by = null, backup_at = p_backup_at
     where recoveries.state in ('open', 'approved', 'dismissing') returning recoveries.recovery_id into v_recovery_id;
    if not found then
        insert into duly.recoveries (recovery_id, state, down_since, opened_at, backup_at)
        values (gen_random_uuid(), 'open', p_backup_at, v_now, p_backup_at) returning recoveries.recovery_id into v_recovery_id;
    end if;
    return v_recovery_id;
end $$;

-- A recovery was decided: if it is that of a restored database, its runs in flight are the reaper's, and the pause of the restore ends.
create or replace function duly.let_go_restored(p_recovery_id uuid) returns boolean
language plpgsql {planned by index} as $$
begin
    if not exists (select from duly.recoveries where recovery_id = p_recovery_id and backup_at is not null) then
        return false;
    end if;
    update duly.expired_workers set expired_at = duly.clock_now() where expired_at = 'infinity';
    delete from duly.pauses where tenant is null and queue is null and paused_by = 'duly restore';
    return found;
end $$;
