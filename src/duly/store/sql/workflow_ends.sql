-- name: place
select pg_current_snapshot()::text as snapshot, duly.clock_now() as read_at

-- name: look
-- `is true` keeps the planner from walking all of a tenant's; likewise below.
-- What the last snapshot could not see ($1 to $3, as in tail.sql) of what ended since a moment, of some tenants, in order.
select pg_current_snapshot()::text as snapshot, duly.clock_now() as read_at, ended.* from (select 1) as one left join (
       select workflow_id, tenant, name, state, reason, tags, nodes, replays, run_id, submitted_at, ended_at
         from (select *, ((xmin::text::bigint - $1::bigint + 2147483648) & 4294967295) - 2147483648 as distance from duly.workflows
                where ended_at > $4::timestamptz and (tenant = any ($5::integer[])) is true) as tail
        where distance >= $2::bigint and (distance >= 0 or distance = any ($3::bigint[])) order by ended_at limit $6::integer) as ended on true

-- name: recent
select workflow_id, tenant, name, state, reason, tags, nodes, replays, run_id, submitted_at, ended_at
  from duly.workflows where ended_at > $2::timestamptz and (tenant = $1) is true order by ended_at limit $3::integer
