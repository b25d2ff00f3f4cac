-- name: create_partitions
select duly.create_partitions((duly.clock_now() at time zone 'UTC')::date, $1)

-- name: drop_partition
select duly.drop_partition($1, $2)

-- name: partitions
select child.relname as name, parent.relname as parent from pg_inherits
  join pg_class as child on child.oid = inhrelid join pg_class as parent on parent.oid = inhparent
  join pg_namespace on pg_namespace.oid = child.relnamespace
 where pg_namespace.nspname = 'duly' and parent.relname in ('attempts_succeeded', 'attempts_failed', 'logs') and child.relname ~ '_[0-9]{8}$'

-- name: forget_attempts_succeeded
-- Rows that came while their day had no partition, and were not moved into one, are in the default partition, which is never dropped.
with removed as (delete from duly.attempts_succeeded_default where ctid = any (array(
    select ctid from duly.attempts_succeeded_default as late where finished_at < $1 and not exists (select from duly.history_limits where archived_at is not null)
       and not exists (select from duly.legal_holds where legal_holds.tenant = late.tenant and coalesce(legal_holds.job_id, late.job_id) = late.job_id)
     limit $2)) returning 1)
select count(*) from removed

-- name: forget_attempts_failed
with removed as (delete from duly.attempts_failed_default where ctid = any (array(
    select ctid from duly.attempts_failed_default as late where finished_at < $1 and not exists (select from duly.history_limits where archived_at is not null)
       and not exists (select from duly.legal_holds where legal_holds.tenant = late.tenant and coalesce(legal_holds.job_id, late.job_id) = late.job_id)
     limit $2)) returning 1)
select count(*) from removed

-- name: forget_logs
with removed as (delete from duly.logs_default where ctid = any (array(
    select ctid from duly.logs_default where logged_at < $1 limit $2)) returning 1)
select count(*) from removed

-- name: forget_keys
select duly.forget_keys($1)

-- name: forget_payloads
-- The clock is read once, in a select of its own: a comparison with it row by row could use no index. Likewise below.
-- Payloads of one-shots that are in no box any more, and whose record is deleted: one that was kept longer is not looked at again until then.
-- While records are archived, or under a legal hold, a payload stays for as long as its record is here: it goes into the archive with it.
with over as materialized (
    select job_id, generation from duly.payloads
     where coalesce(kept_until, stored_at + $1::interval) < (select duly.clock_now())
       and not exists (select from duly.jobs where jobs.job_id = payloads.job_id)
       and not exists (select from duly.purges where purges.job_id = payloads.job_id)
       and not exists (select from duly.timers where timers.run_id = payloads.job_id)
       and not exists (select from duly.blocked where blocked.run_id = payloads.job_id)
       and not exists (select from duly.ready where ready.run_id = payloads.job_id)
       and not exists (select from duly.leased where leased.run_id = payloads.job_id)
       and not exists (select from duly.dead where dead.run_id = payloads.job_id) limit $3),
judged as materialized (
    select job_id, generation, (
               select max(greatest(finished_at + case when outcome = 'succeeded' then $1::interval else $2::interval end,
                               case when exists (select from duly.history_limits where archived_at is not null)
                                      or exists (select from duly.legal_holds where legal_holds.tenant = attempts.tenant
                                                    and coalesce(legal_holds.job_id, attempts.job_id) = attempts.job_id)
                                    then (select duly.clock_now()) + interval '1 hour' end)) from duly.attempts
                where attempts.run_id = over.job_id and became in ('succeeded', 'cancelled', 'expired', 'skipped')) as kept_until
      from over),
renewed as (
    update duly.payloads set kept_until = judged.kept_until from judged
     where payloads.job_id = judged.job_id and payloads.generation = judged.generation and judged.kept_until >= (select duly.clock_now()))
delete from duly.payloads using judged
 where payloads.job_id = judged.job_id and payloads.generation = judged.generation
   and coalesce(judged.kept_until < (select duly.clock_now()), true)

-- name: purge
select duly.purge($1)

-- name: purge_over
select duly.purge_over($1, $2)

-- name: limit_payloads
insert into duly.history_limits (payload_bytes) values ($1)
on conflict (is_one) do update set payload_bytes = excluded.payload_bytes where history_limits.payload_bytes <> excluded.payload_bytes

-- name: archive
-- From now on attempts are dropped only once they are archived.
insert into duly.history_limits (payload_bytes, archived_at) values ($1, duly.clock_now())
on conflict (is_one) do update set archived_at = excluded.archived_at

-- name: stop_archive
update duly.history_limits set archived_at = null where archived_at is not null returning 1

-- name: archive_age
select extract(epoch from duly.clock_now() - archived_at)::double precision from duly.history_limits

