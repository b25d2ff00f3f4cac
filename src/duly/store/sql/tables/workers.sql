-- name: register
-- A worker of a drained host begins drained.
insert into duly.workers (worker_id, name, version, queues, handlers, slots, lease, declares, weights, pools, app, host, started_at, until, safe_until,
                          draining_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::jsonb, $11, $12, at, at + $7::interval, at + $7::interval * 2 / 3,
       (select since from duly.drained_hosts where host = $12)
  from (select duly.clock_now() as at) as clock
on conflict (worker_id) do nothing
returning started_at

-- name: heartbeat
-- No row: the lease has expired, and the worker must stop itself. It starts nothing that is due after the safe moment it was given, so
-- that what is due later goes back unused when it dies: also when the clock was set while it lived.
update duly.workers set heartbeat = heartbeat + 1, until = duly.clock_now() + lease, safe_until = greatest(safe_until, duly.clock_now() + lease * 2 / 3),
                        stalled_at = null, stalled_in = '{}', unstarted = case when stalled_at is null then unstarted else '{}' end
 where worker_id = $1 returning until, safe_until, duly.clock_now() as read_at

-- name: stall
select safe_until, returned from duly.stall($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: name_unstarted
-- While it is stalled, its heartbeat speaks for it.
update duly.workers set unstarted = $2 where worker_id = $1 and stalled_at is null

-- name: announce
-- Name the suspects that are about to start, so that a death can be attributed to them. By their fences too: a name that was not
-- taken back, or was given late, says nothing about the run's next lease.
update duly.workers set named = named || $2::text[] where worker_id = $1 and until > duly.clock_now() returning worker_id

-- name: retract
update duly.workers set named = array(select unnest(named) except select unnest($2::text[])) where worker_id = $1

-- name: live
select worker_id, name, version, queues, handlers, slots, lease, started_at, heartbeat, until, duly.clock_now() as read_at, tenant, weights, pools::text,
       draining_at is not null as is_draining, stalled_at, stalled_in, app
  from duly.workers

-- name: drain
-- Return whether that is new; no row when the worker's lease has expired.
with found as (
    select worker_id, draining_at from duly.workers where worker_id = $1 and until > duly.clock_now() for no key update)
update duly.workers set draining_at = case when $2 then coalesce(found.draining_at, duly.clock_now()) end
  from found where workers.worker_id = found.worker_id returning (found.draining_at is not null) <> $2 as is_new

-- name: held_counts
-- The number of runs each holds, counted up to a bound.
select worker_id, (select count(*) from (select from duly.leased where leased.worker_id = workers.worker_id limit $1) as held) from duly.workers

-- name: held_runs
-- The runs leased by a worker, the first due in front.
select run_id, job_id, tenant, queue, handler, attempt, priority, scheduled_at, due_at, claimed_at,
       duly.held_state(run_id, worker_id, due_at) as state
  from duly.leased where worker_id = $1 order by due_at, run_id limit $2

-- name: expire
-- The worker's row goes first; what it leaves shows the reaper until when it may have started runs.
with removed as (
    delete from duly.workers where worker_id = $1 and heartbeat = $2 and ($3 or until <= duly.clock_now()) returning *),
counted as (
    insert into duly.counters (name, value) select 'lease_expiries', 1 from removed on conflict (name) do update set value = counters.value + 1)
insert into duly.expired_workers (worker_id, name, safe_until, named, expired_at)
select worker_id, name, safe_until, named, duly.clock_now() from removed
on conflict (worker_id) do nothing
returning worker_id

-- name: retire
select has_left, run_ids, fences from duly.retire($1, $2, $3)

-- name: expired_workers
-- Those of a restored database wait for its recovery: their moment is infinite until then.
select worker_id, name, safe_until, named from duly.expired_workers
 where expired_at < 'infinity' and exists (select from duly.leased where leased.worker_id = expired_workers.worker_id) order by expired_at limit 1000

-- name: forget_departed
delete from duly.expired_workers where expired_at < duly.clock_now() - interval '1 day' and not exists (select from duly.leased where leased.worker_id = expired_workers.worker_id)

-- name: depart
-- For leased rows without a worker's row and without a departure: nothing is known, so everything may have been started.
-- Not infinity, which drivers give as a moment without a zone.
insert into duly.expired_workers (worker_id, name, safe_until, named, expired_at)
select $1, 'unknown', duly.clock_now() + interval '100 years', '{}', duly.clock_now() on conflict (worker_id) do nothing

-- name: installation
-- The server may not say which it is; then there is only the database.
select split_part(duly.cluster(), '/', 1) || '-' || oid from pg_database where datname = current_database()
