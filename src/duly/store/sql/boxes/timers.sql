-- name: due_fires
select cohort, scheduled_at, late, read_at from duly.due_cohorts($1, $2, $3)

-- name: due_accounts
select cohort, scheduled_at, since from duly.due_accounts($1, $2, $3, $4, $5, $6)

-- name: stage
select staged, next_due_at, read_at from duly.stage($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::text[]::jsonb[], $14::text[]::jsonb[], $15, $16)

-- name: due
-- Timers of a shard that fall due within the horizon, after a position, by run or, of a next fire, by job.
select due_at, coalesce(run_id, job_id) from duly.timers
 where shard = $1::smallint and due_at <= (select duly.clock_now() + $2::interval) and due_at >= $3 and (due_at, coalesce(run_id, job_id)) > ($3, $4)
 order by due_at, coalesce(run_id, job_id) limit $5

-- name: due_runs
-- The first runs that fall due within the horizon, of each shard, and the trace that each belongs to: for traces alone.
select coalesce(due.run_id, duly.occurrence_id(due.job_id, due.scheduled_at, 'schedule')) as run_id, due.job_id, due.queue, due.handler, due.tenant,
       due.options->>'traceparent' as traceparent, coalesce(due.options ? 'node', false) or due.run_id = due.job_id as is_one_shot
  from unnest($1::smallint[]) as held(shard) cross join lateral (
       select run_id, job_id, scheduled_at, queue, handler, tenant, options from duly.timers
        where timers.shard = held.shard and timers.due_at <= (select duly.clock_now() + $2::interval) order by due_at limit $3) as due
