-- Purge: remove a job that is over, with its versions and its history. The definition goes at once; history goes in batches, when no run of
-- the job is under way any more.

-- Return whether the history of a job is under a legal hold.
create or replace function duly.is_held(p_tenant integer, p_job_id uuid) returns boolean language sql stable as $$
    select exists (select from duly.legal_holds where legal_holds.tenant = p_tenant and coalesce(legal_holds.job_id, p_job_id) = p_job_id)
$$;

-- Remove the definition of a job that is over, and record that its history is to go. False: it is not over.
create or replace function duly.ask_purge(p_tenant integer, p_job_id uuid) returns boolean
language plpgsql {planned by index} as $$
begin
    if duly.is_held(p_tenant, p_job_id) then
        raise exception using errcode = 'DU031', message = format('job %s is under a legal hold', p_job_id);
    end if;
    delete from duly.jobs where jobs.job_id = p_job_id and jobs.tenant = p_tenant and jobs.state not in ('active', 'paused');
    if not found and exists (select from duly.jobs where jobs.job_id = p_job_id) then
        return false;
    end if;
    delete from duly.job_versions where job_versions.job_id = p_job_id and (job_versions.tenant = p_tenant) is true;
    delete from duly.job_tags where job_tags.job_id = p_job_id;
    delete from duly.backfills where backfills.job_id = p_job_id;
    insert into duly.purges (job_id, tenant, requested_at) values (p_job_id, p_tenant, duly.clock_now()) on conflict do nothing;
    return true;
end $$;

-- Remove history of a job whose purge was requested, so many runs at most. Returns how many these were; null: a run of it is under way. What is
-- left of the job goes with the last of them.
create or replace function duly.purge_history(p_job_id uuid, p_limit integer) returns integer
language plpgsql {planned by index, by loop} as $$
declare
    v_run_ids uuid[];
begin
    if exists (select from duly.timers where timers.run_id = p_job_id) or exists (select from duly.blocked where blocked.run_id = p_job_id)
       or exists (select from duly.ready where ready.run_id = p_job_id)
       or exists (select from duly.timers where timers.job_id = p_job_id and timers.run_id is not null and timers.run_id <> timers.job_id)
       or exists (select from duly.blocked where blocked.job_id = p_job_id and blocked.run_id <> blocked.job_id)
       or exists (select from duly.ready where ready.job_id = p_job_id and ready.run_id <> ready.job_id)
       or exists (select from duly.leased where leased.job_id = p_job_id) then
        return null;
    end if;
    v_run_ids := array(
        select run_id from (
            (select run_id from duly.dead where dead.job_id = p_job_id and dead.run_id <> dead.job_id limit p_limit)
            union (select run_id from duly.attempts_succeeded where attempts_succeeded.job_id = p_job_id
                      and attempts_succeeded.run_id <> attempts_succeeded.job_id limit p_limit)
            union (select run_id from duly.attempts_failed where attempts_failed.job_id = p_job_id
                      and attempts_failed.run_id <> attempts_failed.job_id limit p_limit)
            union (select run_id from duly.attempts where attempts.run_id = p_job_id limit 1)
            union (select run_id from duly.dead where dead.run_id = p_job_id)) as found
         limit p_limit);
    delete from duly.dead where dead.run_id = any (v_run_ids);
    delete from duly.attempts where attempts.run_id = any (v_run_ids);
    delete from duly.logs where logs.run_id = any (v_run_ids);
    delete from duly.progress where progress.run_id = any (v_run_ids);
    delete from duly.checkpoints where checkpoints.run_id = any (v_run_ids);
    if cardinality(v_run_ids) < p_limit then
        delete from duly.payloads where payloads.job_id = p_job_id;
        delete from duly.purges where purges.job_id = p_job_id;
    end if;
    return cardinality(v_run_ids);
end $$;

-- Go on with purges, the longest waiting first: so many runs of each at most. One whose runs are under way goes to the end, so that it holds up
-- no other. Returns how many runs were removed.
create or replace function duly.purge(p_limit integer) returns integer
language plpgsql {planned by index} as $$
declare
    v_job_id uuid;
    v_removed   integer := 0;
    v_runs   integer;
begin
    for v_job_id in select purges.job_id from duly.purges where not duly.is_held(purges.tenant, purges.job_id) order by purges.requested_at limit 1000 for update skip locked loop
        v_runs := duly.purge_history(v_job_id, p_limit);
        v_removed := v_removed + coalesce(v_runs, 0);
        if v_runs is null then
            update duly.purges set requested_at = duly.clock_now() where purges.job_id = v_job_id;
        end if;
        exit when v_removed >= 100 * p_limit;
    end loop;
    return v_removed;
end $$;

-- Purge definitions that have been over for longer than they are kept, so many at most. Returns how many these were.
create or replace function duly.purge_over(p_kept interval, p_limit integer) returns integer
language plpgsql {planned by index} as $$
declare
    v_before timestamptz := duly.clock_now() - p_kept;
    v_job    record;
    v_removed   integer := 0;
begin
    for v_job in select jobs.job_id, jobs.tenant from duly.jobs where jobs.state in ('completed', 'cancelled') and jobs.updated_at < v_before
                    and not duly.is_held(jobs.tenant, jobs.job_id)
                  order by jobs.updated_at limit p_limit for update skip locked loop
        v_removed := v_removed + duly.ask_purge(v_job.tenant, v_job.job_id)::integer;
    end loop;
    return v_removed;
end $$;

-- Purge a job that is over: its definition now, and as much of its history. False: it is not over.
create or replace function duly.purge_job(p_tenant integer, p_job_id uuid, p_limit integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    if (duly.is_tenant_session() and not duly.owns(p_job_id)) or not duly.ask_purge(p_tenant, p_job_id) then
        return false;
    end if;
    perform duly.purge_history(p_job_id, p_limit);
    return true;
end $$;

grant execute on function duly.purge_job to duly_api;
