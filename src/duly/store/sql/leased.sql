-- name: finish
select run_id, fence from duly.finish_v1($1, $2, $3, $4, $5, $6::text[]::jsonb[])

-- name: settle
select run_id, fence from duly.settle_v1($1, $2, $3, $4, $5, $6::text[]::duly.outcome[], $7::text[]::duly.state[], $8, $9, $10, $11,
                                         $12::text[]::jsonb[], $13::text[]::jsonb[], $14)

-- name: hand_back
select run_id, fence from duly.hand_back_v1($1, $2, $3)

-- name: held_by
-- What was claimed in the future was claimed before the clock was set back.
select ctid as place, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
       suspect, payload_stored, queue, handler, payload::text, options::text
  from duly.leased where worker_id = $1 and (claimed_at < duly.clock_now() - $2::interval or claimed_at > duly.clock_now())
 order by run_id limit $3

-- name: left_by
select ctid as place, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
       suspect, payload_stored, queue, handler, payload::text, options::text
  from duly.leased where worker_id = $1 order by run_id limit $2

-- name: orphans
-- Leased rows whose worker has no row any more: a belt, for what a reaper that died left behind.
select distinct worker_id from duly.leased where not exists (select from duly.workers where workers.worker_id = leased.worker_id) limit 100

-- name: already_settled
select attempts.run_id, attempts.fence from duly.attempts join unnest($1::uuid[], $2::bigint[]) as asked(run_id, fence)
    on attempts.run_id = asked.run_id and attempts.fence = asked.fence
 where attempts.outcome <> 'fenced' and attempts.worker_id = $3 and attempts.finished_at > duly.clock_now() - interval '2 days'
   and attempts.outcome <> 'lost'

-- name: record_fenced
-- Asked again after an unknown commit, it records nothing twice.
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became, queue, handler, worker_id, reason)
select run_id, job_id, scheduled_at, due_at, started_at, coalesce(finished_at, duly.clock_now()), fence, tenant, attempt, 'fenced', 'running',
       queue, handler, $1, reason
  from unnest($2::uuid[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::bigint[], $9::int[], $10::int[],
              $11::text[], $12::text[], $13::text[])
       as refused(run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, queue, handler, reason)
 where not exists (select from duly.attempts where attempts.run_id = refused.run_id and attempts.fence = refused.fence
                      and attempts.worker_id = $1 and attempts.outcome = 'fenced')

-- name: vacuum
vacuum (skip_locked, truncate off) duly.leased