-- name: forget_progress
delete from duly.progress where run_id in (
    select run_id from duly.progress where updated_at < (select duly.clock_now()) - interval '1 hour'
       and not exists (select from duly.live_runs where live_runs.run_id = progress.run_id) limit $1)

-- name: release_waiting
-- A safety net: a slot that came free while its waiter was held by a transaction that rolled back. Key by key, however many wait at each.
with recursive waited as (
    (select tenant, key from duly.blocked where waits_for = 'concurrency' order by tenant, key limit 1)
    union all
    select next.* from waited cross join lateral (
        select tenant, key from duly.blocked where waits_for = 'concurrency' and (blocked.tenant, blocked.key) > (waited.tenant, waited.key)
         order by tenant, key limit 1) as next),
open as (
    select waited.tenant, first.options from waited
     cross join lateral (select options from duly.blocked where blocked.tenant = waited.tenant and blocked.waits_for = 'concurrency'
                            and blocked.key = waited.key order by due_at, run_id limit 1) as first
     where not coalesce((select concurrency_keys.active >= concurrency_keys.slots from duly.concurrency_keys where concurrency_keys.tenant = waited.tenant and concurrency_keys.key = waited.key), false)
     limit $1)
select coalesce(duly.release(array_agg(tenant), array_agg(options), 0, null), 0) from open having count(*) > 0

-- name: forget_checkpoints
-- A checkpoint goes with its run; this finds the one that was being saved while the run ended.
delete from duly.checkpoints where run_id in (
    select run_id from duly.checkpoints where saved_at < (select duly.clock_now()) - interval '1 hour'
       and not exists (select from duly.live_runs where live_runs.run_id = checkpoints.run_id) limit $1)

-- name: forget_subtasks
-- As long as they may be shown: while they are in a box, and then for as long as failures are kept.
delete from duly.subtasks where (parent, run_id) in (
    select parent, run_id from duly.subtasks where recorded_at < (select duly.clock_now()) - $1::interval
       and not exists (select from duly.live_runs where live_runs.run_id = subtasks.run_id) order by recorded_at limit $2)

-- name: verify
-- Each row is a broken promise; none is the good answer. One statement, so one snapshot.
with boxes as (
    select run_id, 'timers' as box from duly.timers where run_id is not null
    union all select run_id, 'blocked' from duly.blocked
    union all select run_id, 'ready' from duly.ready
    union all select run_id, 'leased' from duly.leased
    union all select run_id, 'dead' from duly.dead),
inside as (
    select tenant, key, count(*) as runs from (
        select tenant, options->'concurrency'->>0 as key from duly.ready where options ? 'concurrency'
        union all select tenant, options->'concurrency'->>0 from duly.leased where options ? 'concurrency'
        union all select tenant, options->'concurrency'->>0 from duly.timers where options ? 'has_slot'
        union all select tenant, options->'concurrency'->>0 from duly.blocked where options ? 'has_slot') as with_key group by 1, 2),
fifo_runs as (
    select tenant, (options->'concurrency'->>0) collate "C" as key, due_at, duly.fifo_number(options) as fifo_number from duly.timers
     where options ? 'fifo' and not options ? 'has_slot' and not duly.is_postponed((select duly.overloaded()), priority, run_id, tenant, queue))
select 'run in two boxes' as broken, run_id::text as id, string_agg(box, ', ') as detail from boxes group by run_id having count(*) > 1
union all
-- By the successes alone, which only their index is read for: a run has one at the most, and none while it is in a box. A node of a workflow
-- may be replayed after its success.
select 'run that succeeded twice', twice.run_id::text, format('%s times', twice.successes)
  from (select run_id, count(*) as successes from duly.attempts_succeeded group by run_id having count(*) > 1) as twice
 where not exists (select from duly.attempts_succeeded where attempts_succeeded.run_id = twice.run_id and attempts_succeeded.metadata ? 'node')
union all
select 'run that succeeded and is in a box', boxes.run_id::text, boxes.box from boxes
 where exists (select from duly.attempts_succeeded where attempts_succeeded.run_id = boxes.run_id and not coalesce(attempts_succeeded.metadata ? 'node', false))
union all
select 'schedule without its next fire', job_id::text, coalesce(name, handler) from duly.jobs
 where state in ('active', 'paused') and not exists (select from duly.timers where timers.job_id = jobs.job_id and timers.run_id is null)
union all
select 'next fire of a schedule that is over', timers.job_id::text, coalesce(jobs.state, 'no such job') from duly.timers
  left join duly.jobs on jobs.job_id = timers.job_id where timers.run_id is null and coalesce(jobs.state, '') not in ('active', 'paused')
