-- name: submit
select job_id, scheduled_at, replayed from duly.submit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: submit_one
select job_id, scheduled_at, replayed from duly.submit_one_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: submit_schedule
select job_id, scheduled_at, replayed from duly.submit_schedule_v1($1, $2, $3, $4, $5::text::jsonb, $6, $7, $8, $9, $10::text::jsonb)

-- name: cancel_schedule
-- The next-fire timer is the job's mutex: it is deleted first. No row: it is being staged at this moment, or there is none.
with mutex as (
    delete from duly.timers where job_id = $1 and run_id is null returning job_id)
update duly.jobs set state = 'cancelled', updated_at = duly.clock_now()
  from mutex where jobs.job_id = mutex.job_id and jobs.state in ('active', 'paused')
returning jobs.job_id

-- name: staged_runs
select run_id from duly.ready where job_id = $1
union all select run_id from duly.leased where job_id = $1
union all select run_id from duly.blocked where job_id = $1
union all select run_id from duly.timers where job_id = $1 and run_id is not null and run_id <> job_id

-- name: held_ahead
-- In a worker's hands, and not started: nothing starts before it is due.
select run_id from duly.leased where job_id = $1 and due_at > duly.clock_now()

-- name: find
select jobs.job_id, jobs.tenant, jobs.name, jobs.state, jobs.queue, jobs.handler, jobs.priority, jobs.every_seconds, jobs.anchor_at,
       coalesce(jobs.payload, payloads.body)::text as payload, jobs.options::text as options, jobs.created_at, timers.scheduled_at as next_run_at
  from duly.jobs left join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null
  left join duly.payloads on payloads.job_id = jobs.job_id and payloads.generation = jobs.generation
 where jobs.job_id = $1

-- name: page
-- Keyset order, newest first.
select jobs.job_id, jobs.tenant, jobs.name, jobs.state, jobs.queue, jobs.handler, jobs.priority, jobs.every_seconds, jobs.anchor_at,
       null::text as payload, jobs.options::text as options, jobs.created_at, timers.scheduled_at as next_run_at
  from duly.jobs left join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null
 where jobs.tenant = $1 and ($2::uuid is null or jobs.job_id < $2) and ($3::text is null or jobs.state = $3)
 order by jobs.job_id desc limit $4
