-- name: claim
select tid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
       suspect, payload_stored, queue, handler, payload::text,
       case when (select exists (select from duly.redactions)) then duly.with_rules(options, tenant) else options end::text as options
  from duly.claim($1, $2, $3, $4, $5)

-- name: claim_all
select tid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
       suspect, payload_stored, queue, handler, payload::text,
       case when (select exists (select from duly.redactions)) then duly.with_rules(options, tenant) else options end::text as options
  from duly.claim_all($1, $2, $3, $4, $5)

-- name: drop_duplicates
select duly.drop_duplicates()

-- name: unroutable
-- Runs that wait because no live worker knows their handler.
select ready.queue, ready.handler, count(*) as runs, min(ready.due_at) as oldest_due_at
  from (select queue, handler, tenant, due_at from duly.ready limit 100000) as ready
 where not exists (select from duly.workers where until > (select duly.clock_now()) and ready.handler = any (workers.handlers) and ready.queue = any (workers.queues)
                      and coalesce(workers.tenant, ready.tenant) = ready.tenant)
 group by 1, 2 order by 3 desc limit 100

-- name: depth
select queue, count(*) as runs, min(due_at) as oldest_due_at
  from (select queue, due_at from duly.ready limit 100000) as ready group by 1 order by 1

-- name: vacuum
vacuum (skip_locked, truncate off) duly.ready

-- name: is_hollow
-- Return whether it takes more than so many bytes on the disk, nearly empty, and nothing has passed through since it was vacuumed.
select pg_table_size('duly.ready') > $1 and pg_stat_get_dead_tuples('duly.ready'::regclass) < 1000
       and (select count(*) from (select from duly.ready order by run_id limit 1000) as first) < 1000

-- name: shorten
vacuum (skip_locked, truncate on) duly.ready

-- name: depth_and_own
-- Of all, and of one tenant among them; what lies behind the bound is passed over.
select queue, count(*) as runs, min(due_at) as oldest_due_at, count(*) filter (where tenant = $1) as own_runs,
       min(due_at) filter (where tenant = $1) as own_oldest_due_at
  from (select queue, due_at, tenant from duly.ready limit 100000) as ready group by 1 order by 1

-- name: mark_unroutable
select moved, queue, tenant, priority from duly.mark_unroutable($1, $2, $3, $4, $5, $6, $7)

-- name: restore_routable
select duly.restore_all_routable($1)
