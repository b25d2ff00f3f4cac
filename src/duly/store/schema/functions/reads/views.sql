-- Views of the boxes. In a file of their own, because writing a view anew waits for its readers: that is
-- done only when this text changes. They have the rights of the caller, so that row-level security holds.

-- A run's state for people: one row per run that still lives in a box. Finished runs are read from attempts.
create or replace view duly.live_runs with (security_invoker = true) as
    select run_id, job_id, tenant, case when attempt > 0 then 'retrying' else 'scheduled' end::duly.state as state,
           queue, handler, priority, attempt, scheduled_at, due_at, null::uuid as worker_id, null::bigint as fence, null::text as reason
      from duly.timers where run_id is not null
    union all
    select run_id, job_id, tenant, 'blocked', queue, handler, priority, attempt, scheduled_at, due_at, null, null, duly.wait_text(waits_for, key, options)
      from duly.blocked
    union all
    select run_id, job_id, tenant, case when attempt > 0 then 'retrying' else 'ready' end::duly.state,
           queue, handler, priority, attempt, scheduled_at, due_at, null, null, null
      from duly.ready
    union all
    select run_id, job_id, tenant, duly.held_state(run_id, worker_id, due_at)::duly.state,
           queue, handler, priority, attempt, scheduled_at, due_at, worker_id, fence, null
      from duly.leased
    union all
    select run_id, job_id, tenant, 'dead', queue, handler, priority, attempt, scheduled_at, due_at, null, null, reason
      from duly.dead;

-- The runs of each box, and of history those that have ended, as lists show them: all alike, so that they can be read side by side.
create or replace view duly.listed_timers with (security_invoker = true) as
    select tenant, run_id, job_id, case when attempt > 0 then 'retrying' else 'scheduled' end as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, null::uuid as worker_id, null::bigint as fence,
           null::text as reason, null::jsonb as detail, options as metadata
      from duly.timers where run_id is not null;

create or replace view duly.listed_blocked with (security_invoker = true) as
    select tenant, run_id, job_id, 'blocked'::text as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, null::uuid as worker_id, null::bigint as fence,
           duly.wait_text(waits_for, key, options) as reason, null::jsonb as detail, options as metadata
      from duly.blocked;

create or replace view duly.listed_ready with (security_invoker = true) as
    select tenant, run_id, job_id, case when attempt > 0 then 'retrying' else 'ready' end as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, null::uuid as worker_id, null::bigint as fence,
           null::text as reason, null::jsonb as detail, options as metadata
      from duly.ready;

create or replace view duly.listed_leased with (security_invoker = true) as
    select tenant, run_id, job_id, duly.held_state(run_id, worker_id, due_at) as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, worker_id, fence,
           null::text as reason, null::jsonb as detail, options as metadata
      from duly.leased;

create or replace view duly.listed_dead with (security_invoker = true) as
    select tenant, run_id, job_id, 'dead'::text as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, buried_at as finished_at, null::uuid as worker_id, null::bigint as fence,
           reason, null::jsonb as detail, options as metadata
      from duly.dead;

create or replace view duly.listed_succeeded with (security_invoker = true) as
    select tenant, run_id, job_id, 'succeeded'::text as state, queue, handler, priority, attempt, scheduled_at, due_at,
           started_at, finished_at, worker_id, fence, reason, detail, metadata
      from duly.attempts_succeeded;

create or replace view duly.listed_ended with (security_invoker = true) as
    select tenant, run_id, job_id, became::text as state, queue, handler, priority, attempt, scheduled_at, due_at,
           started_at, finished_at, worker_id, fence, reason, detail, metadata
      from duly.attempts_failed where became in ('cancelled', 'expired', 'skipped');

grant select on duly.live_runs, duly.listed_timers, duly.listed_blocked, duly.listed_ready, duly.listed_leased, duly.listed_dead,
                duly.listed_succeeded, duly.listed_ended to duly_api;
