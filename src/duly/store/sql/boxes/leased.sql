-- name: finish
select is_all, run_ids, fences from duly.finish($1, $2, $3, $4, $5, $6::text[]::jsonb[])

-- name: settle
select run_id, fence from duly.settle($1, $2, $3, $4, $5, $6::text[]::duly.outcome[], $7::text[]::duly.state[], $8, $9, $10, $11,
                                         $12::text[]::jsonb[], $13::text[]::jsonb[], $14::text[]::jsonb[], $15)

-- name: hand_back
select run_id, fence from duly.hand_back($1, $2, $3)

-- name: await_destination
select run_id, fence from duly.await_destination($1, $2, $3, $4)

-- name: held_by
select ctid as tid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
       suspect, payload_stored, queue, handler, payload::text,
       case when (select exists (select from duly.redactions)) then duly.with_rules(options, tenant) else options end::text as options
  from duly.leased where worker_id = $1 and run_id > $3 order by run_id limit $2

-- name: orphans
-- Leased rows whose worker has no row any more: a safety net, for what a reaper that died left behind. What waits for its receiver has none.
select distinct worker_id from duly.leased where worker_id <> duly.receiver() and not exists (select from duly.workers where workers.worker_id = leased.worker_id) limit 100

-- name: already_settled
select run_id, fence from duly.already_settled($1, $2, $3)

-- name: record_fenced
select duly.record_fenced($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: vacuum
vacuum (skip_locked, truncate off) duly.leased

-- name: is_hollow
-- Return whether it takes more than so many bytes on the disk, nearly empty, and nothing has passed through since it was vacuumed.
select pg_table_size('duly.leased') > $1 and pg_stat_get_dead_tuples('duly.leased'::regclass) < 1000
       and (select count(*) from (select from duly.leased order by run_id limit 1000) as first) < 1000

-- name: shorten
vacuum (skip_locked, truncate on) duly.leased

-- name: void_overstayed
select * from duly.void_overstayed($1)
