-- name: live
-- A worker that has not beaten for a lease is not counted, whether or not it has been reaped.
select distinct declared from duly.workers cross join lateral unnest(workers.declares) as declared where workers.until > duly.clock_now()

-- name: standing
-- The jobs that have these names, whoever's they are; and those of a program. Of one name the one that lives, else the last. What
-- was cancelled is forgotten: declared again, it begins anew.
with found as (
    select job_id from duly.jobs where tenant = $1 and name = any ($3) and state in ('active', 'paused')
    union
    select job_id from duly.jobs where tenant = $1 and source = $2 and owner = 'code' and state <> 'cancelled')
select distinct on (name) job_id, name, owner, source, state, pause_reason, generation, coalesce(definition, ''), coalesce(definitions, '{}'), removed_at
  from duly.jobs join found using (job_id) where name is not null
 order by name, state in ('active', 'paused') desc, created_at desc, job_id

-- name: mark_removed
update duly.jobs set removed_at = duly.clock_now(), updated_at = duly.clock_now() where job_id = $1 and removed_at is null

-- name: mark_declared
update duly.jobs set removed_at = null, updated_at = duly.clock_now() where job_id = $1 and removed_at is not null
