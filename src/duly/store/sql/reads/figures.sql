-- name: fold
select duly.fold_tallies($1)

-- name: vacuum
vacuum (skip_locked, truncate off) duly.tallies

-- name: forget
delete from duly.rollups where ctid = any (array(
    select ctid from duly.rollups where at < (select duly.clock_now()) - $1::interval order by at limit $2))

-- name: series
-- $5: seconds of a step; $6: the queue, or nothing for all of them. Compared as rows, so that only the primary key serves: the index
-- by time would read every queue of every tenant.
with chosen as materialized (
    select to_timestamp(floor(date_part('epoch', at) / $5::integer) * $5::integer) as step, rollups.* from duly.rollups
     where (tenant, grain, queue, at) >= ($1, $2, $6, $3) and (tenant, grain, queue, at) < ($1, $2, $6, $4)),
counted as (
    select step, sum(started)::bigint as started, sum(succeeded)::bigint as succeeded, sum(failed)::bigint as failed, sum(timed_out)::bigint as timed_out,
           sum(lost)::bigint as lost, sum(cancelled)::bigint as cancelled, sum(snoozed)::bigint as snoozed, sum(skipped)::bigint as skipped,
           sum(expired)::bigint as expired, sum(fenced)::bigint as fenced, sum(retried)::bigint as retried, sum(dead)::bigint as dead
      from chosen group by 1),
bucketed as (
    select step, bucket, sum(late)::bigint as late, sum(long)::bigint as long
      from chosen cross join lateral unnest(skew, duration) with ordinality as buckets(late, long, bucket) group by 1, 2),
shaped as (
    select step, array_agg(late order by bucket) as skew, array_agg(long order by bucket) as duration from bucketed group by 1)
select counted.*, shaped.skew, shaped.duration from counted join shaped using (step) order by step

-- name: waiting
-- Runs of a tenant that may be claimed, by queue and handler, up to a bound; one row more means that there are more.
select queue, handler, count(*) as runs, min(due_at) as oldest_due_at
  from (select queue, handler, due_at from duly.ready where (tenant, run_id) > ($1, '00000000-0000-0000-0000-000000000000') and tenant = $1
         order by tenant, run_id limit $2) as waiting group by 1, 2 order by 1, 2

-- name: dead
-- Count dead letters up to a bound, and those of the last hour: the index alone shows both. Also the reason of the last one.
select count(*) as runs, count(*) filter (where buried_at > (select duly.clock_now()) - interval '1 hour') as lately,
       (select reason from duly.dead where tenant = $1 order by tenant desc, buried_at desc, run_id desc limit 1) as reason
  from (select buried_at from duly.dead where tenant = $1 order by tenant desc, buried_at desc, run_id desc limit $2) as buried

-- name: open_destinations
select destination_id, origin, wait_until from duly.destinations where tenant = $1 and state <> 'closed' order by state_changed_at desc limit $2

-- name: paused
-- Schedules that were paused because they kept failing, up to a bound. They have an index: of a million, ten thousand may be paused by hand.
select job_id, name, pause_reason from duly.jobs where tenant = $1 and state = 'paused' and failures > 0 order by job_id desc limit $2

-- name: upcoming
-- Next fires and one-shots of a tenant before a moment, from the front of each shard; whether that was all. What fires once in the hour before
-- it is counted by the minute, and so in a row for each, however many they are; of what may fire again the moment counts.
select case when not is_once then cohort end as cohort, case when not is_once then every_seconds end as every_seconds,
       case when is_once then date_trunc('minute', due_at) else due_at end as due_at, count(*) as timers, bool_or(number = $3) as is_cut,
       not is_once and repeats as repeats
  from generate_series(0, 63) as slice(shard) cross join lateral (
       select cohort, every_seconds, due_at, tenant, row_number() over () as number, run_id is null and overlap is distinct from 'after_end' as repeats,
              run_id is not null or coalesce(every_seconds >= 3600 and due_at >= $2::timestamptz - interval '1 hour', false) as is_once
         from (select run_id, cohort, every_seconds, due_at, overlap, tenant from duly.timers
                where timers.shard = slice.shard and due_at < $2 order by due_at limit $3) as front) as front
 where tenant = $1 group by 1, 2, 3, 6

-- name: days_of_job
-- Outcomes of a job's occurrences in each quarter of an hour, up to a bound on rows read. Days of every zone begin with one.
with looked as (
    (select scheduled_at, 'succeeded' as became from duly.attempts_succeeded
      where job_id = $1 and run_id <> job_id and tenant = $2 and run_id >= $4 order by job_id desc, run_id desc limit $5)
    union all
    (select scheduled_at, became::text from duly.attempts_failed
      where job_id = $1 and run_id <> job_id and tenant = $2 and finished_at >= $3 and outcome <> 'fenced' order by job_id desc, finished_at desc limit $5))
select date_bin('15 minutes', scheduled_at, 'epoch') as at, count(*) filter (where became = 'succeeded') as succeeded,
       count(*) filter (where became in ('retrying', 'ready', 'scheduled', 'blocked')) as retried, count(*) filter (where became = 'dead') as dead,
       count(*) filter (where became in ('skipped', 'expired')) as skipped, count(*) filter (where became = 'cancelled') as cancelled
  from looked where scheduled_at >= $3 group by 1 order by 1
