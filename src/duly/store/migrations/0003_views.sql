-- A run's state for people: one row per run that still lives in a box. Finished runs are read from attempts.
create view duly.live_runs as
    select run_id, job_id, tenant, case when attempt > 0 then 'retrying' else 'scheduled' end::duly.state as state,
           queue, handler, priority, attempt, scheduled_at, due_at, null::uuid as worker_id, null::bigint as fence, null::text as reason
      from duly.timers where run_id is not null
    union all
    select run_id, job_id, tenant, 'blocked', queue, handler, priority, attempt, scheduled_at, due_at, null, null, 'gate ' || gate
      from duly.blocked
    union all
    select run_id, job_id, tenant, case when attempt > 0 then 'retrying' else 'ready' end::duly.state,
           queue, handler, priority, attempt, scheduled_at, due_at, null, null, null
      from duly.ready
    union all
    select run_id, job_id, tenant, case when due_at > duly.clock_now() then 'ready' else 'running' end::duly.state,     -- Claimed ahead of due.
           queue, handler, priority, attempt, scheduled_at, due_at, worker_id, fence, null
      from duly.leased
    union all
    select run_id, job_id, tenant, 'dead', queue, handler, priority, attempt, scheduled_at, due_at, null, null, reason
      from duly.dead;
