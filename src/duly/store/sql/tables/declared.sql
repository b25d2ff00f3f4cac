-- name: live
-- A worker that has not beaten for a lease is not counted, whether or not it has been reaped.
select distinct declared from duly.workers cross join lateral unnest(workers.declares) as declared where workers.until > duly.clock_now()

-- name: standing
select * from duly.standing_v1($1, $2, $3)

-- name: mark_removed
update duly.jobs set removed_at = duly.clock_now(), updated_at = duly.clock_now() where job_id = $1 and removed_at is null

-- name: mark_declared
update duly.jobs set removed_at = null, updated_at = duly.clock_now() where job_id = $1 and removed_at is not null