union all
select 'next fire of a paused schedule that is armed', timers.job_id::text, timers.due_at::text from duly.timers
  join duly.jobs on jobs.job_id = timers.job_id where timers.run_id is null and jobs.state = 'paused' and timers.due_at < 'infinity'
union all
select 'schedule that waits for the end of a run that is not there', timers.job_id::text, coalesce(timers.last_run_id::text, 'none') from duly.timers
  join duly.jobs on jobs.job_id = timers.job_id
 where timers.run_id is null and timers.overlap = 'after_end' and timers.due_at = 'infinity' and jobs.state = 'active'
   and not exists (select from boxes where boxes.run_id = timers.last_run_id and boxes.box <> 'dead')
union all
select 'rows of a tenant that is in another cell', held.tenant::text, string_agg(held.table_name, ', ') from duly.rows_of_tenants() as held group by held.tenant
union all
select 'lease without a worker', leased.run_id::text, leased.worker_id::text from duly.leased
 where not exists (select from duly.workers where workers.worker_id = leased.worker_id)
   and not exists (select from duly.expired_workers where expired_workers.worker_id = leased.worker_id)
   and not exists (select from duly.awaited where awaited.run_id = leased.run_id and awaited.fence = leased.fence and leased.worker_id = duly.receiver())
union all
-- Those that were under way when a limit was set go on; a claim that was under way then may not have seen it. Which came first is shown by
-- their transactions, for the clock may have been set back between.
select 'limit exceeded', coalesce(limits.queue, 'every queue') || coalesce(' of tenant ' || limits.tenant, ''),
       format('%s slots, %s runs', limits.slots, count(*))
  from duly.limits join duly.leased on coalesce(limits.tenant, leased.tenant) = leased.tenant and coalesce(limits.queue, leased.queue) = leased.queue
   and leased.handler <> '@workflow'
 group by limits.tenant, limits.queue, limits.slots, limits.set_at, limits.xmin::text
having count(*) > limits.slots
   and max(leased.claimed_at) filter (where age(leased.xmin) < age(limits.xmin::text::xid)) > limits.set_at + interval '5 seconds'
union all
select 'concurrency key whose count is wrong', coalesce(concurrency_keys.key, inside.key), format('says %s, holds %s', concurrency_keys.active, coalesce(inside.runs, 0))
  from duly.concurrency_keys full join inside on inside.tenant = concurrency_keys.tenant and inside.key = concurrency_keys.key
 where coalesce(concurrency_keys.active, 0) <> coalesce(inside.runs, 0)
union all
select 'run waiting for a concurrency key with a free slot', blocked.run_id::text, blocked.key from duly.blocked
 where blocked.waits_for = 'concurrency' and not exists (select from duly.concurrency_keys where concurrency_keys.tenant = blocked.tenant and concurrency_keys.key = blocked.key and concurrency_keys.active >= concurrency_keys.slots)
   and not (blocked.options ? 'fifo' and exists (        -- In FIFO order, the first alone could enter, and only when nothing before it is on its way.
       select from duly.blocked as before where before.tenant = blocked.tenant and before.waits_for = 'concurrency' and before.key = blocked.key and before.options ? 'fifo'
          and (before.due_at, duly.fifo_number(before.options), before.run_id) < (blocked.due_at, duly.fifo_number(blocked.options), blocked.run_id)
       union all
       select from fifo_runs where fifo_runs.tenant = blocked.tenant and fifo_runs.key = blocked.key
          and (fifo_runs.due_at, fifo_runs.fifo_number) < (blocked.due_at, duly.fifo_number(blocked.options))))
union all
select 'FIFO concurrency key with more than one run', concurrency_keys.key, format('%s inside', concurrency_keys.active) from duly.concurrency_keys
 where concurrency_keys.active > 1 and (select count(*) from (
       select from duly.ready where ready.tenant = concurrency_keys.tenant and ready.options->'concurrency'->>0 = concurrency_keys.key and ready.options ? 'fifo'
       union all select from duly.leased where leased.tenant = concurrency_keys.tenant and leased.options->'concurrency'->>0 = concurrency_keys.key and leased.options ? 'fifo') as inside) > 1
union all
select 'run waiting for a rate limit that is not maintained', blocked.run_id::text, blocked.key from duly.blocked
 where blocked.waits_for = 'rate' and not exists (select from duly.rate_limits where rate_limits.tenant = blocked.tenant and rate_limits.key = blocked.key)
union all
select 'run that waits for a reservation without its slot', blocked.run_id::text, blocked.key from duly.blocked
 where blocked.waits_for = 'rate' and blocked.options ? 'concurrency' and not blocked.options ? 'has_slot'
