-- name: record
select duly.record_overloads($1, $2)

-- name: standing
-- Records that are not recent are ignored.
select tenant, queue, duly.clock_now() - oldest_due_at, age_limit from duly.overloads
 where recorded_at > duly.clock_now() - interval '10 seconds' order by tenant, queue

-- name: limits
select queue, age_limit from duly.queue_ages order by queue

-- name: limit
insert into duly.queue_ages (queue, age_limit, set_by, set_at) values ($1, $2, $3, duly.clock_now())
on conflict (queue) do update set age_limit = excluded.age_limit, set_by = excluded.set_by, set_at = excluded.set_at

-- name: unlimit
delete from duly.queue_ages where queue = $1 returning queue
