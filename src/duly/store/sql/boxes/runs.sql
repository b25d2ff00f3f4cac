-- name: cancel
select * from duly.cancel($1, $2)

-- name: signal
select * from duly.signal($1, $2)

-- name: replay
select * from duly.replay($1, $2, $3)

-- name: expire
select * from duly.expire($1)

-- name: look
-- The database's time, always; and news for the worker, if any: its signals, everything that is paused or
-- limited, and that it is to take nothing more.
select duly.clock_now() as read_at, signals.run_id, signals.fence, signals.kind, null::integer as tenant, null::text as queue, null::integer as slots
  from (select 1) as one left join duly.signals on signals.worker_id = $1
union all
select duly.clock_now(), null, null, 'pause', tenant, queue, null from duly.pauses
union all
select duly.clock_now(), null, null, 'limit', tenant, queue, slots from duly.limits
union all
select duly.clock_now(), null, null, 'drain', null, null, null from duly.workers where worker_id = $1 and draining_at is not null

-- name: drop_signals
delete from duly.signals using unnest($2::uuid[], $3::bigint[], $4::text[]) as handled(run_id, fence, kind)
 where signals.worker_id = $1 and signals.run_id = handled.run_id and signals.fence = handled.fence and signals.kind = handled.kind

-- name: has_held
select exists (select from duly.leased where job_id = $1 and attempt = 1)

-- name: may_start
select exists (select from duly.leased where run_id = any ($1) and duly.may_start(run_id, worker_id, due_at))

-- name: are_due_after
select exists (select from duly.leased where run_id = any ($1) and due_at > $2)

-- name: recall
select run_id, fence, sent_at from duly.recall($1, $2)

-- name: unanswered
select run_id from duly.unanswered($1, $2) as run_id

-- name: put_back
select run_id, queue from duly.put_back($1, $2, $3)

-- name: carry_out
select run_id, answer from duly.carry_out()

-- name: find_live
select run_id, job_id, tenant, state::text, queue, handler, priority, attempt, scheduled_at, due_at, worker_id, fence, reason,
       (select duly.metadata_of(options)::text
          from (select options from duly.timers where run_id = $1 union all select options from duly.blocked where run_id = $1
                union all select options from duly.ready where run_id = $1 union all select options from duly.leased where run_id = $1
                union all select options from duly.dead where run_id = $1) as found limit 1) as metadata
  from duly.live_runs where run_id = $1

-- name: find_lease
select worker_id, fence, claimed_at from duly.leased where run_id = $1

-- name: find_attempts
select run_id, job_id, tenant, attempt, outcome::text, became::text, queue, handler, scheduled_at, due_at, started_at, finished_at, fence, worker_id,
       reason, result::text, detail::text, metadata::text, case when became in ('succeeded', 'cancelled', 'expired') then coalesce(priority, 5) else priority end as priority
  from duly.attempts where run_id = $1 order by attempt, finished_at limit 1000

-- name: discard
select * from duly.discard($1)

-- name: edit_dead
select * from duly.edit_dead($1, $2, $3::text::jsonb)

-- name: payloads
select job_id, generation, body::text from duly.payloads join unnest($1::uuid[], $2::int[]) as requested(job_id, generation) using (job_id, generation)

-- name: redacted_by
-- The rules of a run that a worker holds, and its payload; nothing where there are no rules.
select (held.options->'redact')::text, coalesce(held.payload, payloads.body)::text
  from (select job_id, generation, payload, duly.with_rules(options, tenant) as options from duly.leased where run_id = $1) as held
  left join duly.payloads on payloads.job_id = held.job_id and payloads.generation = held.generation
 where held.options ? 'redact'

-- name: checkpoints
select run_id, body::text from duly.checkpoints where run_id = any ($1::uuid[])

-- name: save_checkpoint
select * from duly.save_checkpoint($1, $2, $3, $4)

-- name: checkpoint_size
select fence, saved_at, coalesce(bytes, octet_length(body::text)) as bytes from duly.checkpoints where run_id = $1

-- name: read_checkpoint
select fence, saved_at, coalesce(bytes, octet_length(body::text)) as bytes, body::text from duly.checkpoints where run_id = $1

-- name: save_progress
select * from duly.save_progress($1, $2, $3, $4, $5, $6)

-- name: save_progresses
select duly.save_progresses($1, $2, $3, $4, $5, $6)

-- name: read_progress
select done, total, note, updated_at from duly.progress where run_id = $1

-- name: is_over
select not exists (select from duly.timers where run_id = $1) and not exists (select from duly.blocked where run_id = $1)
   and not exists (select from duly.ready where run_id = $1) and not exists (select from duly.leased where run_id = $1)

-- name: live_subtasks
select * from duly.live_subtasks($1, $2, $3)

-- name: append_logs
select duly.append_logs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: read_logs
select attempt, number, logged_at, level, message, fields from duly.read_logs($1, $2, $3)
