-- name: finish
select run_id, fence from duly.finish_v1($1, $2, $3, $4, $5, $6::text[]::jsonb[])

-- name: settle
select run_id, fence from duly.settle_v2($1, $2, $3, $4, $5, $6::text[]::duly.outcome[], $7::text[]::duly.state[], $8, $9, $10, $11,
                                         $12::text[]::jsonb[], $13::text[]::jsonb[], $14::text[]::jsonb[], $15)

-- name: hand_back
select run_id, fence from duly.hand_back_v1($1, $2, $3)

-- name: park
select run_id, fence from duly.park_v1($1, $2, $3, $4)

-- name: held_by
select ctid as place, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
       suspect, payload_stored, queue, handler, payload::text, options::text
  from duly.leased where worker_id = $1 and run_id > $3 order by run_id limit $2

-- name: orphans
-- Leased rows whose worker has no row any more: a belt, for what a reaper that died left behind. What waits for its receiver has none.
select distinct worker_id from duly.leased where worker_id <> duly.receiver() and not exists (select from duly.workers where workers.worker_id = leased.worker_id) limit 100

-- name: already_settled
select run_id, fence from duly.already_settled_v1($1, $2, $3)

-- name: record_fenced
select duly.record_fenced_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: vacuum
vacuum (skip_locked, truncate off) duly.leased

-- name: void_overstayed
select * from duly.void_overstayed_v1($1)
