-- name: submit
select job_id, scheduled_at, replayed, needs_hint from duly.submit_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: submit_alike
select job_id, scheduled_at, replayed, needs_hint from duly.submit_alike($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: submit_one
select job_id, scheduled_at, replayed, needs_hint from duly.submit_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: purge_job
select duly.purge_job($1, $2, $3)

-- name: change_one_shot
select duly.change_one_shot($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: create_one_shot
select job_id, scheduled_at, replayed, needs_hint from duly.create_one_shot($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- name: create_one_shots
select job_id, scheduled_at, replayed, needs_hint from duly.create_one_shots($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)

-- name: submit_checked
select job_id, scheduled_at, replayed, needs_hint from duly.submit_checked($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: submit_subtasks
select job_id, scheduled_at, replayed, needs_hint from duly.submit_subtasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: prepare
-- A job's id is a run's name, from its key: repeated in the same moment, it is the same. What was submitted under the key
-- before comes with it.
select duly.run_id(clock.now, duly.batch_name($1, $2, clock.now) || '0'), clock.now,
       (select jsonb_object_agg(name, definition)::text from duly.calendars where tenant = $1 and name = any ($3::text[])),
       idempotency_keys.job_id, idempotency_keys.scheduled_at, duly.created_at(idempotency_keys.job_id), duly.least_period($1)
  from (select duly.clock_now() as now offset 0) as clock
  left join duly.idempotency_keys on idempotency_keys.tenant = $1 and idempotency_keys.key = $2 and idempotency_keys.expires_at > clock.now and idempotency_keys.body_hash = $4

-- name: least_period
select null::uuid, duly.least_period($1)

-- name: submit_schedule
select job_id, scheduled_at, replayed, case when not replayed then duly.timed_by(job_id, $25)::text end from duly.submit_schedule(
    $1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb, $10, $11, $12::text::jsonb, $13::text::jsonb, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)

-- name: edit
select answer, floor, case when answer = 'edited' then duly.timed_by($1, $28)::text end,
       case when answer = 'edited' and $15::timestamptz is not null then duly.timed_anew($1, null)::text end from duly.edit(
    $1, $2, $3, $4, $5, $6, $7::text::jsonb, $8, $9, $10::text::jsonb, $11::text::jsonb, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
    $23, $24, $25, $26::text::jsonb, $27)

-- name: cancel_schedule
-- The next-fire timer is the job's mutex: it is deleted first. No row: it is being staged at this moment, has moved on, or there is none.
select job_id from duly.cancel_schedule($1, $2, $3::text::jsonb) as job_id

-- name: waiting_runs
-- Those that are in a box and not leased, up to a limit.
select run_id from duly.ready where job_id = $1 and run_id <> job_id
union all select run_id from duly.blocked where job_id = $1 and run_id <> job_id
union all select run_id from duly.timers where job_id = $1 and run_id is not null and run_id <> job_id
limit $2

-- name: waiting_outside
-- Of those the ones that hold no slot and are not in FIFO order (cancel).
select run_id from duly.ready where job_id = $1 and run_id <> job_id and (options is null or not options ? 'concurrency')
union all select run_id from duly.blocked where job_id = $1 and run_id <> job_id and (options is null or not options ?| array['has_slot', 'fifo'])
union all select run_id from duly.timers where job_id = $1 and run_id is not null and run_id <> job_id
                                           and (options is null or not options ?| array['has_slot', 'fifo'])
limit $2

-- name: leased_runs
select run_id from duly.leased where job_id = $1

-- name: due_unstarted
-- First attempts that are due and have not started: they wait in their queue, for a concurrency key or a rate, or with their worker.
select run_id from duly.ready where job_id = $1 and run_id <> job_id and attempt = 0 and due_at <= duly.clock_now()
union all select run_id from duly.blocked where job_id = $1 and run_id <> job_id and attempt = 0 and due_at <= duly.clock_now()
union all select run_id from duly.leased where job_id = $1 and run_id <> job_id and attempt = 1 and due_at <= duly.clock_now()
                                           and duly.is_unstarted(run_id, worker_id, due_at, duly.clock_now())
limit $2

-- name: leased_ahead
-- With a worker, and known not to have started.
select run_id from duly.leased where job_id = $1 and duly.is_unstarted(run_id, worker_id, due_at, duly.clock_now())

-- name: find
select jobs.job_id, jobs.tenant, jobs.name, jobs.state, jobs.queue, jobs.handler, jobs.priority, jobs.generation, jobs.every_seconds, jobs.anchor_at,
       jobs.cohort, jobs.schedule::text as schedule, jobs.owner, jobs.source, jobs.pause_reason, jobs.paused_at, jobs.removed_at,
       jobs.failures, exists (
           select from duly.leased where leased.attempt = 1
              and leased.run_id in (timers.last_run_id, duly.occurrence_id(jobs.job_id, timers.previous_scheduled_at, 'schedule'))) as has_leased_run,
       coalesce(jobs.payload, payloads.body)::text as payload, jobs.options::text as options,
       array(select jsonb_array_elements_text(jobs.options->'tags')) as tags, jobs.created_at, duly.next_run_at(timers, duly.clock_now()) as next_run_at,
       duly.rules_above(jobs.tenant) as redact_above,
       timers.scheduled_at as pending_at, timers.previous_scheduled_at, greatest(coalesce(jobs.timed_at, jobs.created_at), timers.previous_scheduled_at) as accountable_from, timers.runs_left,
       duly.least_period(jobs.tenant) as least_period, duly.clock_now() as read_at
  from duly.jobs left join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null
  left join duly.payloads on payloads.job_id = jobs.job_id and payloads.generation = jobs.generation
 where jobs.job_id = $1

-- name: versions
-- Of a tenant's job, the newest first, behind a version. The current one is among them.
select versions.*, duly.rules_above($1) as redact_above from (
    select jobs.generation, coalesce((select replaced_at from duly.job_versions as before
                                       where before.job_id = jobs.job_id and before.generation = jobs.generation - 1), jobs.created_at) as created_at,
           null::timestamptz as replaced_at, jobs.name, jobs.owner, jobs.source, jobs.queue, jobs.handler, jobs.priority, jobs.every_seconds,
           jobs.anchor_at, jobs.schedule::text as schedule, coalesce(jobs.payload, payloads.body)::text as payload, jobs.options::text as options
      from duly.jobs left join duly.payloads on payloads.job_id = jobs.job_id and payloads.generation = jobs.generation
     where jobs.tenant = $1 and jobs.job_id = $2
    union all
    select version.generation, version.created_at, version.replaced_at, version.name, version.owner, version.source, version.queue, version.handler,
           version.priority, version.every_seconds, version.anchor_at, version.schedule::text, coalesce(version.payload, payloads.body)::text,
           version.options::text
      from duly.job_versions as version left join duly.payloads on payloads.job_id = version.job_id and payloads.generation = version.generation
     where version.tenant = $1 and version.job_id = $2) as versions
 where generation < $3 order by generation desc limit $4
