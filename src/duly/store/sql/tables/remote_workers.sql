-- Operations of workers over HTTP, each in a session of its tenant; only `foresee` runs outside of one, and names the tenant itself.

-- name: register
select duly.api_register_worker($1, $2, $3, $4, $5, $6, $7, $8)

-- name: foresee
select duly.foresee($1, $2)

-- name: claim
select tid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
       suspect, payload_stored, queue, handler, payload::text,
       duly.with_rules(options, tenant)::text as options, claimed_at
  from (select $1::uuid as worker_id where not duly.is_draining($1)) as us cross join lateral duly.api_claim(us.worker_id, $2, $3)

-- name: renew
select lease, cancel_runs, cancel_fences, lost_runs, lost_fences from duly.api_renew($1, $2, $3, $4)

-- name: held
select tid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
       suspect, payload_stored, queue, handler, payload::text,
       duly.with_rules(options, tenant)::text as options, claimed_at
  from duly.api_held($1, $2, $3)

-- name: refuse
select duly.api_refuse($1, $2, $3, $4)

-- name: append_logs
select duly.api_append_logs($1, $2, $3, $4, $5, $6::text[]::jsonb[], $7)
