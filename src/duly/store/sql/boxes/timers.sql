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