union all
select 'run waiting for a destination that would take it', blocked.run_id::text, blocked.key from duly.blocked
  left join duly.destinations on destinations.tenant = blocked.tenant and destinations.origin = blocked.key
 where blocked.waits_for = 'destination' and blocked.blocked_at < (select duly.clock_now()) - interval '1 minute'
   and (destinations.origin is null
        or (destinations.state = 'closed' and destinations.rate_per_second is null
            and (select load.in_flight + load.waiting from duly.load_of_destination(destinations.destination_id) as load) = 0
            and destinations.requested_until < (select duly.clock_now()) and destinations.released_at < (select duly.clock_now()) - interval '1 minute'))
union all
select 'workflow whose count of open nodes is wrong', flow.workflow_id::text, format('says %s of %s, has %s of %s', flow.open_nodes, flow.nodes, counted.open, counted.all)
  from duly.workflows as flow
 cross join lateral (select count(*) as all, count(*) filter (where node.state in ('waiting', 'ready')) as open
                       from duly.workflow_nodes as node where node.workflow_id = flow.workflow_id) as counted
 where flow.open_nodes <> counted.open or flow.nodes <> counted.all
union all
select 'node whose count of parents is wrong', format('%s/%s', node.workflow_id, node.name), format('waits for %s, should for %s', node.waits, counted.open)
  from duly.workflow_nodes as node
 cross join lateral (select count(*) filter (where parent.state in ('waiting', 'ready')) as open from duly.workflow_edges as edge
                       join duly.workflow_nodes as parent on parent.workflow_id = edge.workflow_id and parent.name = edge.parent
                      where edge.workflow_id = node.workflow_id and edge.child = node.name) as counted
 where node.state = 'waiting' and node.waits <> counted.open
union all
select 'node that nothing will move', format('%s/%s', node.workflow_id, node.name), node.state from duly.workflow_nodes as node
  join duly.workflows as flow on flow.workflow_id = node.workflow_id
 where node.state in ('waiting', 'ready') and (
       not exists (select from boxes where boxes.run_id = node.run_id and boxes.box <> 'dead')
       or (node.state = 'ready' and flow.state = 'running' and exists (
               select from duly.blocked where blocked.run_id = node.run_id and blocked.waits_for = 'workflow' and blocked.key = node.workflow_id::text))
       or (node.state = 'waiting' and node.waits = 0 and flow.state <> 'paused'))
   and not exists (select from duly.workflow_tasks where workflow_tasks.workflow_id = node.workflow_id)
union all
select 'run that waits for a workflow that is over', blocked.run_id::text, blocked.key from duly.blocked
 where blocked.waits_for in ('workflow', 'dependency', 'recall') and blocked.options ? 'node' and not exists (
       select from duly.workflow_nodes as node join duly.workflows as flow on flow.workflow_id = node.workflow_id
        where flow.workflow_id = (blocked.options->'node'->>0)::uuid and node.name = blocked.options->'node'->>1
          and node.state in ('waiting', 'ready') and flow.ended_at is null)
union all
select 'run whose count of jobs before it is wrong', dependent.child::text, format('waits for %s, should for %s', dependent.waits, counted.open)
  from duly.dependents as dependent
 cross join lateral (select count(*) as open from duly.dependencies where dependencies.child = dependent.child) as counted
 where dependent.waits <> counted.open
union all
select 'run with dependencies that nothing will release', blocked.run_id::text, coalesce(format('waits for %s', dependent.waits), 'is not counted') from duly.blocked
  left join duly.dependents as dependent on dependent.child = blocked.run_id
 where blocked.waits_for = 'dependency' and not exists (select from duly.dependency_checks where dependency_checks.child = blocked.run_id)
   and (coalesce(dependent.waits, 0) = 0 or exists (
       select from duly.dependencies where dependencies.child = blocked.run_id
          and not exists (select from boxes where boxes.run_id = dependencies.parent and boxes.box <> 'dead')))
union all
select 'dependent that waits no more', dependencies.child::text, format('of %s', dependencies.parent) from duly.dependencies
 where not exists (select from duly.blocked where blocked.run_id = dependencies.child and blocked.waits_for = 'dependency')
   and not exists (select from duly.dependency_checks where dependency_checks.child = dependencies.child)
union all
select 'unroutable run although a worker has its handler', run_id::text, format('%s in queue %s', handler, queue) from duly.ready
 where is_unroutable and exists (
       select from duly.workers where workers.until > (select duly.clock_now()) and workers.started_at < (select duly.clock_now()) - interval '5 minutes'
          and ready.handler = any (workers.handlers) and ready.queue = any (workers.queues) and coalesce(workers.tenant, ready.tenant) = ready.tenant)
limit 100
