-- name: live
select * from duly.declared()

-- name: standing
select * from duly.standing($1, $2, $3)

-- name: mark_removed
update duly.jobs set removed_at = duly.clock_now(), updated_at = duly.clock_now() where job_id = $1 and removed_at is null

-- name: mark_declared
update duly.jobs set removed_at = null, updated_at = duly.clock_now() where job_id = $1 and removed_at is not null
