-- name: look
-- $1 and $2: the reader's position; $3: how many ends of all tenants are looked at; $4: the tenants.
with unseen as materialized (select * from duly.workflows_ended_since($1::text::xid8, $2::text[]::xid8[], $3::integer))
select pg_current_snapshot()::text as snapshot, duly.cluster() as cluster, scan.scanned, scan.newest, ended.*
  from (select count(*) as scanned, max(ended_xid)::text::bigint as newest from unseen) as scan
  left join (select workflow_id, tenant, name, state, reason, tags, nodes, replays, run_id, submitted_at, ended_at
               from unseen where tenant = any ($4::integer[]) order by ended_at) as ended on true

-- name: recent
-- `is true` keeps the planner from walking all of a tenant's.
select workflow_id, tenant, name, state, reason, tags, nodes, replays, run_id, submitted_at, ended_at
  from duly.workflows where ended_at > $2::timestamptz and (tenant = $1) is true order by ended_at limit $3::integer
