-- name: definitions
select jobs.cohort, jobs.schedule::text, duly.calendars_of(jobs.tenant, jobs.schedule)::text
  from unnest($1::bigint[]) as requested(cohort) cross join lateral (
       select cohort, tenant, schedule from duly.jobs where jobs.cohort = requested.cohort and jobs.state in ('active', 'paused') limit 1) as jobs

-- name: pause
select duly.pause($1, $2, $3, $4, $5, $6)

-- name: give_reason
select duly.give_reason($1, $2, $3)

-- name: resume
select answer, duly.timed_by($1, $7)::text, case when answer = 'active' then duly.timed_anew($1, null)::text end from duly.resume($1, $2, $3, $4, $5, $6::text::jsonb) as answer

-- name: skip_next
select answer, moment, duly.timed_by($1, $7)::text from duly.skip_next($1, $2, $3, $4, $5, $6, $8::text::jsonb)

-- name: trigger
select run_id, answer from duly.trigger($1, $2, $3::text::jsonb, $4, $5)

-- name: retime
select job_id, duly.timed_by(job_id, $8)::text, duly.timed_anew(job_id, ($7::text[])[array_position($1, job_id)]::jsonb)::text
  from duly.retime($1, $2, $3, $4, $5, $6) as job_id

-- name: lane_work
-- Of each job the oldest backfill, so that they wait for each other too, and for the rate of the one before; and how many of its runs have
-- not begun.
select backfills.backfill_id, backfills.job_id, backfills.tenant, backfills.origin, backfills.state, backfills.from_at, backfills.to_at,
       backfills.cursor_at, backfills.rate, backfills.total, backfills.created, backfills.due_at, backfills.requested_at,
       backfills.schedule::text, backfills.every_seconds, backfills.anchor_at, backfills.calendars::text,
       (select count(*) from (select from duly.blocked where blocked.tenant = backfills.tenant and blocked.job_id = backfills.job_id
                                 and blocked.waits_for = 'concurrency'
                                 and blocked.key = coalesce(jobs.options->'concurrency'->>0, duly.lane_key(jobs.job_id, backfills.backfill_id, backfills.slots))
                               order by blocked.due_at, blocked.run_id limit 1000) as waiting),          -- In the order of the index, so that no other can serve.
       backfills.recovery_id is not null
  from duly.backfills join duly.jobs on jobs.job_id = backfills.job_id
 where backfills.state = 'active' and backfills.shard = any ($1) and backfills.due_at <= (select duly.clock_now())
   and backfills.backfill_id = (select oldest.backfill_id from duly.backfills as oldest where oldest.job_id = backfills.job_id
                                   and oldest.state = 'active' order by oldest.requested_at, oldest.backfill_id limit 1)
   and coalesce((select before.state <> 'done' or before.due_at <= duly.clock_now() from duly.backfills as before
                  where before.job_id = backfills.job_id and before.requested_at <= backfills.requested_at
                    and (before.requested_at, before.backfill_id) < (backfills.requested_at, backfills.backfill_id)
                  order by before.requested_at desc, before.backfill_id desc limit 1), true)
 order by backfills.due_at limit $2

-- name: lane_due
select min(due_at) from duly.backfills where state = 'active' and due_at > $1

-- name: create_backfills
select duly.backfill($1, $2, $3, $4, $5, $6, $7)

-- name: submit_backfill
select duly.submit_backfill($1, $2, $3, $4, $5, $6, $7, $8)

-- name: cancel_backfill
select duly.cancel_backfill($1)

-- name: tenant_of_backfill
select tenant from duly.backfills where backfill_id = $1

-- name: backfills
select backfill_id, job_id, tenant, origin, state, from_at, to_at, cursor_at, rate, total, created, due_at, requested_at from duly.backfills
 where $1::uuid is null or job_id = $1 order by requested_at desc, backfill_id limit $2

-- name: backfills_of_job
-- Of a tenant's job, the newest first, behind a position.
select backfill_id, job_id, state, origin, from_at, to_at, rate, total, created, requested_at from duly.backfills
 where tenant = $1 and job_id = $2 and (requested_at, backfill_id) < ($3, $4) order by requested_at desc, backfill_id desc limit $5

-- name: backfills_of_tenant
select backfill_id, job_id, state, origin, from_at, to_at, rate, total, created, requested_at from duly.backfills
 where tenant = $1 and (requested_at, backfill_id) < ($2, $3) order by requested_at desc, backfill_id desc limit $4

-- name: find_backfill
select backfill_id, job_id, state, origin, from_at, to_at, rate, total, created, requested_at from duly.backfills where tenant = $1 and backfill_id = $2

-- name: put_calendar
select duly.put_calendar($1, $2, $3::text::jsonb)

-- name: calendar_settled
select duly.calendar_settled($1, $2, $3::text::jsonb)

-- name: drop_calendar
select duly.drop_calendar($1, $2)

-- name: left_out
-- The last occurrence of each job that was requested to be left out, and that is yet to come.
select job_id, max(scheduled_at) from duly.attempts
 where job_id = any ($1::uuid[]) and reason = 'skipped_on_request' and scheduled_at > (select duly.clock_now()) group by job_id

-- name: calendars
select name, definition::text from duly.calendars where tenant = $1 and ($2::text[] is null or name = any ($2)) order by name

-- name: earlier_calendars
-- Earlier definitions of calendars by which some jobs are still timed, the newest first.
select name, earlier::text from duly.calendars where tenant = $1 and earlier is not null

-- name: using_calendar
select jobs.job_id, coalesce(jobs.name, jobs.job_id::text), timers.generation, timers.scheduled_at, timers.previous_scheduled_at,
       jobs.schedule::text, duly.created_at(jobs.job_id), duly.clock_now(), greatest(coalesce(jobs.timed_at, jobs.created_at), timers.previous_scheduled_at),
       timers.cohort
  from duly.jobs join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null and timers.runs_left is distinct from 0
 where jobs.tenant = $1 and jobs.state in ('active', 'paused') and ($3::uuid is null or jobs.job_id > $3)
   and jobs.schedule @> jsonb_build_object('calendars', jsonb_build_array(jsonb_build_object('name', $2::text)))
 order by jobs.job_id limit $4
