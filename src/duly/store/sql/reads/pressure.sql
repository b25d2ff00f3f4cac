-- name: settled
-- Of one part of history, from a block on: what ended in each queue by handler, since when, and how long it took. What never started is not work.
select queue, handler, count(*) as runs, min(finished_at) as since, sum(date_part('epoch', finished_at - started_at)) as seconds
  from only {leaf} where ctid >= ${number}::tid and finished_at > duly.clock_now() - $1::interval and started_at is not null group by 1, 2

-- name: first
-- Since when a part of history is read at all.
select min(finished_at) as since from only {leaf} where ctid >= ${number}::tid

-- name: covered
select max(since), duly.clock_now() from ({firsts}) as firsts

-- name: upcoming
select queue, minute, every_seconds, cohort, scheduled_at, fires, tenant from duly.upcoming($1, $2)
