-- name: record_staging
select recovery_id, state, opened_at, rate, is_new, rules::text from duly.record_staging($1, $2)

-- name: defer_late
select duly.defer_late($1, $2, $3, $4)

-- name: last
-- The one that is not over, or else the last.
select recovery_id, state, down_since, opened_at, decided_at, decided_by, rate, ended_at, backup_at, duly.clock_now() as read_at, rules::text
  from duly.recoveries
 order by state in ('open', 'approved', 'dismissing') desc, opened_at desc limit 1

-- name: held
-- The spans that wait for a decision, of the held shards.
select backfills.backfill_id, backfills.job_id, backfills.tenant, backfills.from_at, backfills.to_at, backfills.total,
       backfills.schedule::text, backfills.every_seconds, backfills.anchor_at, backfills.calendars::text
  from duly.backfills where backfills.recovery_id = $1 and backfills.state = 'active' and backfills.shard = any ($2) and backfills.due_at = 'infinity'
 order by backfills.backfill_id limit $3

-- name: under_way
select count(*) from (select from duly.backfills where backfills.recovery_id = $1 and backfills.state = 'active'
                         and backfills.shard = any ($2) and backfills.due_at < 'infinity' limit $3) as parts

-- name: decide
select duly.decide_missed($1, $2, $3, $4, $5, $6)

-- name: take_reservations
select duly.take_recovery_reservations($1, $2)

-- name: drop
-- In batches, of all that were dismissed: what is left of each is recorded, and what waits is taken back.
select count(duly.cancel_backfill(chosen.backfill_id)) from (
    select backfills.backfill_id from duly.recoveries join duly.backfills on backfills.recovery_id = recoveries.recovery_id
     where recoveries.state in ('dismissing', 'dismissed') and backfills.state = 'active' and backfills.shard = any ($1)
     order by backfills.backfill_id limit $2) as chosen

-- name: close
-- A recovery that found nothing missed is over after a minute, unless it is that of a restored database. The rest of the moments: see
-- defer_missed.
update duly.recoveries set state = case state when 'dismissing' then 'dismissed' else 'done' end, ended_at = duly.clock_now()
 where recovery_id = $1 and state in ('open', 'approved', 'dismissing')
   and case state when 'open' then backup_at is null and opened_at < duly.clock_now() - interval '60 seconds' else decided_at < duly.clock_now() - interval '10 seconds' end
   and not exists (select from duly.backfills where backfills.recovery_id = $1 and backfills.state = 'active')
   and not exists (select from duly.recoveries as before join duly.backfills on backfills.recovery_id = before.recovery_id
                    where before.state = 'dismissed' and backfills.state = 'active')
returning state

-- name: approve
update duly.recoveries set state = 'approved', rules = coalesce($2::text::jsonb, rules), rate = coalesce($3, rate),
       decided_at = coalesce(decided_at, duly.clock_now()), decided_by = $4
 where recovery_id = $1 and state in ('open', 'approved') returning state

-- name: dismiss
update duly.recoveries set state = 'dismissing', decided_at = duly.clock_now(), decided_by = $2
 where recovery_id = $1 and state in ('open', 'approved') returning state

-- name: let_go_restored
select duly.let_go_restored($1)

-- name: hold_restored
select duly.hold_restored($1)

-- name: in_flight
select leased.run_id, leased.job_id, leased.tenant, leased.queue, leased.handler, leased.attempt, leased.scheduled_at, expired_workers.name as worker
  from duly.expired_workers join duly.leased on leased.worker_id = expired_workers.worker_id
 where expired_workers.expired_at = 'infinity' order by leased.due_at, leased.run_id limit $1

-- name: due
-- The runs that were due when the database was restored, counted up to a bound.
select count(*) from (
    (select from duly.ready where due_at <= $1 limit $2) union all
    (select from duly.timers where run_id is not null and due_at <= $1 limit $2)) as due

-- name: take_over
select duly.take_over_catch_ups($1, $2, $3)

-- name: stretches
-- Of a recovery, what is held or under way; of none, the catch-ups that go on by themselves.
select backfills.backfill_id, backfills.job_id, backfills.tenant, jobs.name, jobs.queue, backfills.from_at, backfills.to_at, backfills.total,
       backfills.created, backfills.rate, backfills.due_at = 'infinity' as is_waiting, backfills.schedule::text, backfills.every_seconds,
       backfills.anchor_at, backfills.calendars::text
  from duly.backfills join duly.jobs on jobs.job_id = backfills.job_id
 where backfills.state = 'active' and backfills.origin = 'schedule' and backfills.recovery_id is not distinct from $1
 order by backfills.total - backfills.created desc, backfills.backfill_id limit $2

-- name: totals
select count(*) filter (where due_at = 'infinity' and state = 'active') as held, count(*) filter (where due_at < 'infinity' or state <> 'active') as decided,
       coalesce(sum(created), 0) as created, coalesce(sum(total - created) filter (where state = 'active' and due_at < 'infinity'), 0) as to_make,
       coalesce(sum(total) filter (where state = 'active' and due_at = 'infinity'), 0) as missed
  from (select due_at, state, created, total from duly.backfills where recovery_id = $1 limit 1000000) as parts
