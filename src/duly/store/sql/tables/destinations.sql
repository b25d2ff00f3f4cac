-- name: report
select tenant, origin, ceiling, granted, is_contended, state, state_version, openings, failures_in_a_row, successes_in_a_row, healthy, failing, wait_seconds,
       requested_seconds, since_state_change_seconds, steady_rate, destination_id, retry_share, workers, rate, first_seconds, read_at
  from duly.report_destinations($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- name: change_destination_state
select duly.change_destination_state($1, $2, $3, $4, $5, $6, $7)

-- name: watched
select * from duly.watched_destinations($1, $2, $3)

-- name: release
select destination_id, released from duly.release_destinations($1, $2, $3)

-- name: forget
select duly.forget_destinations($1, $2)

-- name: create_destination
select duly.create_destination($1, $2, $3)

-- name: limit_destination
select duly.limit_destination($1, $2, $3, $4, $5)

-- name: keep_secret
select duly.keep_secret($1, $2, $3, $4, $5)

-- name: find_secrets
-- Those that are good, the newest first.
select destination_id, number, sealed, key_id, created_at, retires_at from duly.destination_secrets
 where destination_id = $1 and (retires_at is null or retires_at > duly.clock_now()) order by number desc limit 2

-- name: newest_number
select coalesce(max(number), 0) from duly.destination_secrets where destination_id = $1

-- name: find
select destination_id, tenant, origin, created_at, slots, rate_per_second, state, state_version, state_changed_at, openings,
       duly.clock_now() as read_at, nullif(greatest(wait_until, requested_until), '-infinity') as wait_until, steady_rate,
       case when duly.clock_now() < ramp_until then ramp_rate end as ramp_rate, load.in_flight, load.waiting, healthy_total, failing_total,
       retry_share, retries_total, rejected_total,
       (select count(*) from (select from duly.blocked where blocked.tenant = destinations.tenant and blocked.waits_for = 'destination' and blocked.key = destinations.origin
                               limit 10000) as counted) as waiting_runs
  from duly.destinations cross join lateral duly.load_of_destination(destination_id) as load where tenant = $1 and destination_id = $2

-- name: find_by_origin
select destination_id from duly.destinations where tenant = $1 and origin = $2

-- name: page
select destination_id, tenant, origin, created_at, slots, rate_per_second, state, state_version, state_changed_at, openings,
       duly.clock_now() as read_at, nullif(greatest(wait_until, requested_until), '-infinity') as wait_until, steady_rate,
       case when duly.clock_now() < ramp_until then ramp_rate end as ramp_rate, load.in_flight, load.waiting, healthy_total, failing_total,
       retry_share, retries_total, rejected_total,
       (select count(*) from (select from duly.blocked where blocked.tenant = destinations.tenant and blocked.waits_for = 'destination' and blocked.key = destinations.origin
                               limit 10000) as counted) as waiting_runs
  from duly.destinations cross join lateral duly.load_of_destination(destination_id) as load
 where tenant = $1 and origin > $2 order by tenant, origin limit $3

-- name: waiting_page
-- The runs that wait for an origin, in the order in which they go on, behind one that was seen.
select run_id, job_id, scheduled_at, due_at, attempt, queue, blocked_at from duly.blocked
 where tenant = $1 and waits_for = 'destination' and key = $2 and (due_at, run_id) > ($3::timestamptz, $4::uuid) order by due_at, run_id limit $5

-- name: page_failures
select run_id, job_id, attempt, finished_at, outcome, status, reason from duly.page_failures($1, $2, $3, $4, $5, $6)

-- name: totals
select state, count(*) as destinations, coalesce(sum(healthy_total), 0)::bigint as healthy, coalesce(sum(failing_total), 0)::bigint as failing,
       coalesce(sum(retries_total), 0)::bigint as retries, coalesce(sum(rejected_total), 0)::bigint as rejected
  from duly.destinations group by state

-- name: in_flight_in_all
select coalesce(sum(in_flight), 0)::bigint from duly.destination_shares
 where exists (select from duly.workers where workers.worker_id = destination_shares.worker_id)

-- name: waiting_in_all
select count(*) from (select from duly.blocked where waits_for = 'destination' limit $1) as counted
