-- name: server
-- The clock of two hosts is compared, not that of the moves, which tests move.
select clock_timestamp()

-- name: record
-- Of the database's own clock the latest moment is kept, written at most about once a second. Rows of processes that have ended go.
with raised as (
    insert into duly.clock_high_water (at) values (duly.clock_now())
    on conflict (is_only) do update set at = excluded.at where clock_high_water.at < excluded.at - interval '1 second'),
removed as (
    delete from duly.processes where (role, name, host, schema) in (
        select role, name, host, schema from duly.processes
         where recorded_at not between duly.clock_now() - interval '10 minutes' and duly.clock_now() + interval '10 minutes'
           and (role, name, host, schema) <> ($1, $2, $3, $6)
         limit 100 for update skip locked))
insert into duly.processes (role, name, host, offset_seconds, version, schema, recorded_at) values ($1, $2, $3, $4, $5, $6, duly.clock_now())
on conflict (role, name, host, schema) do update set offset_seconds = excluded.offset_seconds, version = excluded.version, recorded_at = excluded.recorded_at

-- name: recorded
select role, name, host, offset_seconds from duly.processes
 where recorded_at > duly.clock_now() - interval '1 minute' order by role, host, name limit 1000

-- name: set_back
-- Nothing: the clock is right. A moment of two servers may differ a little after a failover.
select extract(epoch from at - duly.clock_now())::double precision as seconds, at as resumes_at
  from duly.clock_high_water where at > duly.clock_now() + interval '2 seconds'
