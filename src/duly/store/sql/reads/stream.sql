-- name: look
-- $1 and $2: the reader's position; $3: how many ends of all tenants are looked at; $4: the tenants; $5: how many are given.
with unseen as materialized (
    select xid, run_id, job_id, tenant, attempt, fence, outcome::text as outcome, became::text as became, queue, handler, scheduled_at, due_at,
           started_at, finished_at, reason
      from duly.ended_since($1::text::xid8, $2::text[]::xid8[], $3::integer))
select pg_current_snapshot()::text as snapshot, duly.cluster() as cluster, scan.scanned, scan.newest, ended.*
  from (select count(*) as scanned, max(xid)::text::bigint as newest from unseen) as scan
  left join (select run_id, job_id, tenant, attempt, fence, outcome, became, queue, handler, scheduled_at, due_at, started_at, finished_at, reason
               from unseen where tenant = any ($4::integer[]) order by finished_at limit $5::integer) as ended on true

-- name: position
select pg_current_snapshot()::text as snapshot, duly.clock_now() as read_at, max(fence) as fence from duly.leased

-- name: started
-- Runs that are leased by a worker and due, and were not both at the last look: claimed since, or due since. The box is as large as what
-- workers hold. $1: where the last snapshot ended, modulo 2^32; $2: how far below that its oldest open transaction was; $3: those that were
-- open, as distances too; $5: a fence of some seconds ago.
select pg_current_snapshot()::text as snapshot, now.read_at, begun.*
  from (select duly.clock_now() as read_at) as now
  left join lateral (
       select run_id, job_id, tenant, attempt, fence, queue, handler, scheduled_at, due_at, greatest(due_at, claimed_at) as started_at
         from (select *, ((xmin::text::bigint - $1::bigint + 2147483648) & 4294967295) - 2147483648 as distance from duly.leased
                where tenant = any ($4::integer[]) and due_at <= now.read_at and (fence > $5::bigint or due_at > $6::timestamptz)) as due
        where due_at > $6::timestamptz or (distance >= $2::bigint and (distance >= 0 or distance = any ($3::bigint[])))
        order by fence limit $7::integer) as begun on true
