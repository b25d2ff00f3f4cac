-- name: unseen
-- As in tail.sql, but row by row and of some tenants. $1 to $3: the last snapshot; $4: the tenants; $6 and on: where to begin.
select run_id, job_id, tenant, attempt, fence, outcome, became, queue, handler, scheduled_at, due_at, started_at, finished_at, reason
  from (select run_id, job_id, tenant, attempt, fence, outcome::text as outcome, became::text as became, queue, handler, scheduled_at,
               due_at, started_at, finished_at, reason,
               ((xmin::text::bigint - $1::bigint + 2147483648) & 4294967295) - 2147483648 as distance
          from only {leaf} where ctid >= ${number}::tid and tenant = any ($4::integer[])) as tail
 where distance >= $2::bigint and (distance >= 0 or distance = any ($3::bigint[]))

-- name: look
select pg_current_snapshot()::text as snapshot, ended.*
  from (select 1) as one left join (select * from ({unseen}) as unseen order by finished_at limit $5::integer) as ended on true

-- name: place
select coalesce(max(fence), 0) as fence, duly.clock_now() as read_at from duly.leased

-- name: started
-- What is in a worker's hands and due, and was not both at the last look: claimed since, or due since. The box is as large as what
-- workers hold.
select run_id, job_id, tenant, attempt, fence, queue, handler, scheduled_at, due_at, greatest(due_at, claimed_at) as started_at,
       (select duly.clock_now()) as read_at
  from duly.leased
 where tenant = any ($1::integer[]) and due_at <= (select duly.clock_now()) and (fence > $2::bigint or due_at > $3::timestamptz)
 order by fence limit $4::integer

-- name: recent
-- The end of one leaf: what ended of a tenant since a moment, and whether that is all of it, told by an older row before it.
select run_id, job_id, tenant, attempt, fence, outcome::text as outcome, became::text as became, queue, handler, scheduled_at, due_at,
       started_at, finished_at, reason
  from only {leaf} where ctid >= $1::tid and tenant = $2 and finished_at > $3::timestamptz order by finished_at limit $4::integer

-- name: first_of_block
select min(finished_at) from only {leaf} where ctid >= $1::tid and ctid < $2::tid
