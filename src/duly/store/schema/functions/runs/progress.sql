-- Progress, checkpoint and log of a run under way. docs/decisions/0014-progress-logs-subtasks-and-cancel.md says why.

-- Save the progress of several runs of a worker. In the order of their ids, so that two writers of the same rows cannot deadlock.
create or replace function duly.save_progresses(
    p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_done double precision[], p_totals double precision[], p_notes text[]) returns void
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
begin
    insert into duly.progress (run_id, fence, done, total, note, updated_at)
    select reported.run_id, reported.fence, reported.done, reported.total, reported.note, duly.clock_now()
      from unnest(p_run_ids, p_fences, p_done, p_totals, p_notes) as reported(run_id, fence, done, total, note)
      join duly.leased on leased.run_id = reported.run_id and leased.fence = reported.fence and (leased.worker_id = p_worker_id) is true
     order by reported.run_id
    on conflict (run_id) do update set fence = excluded.fence, done = excluded.done, total = excluded.total, note = excluded.note,
                                       updated_at = excluded.updated_at
     where progress.fence <= excluded.fence;
end $$;

-- Store log lines of a worker's runs, each while the worker holds the lease it was written under: of a run that was settled, or taken away
-- from the worker, nothing is added. The leases are locked, so that a settle waits for the lines of its run, and lines that wait for a
-- settle are refused after it. p_is_retry: some of the lines may be kept already, and each is looked up by its number, not joined.
create or replace function duly.append_logs(
    p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_attempts integer[], p_numbers integer[], p_moments timestamptz[],
    p_levels text[], p_messages text[], p_fields text[], p_is_retry boolean) returns void
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
begin
    insert into duly.logs (run_id, attempt, number, logged_at, level, message, fields)
    select held.run_id, held.attempt, held.number, held.logged_at, held.level, held.message, held.fields::jsonb from (
        select line.run_id, line.attempt, line.number, line.logged_at, line.level, line.message, line.fields
          from unnest(p_run_ids, p_fences, p_attempts, p_numbers, p_moments, p_levels, p_messages, p_fields)
               as line(run_id, fence, attempt, number, logged_at, level, message, fields)
          join duly.leased on leased.run_id = line.run_id and leased.fence = line.fence and (leased.worker_id = p_worker_id) is true
         order by line.run_id, line.number for key share of leased) as held
     where not (p_is_retry and coalesce((
        select true from duly.logs where logs.run_id = held.run_id and logs.attempt = held.attempt and logs.number = held.number limit 1), false));
end $$;

-- `(…) is true` keeps the planner from walking all of a worker's leases to find one; likewise below.
create or replace function duly.save_progress(
    p_run_id uuid, p_fence bigint, p_worker_id uuid, p_done double precision, p_total double precision, p_note text) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    insert into duly.progress (run_id, fence, done, total, note, updated_at)
    select run_id, fence, p_done, p_total, p_note, duly.clock_now() from duly.leased
     where run_id = p_run_id and fence = p_fence and (worker_id = p_worker_id) is true and duly.is_ours(tenant) and duly.speaks_for(p_worker_id)
    on conflict (run_id) do update set fence = excluded.fence, done = excluded.done, total = excluded.total, note = excluded.note,
                                       updated_at = excluded.updated_at
     where progress.fence <= excluded.fence
    returning run_id;
end $$;

create or replace function duly.save_checkpoint(p_run_id uuid, p_fence bigint, p_worker_id uuid, p_body text) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    insert into duly.checkpoints (run_id, fence, body, saved_at, bytes)
    select run_id, fence, p_body::jsonb, duly.clock_now(), octet_length(p_body) from duly.leased
     where run_id = p_run_id and fence = p_fence and (worker_id = p_worker_id) is true and duly.is_ours(tenant) and duly.speaks_for(p_worker_id)
    on conflict (run_id) do update set fence = excluded.fence, body = excluded.body, saved_at = excluded.saved_at, bytes = excluded.bytes
     where checkpoints.fence <= excluded.fence
    returning run_id;
end $$;

-- Store log lines for the holder of a lease, so many for each attempt, and say how many were kept; null: the lease is lost. The lease is
-- locked, so that two requests do not give two lines one number.
create or replace function duly.api_append_logs(
    p_run_id uuid, p_fence bigint, p_worker_id uuid, p_levels text[], p_messages text[], p_fields jsonb[], p_lines_max integer)
returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
declare
    v_attempt integer;
    v_last    integer;
begin
    select leased.attempt into v_attempt from duly.leased
     where leased.run_id = p_run_id and leased.fence = p_fence and (leased.worker_id = p_worker_id) is true and duly.is_ours(leased.tenant)
       and duly.is_our_worker(p_worker_id)
       for no key update;
    if not found then
        return null;
    end if;
    select coalesce(max(logs.number), 0) into v_last from duly.logs where logs.run_id = p_run_id and logs.attempt = v_attempt;
    with kept as (
        insert into duly.logs (run_id, attempt, number, logged_at, level, message, fields)
        select p_run_id, v_attempt, v_last + line.number, duly.clock_now(), line.level, line.message, line.fields
          from unnest(p_levels, p_messages, p_fields) with ordinality as line(level, message, fields, number)
         where v_last + line.number <= p_lines_max
        returning logs.number)
    select count(*) into v_last from kept;
    return v_last;
end $$;

-- A run's log, read after a line. The tenant is checked once, and not for every line.
create or replace function duly.read_logs(p_run_id uuid, p_attempt integer, p_number integer)
returns table (attempt integer, number integer, logged_at timestamptz, level text, message text, fields text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
#variable_conflict use_column
begin
    if duly.is_tenant_session() and not duly.owns(p_run_id) then
        return;
    end if;
    return query
    select attempt, number, logged_at, level, message, fields::text from duly.logs
     where run_id = p_run_id and (attempt, number) > (p_attempt, p_number) order by attempt, number limit 1000;
end $$;

grant execute on function duly.save_progress, duly.save_checkpoint, duly.api_append_logs, duly.read_logs to duly_api;
