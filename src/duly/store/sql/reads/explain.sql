-- name: around
-- The facts of a run that waits or runs, besides its state: its concurrency key, since when it is claimed, and what it carries.
select requested.run_id, duly.clock_now() as now, blocked.waits_for::text as waits_for, blocked.key, concurrency_keys.slots, concurrency_keys.active, leased.claimed_at, awaited.deadline_at, dead.replays, dead.buried_at,
       coalesce(blocked.options->'fifo', 'false') not in ('false', 'null') as is_fifo,
       blocked.options->'node'->>1 as node,
       coalesce(ready.options, blocked.options, leased.options, dead.options, timers.options)::text as options,
       destinations.destination_id, destinations.origin, destinations.state as destination_state, destinations.slots as destination_slots,
       (select load.in_flight from duly.load_of_destination(destinations.destination_id) as load) as in_flight,
       destinations.rate_per_second, nullif(greatest(destinations.wait_until, destinations.requested_until), '-infinity') as probe_at,
       case when duly.clock_now() < destinations.ramp_until then destinations.ramp_rate end as ramp_rate
  from (select $1::uuid as run_id) as requested
  left join duly.timers on timers.run_id = requested.run_id and timers.run_id is not null
  left join duly.ready on ready.run_id = requested.run_id
  left join duly.blocked on blocked.run_id = requested.run_id
  left join duly.concurrency_keys on concurrency_keys.tenant = blocked.tenant and blocked.waits_for = 'concurrency' and concurrency_keys.key = blocked.key
  left join duly.destinations on destinations.tenant = blocked.tenant and blocked.waits_for = 'destination' and destinations.origin = blocked.key
  left join duly.leased on leased.run_id = requested.run_id
  left join duly.awaited on awaited.run_id = requested.run_id and awaited.fence = leased.fence
  left join duly.dead on dead.run_id = requested.run_id

-- name: metadata
-- The options that the last record of a run keeps.
select metadata::text from duly.attempts where run_id = $1 order by finished_at desc limit 1

-- name: beyond
-- The surroundings of a run: how many of its tenant's runs in its queue come before it by rank, up to a bound, and whether its worker lives.
-- Runs of one subqueue that are due at one moment, as those of a batch, are claimed as the index gives them: by their place in the table. So many
-- of them are looked at as are counted: a run that is not among those has all of them before it.
select (select count(*) from (
            select from generate_series(0, 109) as subqueue(priority) cross join lateral (
                select other.due_at, other.ctid from duly.ready as other
                 where not other.is_unroutable and other.queue = ready.queue and other.tenant = ready.tenant and other.priority = subqueue.priority
                   and other.due_at <= ready.due_at + (ready.priority - subqueue.priority) * interval '30 seconds'
                 order by other.queue, other.tenant, other.priority, other.due_at limit $2) as one
             where case when subqueue.priority = ready.priority then (one.due_at, one.ctid) < (ready.due_at, ready.ctid)
                        else one.due_at < ready.due_at + (ready.priority - subqueue.priority) * interval '30 seconds' end
             limit $2) as ahead) as before,
       coalesce(workers.name, expired_workers.name) as worker, workers.until > duly.clock_now() as worker_is_live,
       expired_workers.expired_at = 'infinity' as awaits_recovery,
       workers.stalled_at, workers.stalled_in
  from (select $1::uuid as run_id) as requested
  left join duly.ready on ready.run_id = requested.run_id
  left join duly.leased on leased.run_id = requested.run_id
  left join duly.workers on workers.worker_id = leased.worker_id
  left join duly.expired_workers on expired_workers.worker_id = leased.worker_id

-- name: holders
-- Some of the runs that hold a slot of a concurrency key: leased by a worker, or about to be; of what is ready, only so many are looked at.
select run_id from (
    (select run_id, options, tenant from duly.leased)
    union all (select run_id, options, tenant from duly.ready where tenant = $1 limit 10000)) as inside
 where tenant = $1 and options->'concurrency'->>0 = $2 limit $3

-- name: key_position
-- The number of runs that wait for a concurrency key before a run, up to a bound, and the first of all, in the order in which they get slots.
select (select count(*) from (select from duly.blocked as other
                               where other.tenant = $1 and other.waits_for = 'concurrency' and other.key = $2 and (other.due_at, other.run_id) < (mine.due_at, mine.run_id)
                               limit $4) as ahead) as before,
       (select first.run_id from duly.blocked as first where first.tenant = $1 and first.waits_for = 'concurrency' and first.key = $2 order by first.due_at, first.run_id limit 1) as first
  from (select due_at, run_id from duly.blocked where run_id = $3 union all select '-infinity', $3 limit 1) as mine

-- name: rate_position
-- The same at a rate.
select (select count(*) from (select from duly.blocked as other
                               where other.tenant = $1 and other.waits_for = 'rate' and other.key = $2 and (other.due_at, other.run_id) < (mine.due_at, mine.run_id)
                               limit $4) as ahead) as before,
       (select first.run_id from duly.blocked as first where first.tenant = $1 and first.waits_for = 'rate' and first.key = $2 order by first.due_at, first.run_id limit 1) as first
  from (select due_at, run_id from duly.blocked where run_id = $3 union all select '-infinity', $3 limit 1) as mine

-- name: fifo_position
-- The same where the order is strict.
select (select count(*) from (select from duly.blocked as other
                               where other.tenant = $1 and other.waits_for = 'concurrency' and other.key = $2 and other.options ? 'fifo'
                                 and (other.due_at, duly.fifo_number(other.options), other.run_id) < (mine.due_at, mine.fifo_number, mine.run_id)
                               limit $4) as ahead) as before,
       (select first.run_id from duly.blocked as first where first.tenant = $1 and first.waits_for = 'concurrency' and first.key = $2 and first.options ? 'fifo'
         order by first.due_at, duly.fifo_number(first.options), first.run_id limit 1) as first
  from (select due_at, duly.fifo_number(options) as fifo_number, run_id from duly.blocked where run_id = $3 union all select '-infinity', 0, $3 limit 1) as mine

-- name: reservation
-- The rate at which a run waits for a reservation, and from when on it gives any.
select rate_limits.key, rate_limits.per_second, rate_limits.burst, rate_limits.next_at from duly.rate_limits where rate_limits.tenant = $1 and rate_limits.key = $2

-- name: parents
-- The parents of a node that have not ended.
select parents.name from duly.workflow_edges as edges
  join duly.workflow_nodes as parents on parents.workflow_id = edges.workflow_id and parents.name = edges.parent
 where edges.workflow_id = $1 and edges.child = $2 and edges.tenant = $3 and parents.state in ('waiting', 'ready')
 order by parents.number limit $4

-- name: dependency
-- The jobs that a run depends on, and that have not ended.
select parent from duly.dependencies where child = $1 and tenant = $2 order by parent limit $3

-- name: workflow_is_paused
select state = 'paused' from duly.workflows where workflow_id = $1 and tenant = $2

-- name: schedulers
select count(*) from duly.schedulers where until > duly.clock_now()
