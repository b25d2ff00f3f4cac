-- name: position
select pg_current_snapshot()::text

-- name: look
select pg_current_snapshot()::text as snapshot, changes.*
  from (select 1) as one left join (
       select job_id, tenant, generation, change, name, queue, handler, changed_at, number
         from duly.job_changes_since($1::text::pg_snapshot, $2, $3)) as changes on true

-- name: recent
select job_id, tenant, generation, change, name, queue, handler, changed_at, number from duly.job_changes
 where changed_at > $2::timestamptz and tenant = $1 order by changed_at limit $3

-- name: forget
delete from duly.job_changes where ctid = any (array(
    select ctid from duly.job_changes where changed_at < (select duly.clock_now()) - $1::interval order by changed_at limit $2))
