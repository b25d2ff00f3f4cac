-- name: due_fires
select cohort, scheduled_at, late, read_at from duly.due_cohorts_v1($1, $2, $3)

-- name: due_accounts
select cohort, scheduled_at, since from duly.due_accounts_v1($1, $2, $3, $4, $5, $6)

-- name: stage
select staged, next_due_at, read_at from duly.stage_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::text[]::jsonb[], $14::text[]::jsonb[], $15)

-- name: due_ids
-- What falls due within the horizon in these shards, by run or, of a next fire, by job; of each shard the oldest.
select coalesce(t.run_id, t.job_id) from unnest($1::smallint[]) as held(shard) cross join lateral (
    select run_id, job_id, due_at from duly.timers where timers.shard = held.shard and due_at <= duly.clock_now() + $2::interval
     order by due_at limit $3) as t
 order by t.due_at
