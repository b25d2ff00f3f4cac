-- name: job_by_name
select job_id, name, state, handler, every_seconds, anchor_at from duly.jobs
 where tenant = $1 and name = $2 and state in ('active', 'paused')

-- name: arguments
-- A payload is in the row, or in payloads when it is large; that of a schedule's run is with the job.
select coalesce(found.payload, payloads.body)::text as payload, found.options::text as options, found.generation, true as is_kept,
       duly.rules_above(found.tenant) as redact_above
  from (select job_id, tenant, generation, payload, options from duly.timers where run_id = $1
        union all select job_id, tenant, generation, payload, options from duly.blocked where run_id = $1
        union all select job_id, tenant, generation, payload, options from duly.ready where run_id = $1
        union all select job_id, tenant, generation, payload, options from duly.leased where run_id = $1
        union all select job_id, tenant, generation, payload, options from duly.dead where run_id = $1) as found
  left join duly.payloads on payloads.job_id = found.job_id and payloads.generation = found.generation
 limit 1

-- name: kept_arguments
-- Of a run that has ended, from the record of its end. A payload that stood among the payloads is read there while it is kept.
select coalesce(ended.payload, payloads.body)::text as payload,
       case when num_nonnulls(ended.options, ended.metadata) > 0 then (coalesce(ended.options, '{}') || coalesce(ended.metadata, '{}'))::text end as options,
       coalesce(ended.generation, 1) as generation, coalesce(ended.payload, payloads.body) is not null as is_kept,
       duly.rules_above(ended.tenant) as redact_above
  from (select job_id, tenant, payload, payload_stored, options, metadata, generation from duly.attempts
         where run_id = $1 and became in ('succeeded', 'cancelled', 'expired', 'skipped') and outcome <> 'fenced'
         order by attempt desc, finished_at desc limit 1) as ended
  left join duly.payloads on ended.payload_stored and payloads.job_id = ended.job_id and payloads.generation = coalesce(ended.generation, 1)

-- name: payload_previews
-- The beginning of the payloads of some runs; one character more than requested shows that a payload was cut. The moment at which
-- a run ended leads to the partition of its last attempt.
with requested as (select * from unnest($1::uuid[], $2::timestamptz[]) as one(run_id, finished_at)),
slots as (
    select timers.run_id, timers.job_id, timers.generation, timers.payload, timers.tenant, timers.options, true as is_stored from requested join duly.timers using (run_id)
    union all select blocked.run_id, blocked.job_id, blocked.generation, blocked.payload, blocked.tenant, blocked.options, true from requested join duly.blocked using (run_id)
    union all select ready.run_id, ready.job_id, ready.generation, ready.payload, ready.tenant, ready.options, true from requested join duly.ready using (run_id)
    union all select leased.run_id, leased.job_id, leased.generation, leased.payload, leased.tenant, leased.options, true from requested join duly.leased using (run_id)
    union all select dead.run_id, dead.job_id, dead.generation, dead.payload, dead.tenant, dead.options, true from requested join duly.dead using (run_id)
    union all select requested.run_id, ended.job_id, coalesce(ended.generation, 1), ended.payload, ended.tenant, ended.options, ended.payload_stored
                from requested cross join lateral (
                    select job_id, generation, payload, tenant, options, payload_stored from duly.attempts
                     where attempts.run_id = requested.run_id and attempts.finished_at = requested.finished_at
                       and became in ('succeeded', 'cancelled', 'expired', 'skipped') and outcome <> 'fenced'
                     order by attempt desc limit 1) as ended)
select run_id, left(duly.redacted(coalesce(slots.payload, payloads.body),
                                  coalesce(slots.options->'redact', '[]') || coalesce(above.rules, '[]'))::text, $3::integer + 1) as payload
  from slots cross join (select to_jsonb(duly.rules_above((select tenant from slots limit 1))) as rules offset 0) as above
  left join duly.payloads
    on slots.payload is null and is_stored and payloads.job_id = slots.job_id and payloads.generation = slots.generation
 where coalesce(slots.payload, payloads.body) is not null

-- name: finished_of_job
-- Of a schedule. Its successes by its last runs, all else by when it ended; the overlap is for rows that were committed after later ones.
select run_id, attempt, fence, scheduled_at, due_at, started_at, finished_at, outcome::text, became::text, reason
  from ((select * from duly.attempts_succeeded where job_id = $1 and run_id <> job_id order by job_id desc, run_id desc limit 100)
        union all
        (select * from duly.attempts_failed where job_id = $1 and run_id <> job_id and finished_at > $2::timestamptz - interval '5 seconds'
          order by finished_at limit 100)) as ended
 where finished_at > $2::timestamptz - interval '5 seconds' order by finished_at limit 100

-- name: next_due
-- The first timer that is not staged, by one look into each shard; a fire that is postponed because of an overload is not late.
with overloads as materialized (select duly.overloaded() as found)
select duly.clock_now(), min(first.due_at) from generate_series(0, 63) as slice(shard) cross join lateral (
    select due_at from duly.timers, overloads
     where timers.shard = slice.shard and not duly.is_postponed(overloads.found, timers.priority, timers.run_id, timers.tenant, timers.queue)
     order by due_at limit 1) as first

-- name: backlog
-- Return whether the installation can work: live workers and schedulers, and how far staging and reaping are; not the length of a backlog.
with overloads as materialized (select duly.overloaded() as found)
select duly.clock_now() as read_at,
       (select count(*) from duly.workers where until > duly.clock_now()) as workers,
       (select count(*) from duly.shards join duly.schedulers on scheduler_id = holder and until > duly.clock_now()) as shards,
       (select min(first.due_at) from generate_series(0, 63) as slice(shard) cross join lateral (
            select due_at from duly.timers, overloads
             where timers.shard = slice.shard and not duly.is_postponed(overloads.found, timers.priority, timers.run_id, timers.tenant, timers.queue)
             order by due_at limit 1) as first) as next_due_at,
       (select done_at from duly.maintenance_tasks where name = 'reap') as reaped_at,
       current_setting('transaction_read_only') = 'on' as is_read_only
