-- name: put
select run_id, fence from duly.await($1, $2, $3, $4, $5)

-- name: cancel_awaited
select * from duly.cancel_awaited($1, $2)

-- name: find
-- One attempt that is under way, by run and fence; leased by its receiver, or still by the worker that receives its response.
select leased.ctid as tid, leased.fence, leased.run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority,
       losses, suspect, payload_stored, queue, handler, payload::text, duly.with_rules(options, tenant)::text as options, leased.worker_id,
       coalesce(awaited.started_at, greatest(due_at, claimed_at)) as started_at, awaited.deadline_at
  from duly.leased left join duly.awaited on awaited.run_id = leased.run_id and awaited.fence = leased.fence
 where leased.run_id = $1 and leased.fence = $2

-- name: overdue
select tid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
       payload_stored, queue, handler, payload::text, duly.with_rules(options, tenant)::text as options, worker_id, started_at, deadline_at
  from duly.overdue($1)

-- name: close
delete from duly.awaited where run_id = $1 and fence = $2

-- name: forget
select * from duly.forget_awaited($1)

-- name: extend
-- Only what is leased by its receiver, and in time; the deadline moves both ways.
update duly.awaited set deadline_at = duly.clock_now() + $3::interval
 where run_id = $1 and fence = $2 and deadline_at > duly.clock_now()
   and exists (select from duly.leased where leased.run_id = awaited.run_id and leased.fence = awaited.fence and leased.worker_id = duly.receiver())
returning deadline_at

-- name: ended
select outcome::text, became::text, attempt from duly.attempts where run_id = $1 and fence = $2 and outcome <> 'fenced' order by finished_at limit 1
