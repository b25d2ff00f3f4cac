-- Ends of runs, counted by the minute, for charts. docs/decisions/0044-dashboard-reads-rollups.md says why.

-- The buckets of all histograms: below a millisecond, between two bounds, an hour and more. `store/reads/figures.py` knows the same bounds.
create or replace function duly.bucket_of(p_seconds double precision) returns smallint language sql immutable parallel safe as $$
    select width_bucket(p_seconds, array[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600]::double precision[])::smallint
$$;

create or replace function duly.added(p_one integer[], p_other integer[]) returns integer[] language sql immutable parallel safe as $$
    select array(select p_one[bucket] + p_other[bucket] from generate_series(1, cardinality(p_one)) as bucket order by bucket)
$$;

-- Follow up the ends that a statement has recorded: release their dependents, and count all of them. One trigger for both, because it runs for
-- every statement that records anything.
--
-- A run does not know its dependents. So the statement asks, first of all, whether any run waits for another: by the index, whose first page
-- says so. A statement that records nothing counts nothing; and what has waited has no start delay. No settings in its head.
create or replace function duly.follow_up() returns trigger language plpgsql as $$
begin
    perform from duly.dependencies order by parent limit 1;
    if found then
        perform duly.record_ends(array_agg(run_id), array_agg(became::text)) from ended
          where outcome <> 'fenced' and became in ('succeeded', 'dead', 'cancelled', 'expired', 'skipped') having count(*) > 0;
    end if;
    insert into duly.tallies (minute, tenant, queue, outcome, became, skew, duration, runs)
    select date_trunc('minute', finished_at, 'UTC'), tenant, queue, outcome, became,
           case when outcome <> 'fenced' and metadata->'waited' is null then duly.bucket_of(date_part('epoch', started_at - due_at)) end,
           case when outcome <> 'fenced' then duly.bucket_of(date_part('epoch', finished_at - started_at)) end, count(*)
      from ended group by 1, 2, 3, 4, 5, 6, 7;
    return null;
end $$;

-- Move tallies into the roll-ups; how many were moved. While somebody else does it, none. An attempt that has begun has a duration.
create or replace function duly.fold_tallies(p_limit integer) returns integer language plpgsql as $$
declare
    v_moved integer;
begin
    if not pg_try_advisory_xact_lock(hashtext('duly.fold_tallies')) then
        return 0;
    end if;
    with taken as (
        delete from duly.tallies where ctid = any (array(select ctid from duly.tallies limit p_limit)) returning tallies.*),
    spread as materialized (
        select taken.tenant, grain, date_trunc(grain, taken.minute, 'UTC') as at, covers.queue, outcome, became, skew, duration, runs
          from taken cross join (values ('minute'), ('hour')) as grains(grain) cross join lateral (values (taken.queue), ('')) as covers(queue)),
    counted as (
        select tenant, grain, at, queue,
               sum(runs) filter (where duration is not null) as started, sum(runs) filter (where outcome = 'succeeded') as succeeded,
               sum(runs) filter (where outcome = 'failed') as failed, sum(runs) filter (where outcome = 'timed_out') as timed_out,
               sum(runs) filter (where outcome = 'lost') as lost, sum(runs) filter (where outcome = 'cancelled') as cancelled,
               sum(runs) filter (where outcome = 'snoozed') as snoozed, sum(runs) filter (where outcome = 'skipped' and became <> 'expired') as skipped,
               sum(runs) filter (where became = 'expired') as expired, sum(runs) filter (where outcome = 'fenced') as fenced,
               sum(runs) filter (where outcome in ('failed', 'timed_out', 'lost') and became in ('retrying', 'ready', 'scheduled', 'blocked')) as retried,
               sum(runs) filter (where outcome <> 'fenced' and became = 'dead') as dead
          from spread group by 1, 2, 3, 4),
    late as (select tenant, grain, at, queue, skew as bucket, sum(runs) as runs from spread where skew is not null group by 1, 2, 3, 4, 5),
    long as (select tenant, grain, at, queue, duration as bucket, sum(runs) as runs from spread where duration is not null group by 1, 2, 3, 4, 5),
    shaped as (
        select tenant, grain, at, queue, array_agg(coalesce(late.runs, 0)::integer order by bucket) as skew, array_agg(coalesce(long.runs, 0)::integer order by bucket) as duration
          from counted cross join generate_series(0, 20) as bucket
          left join late using (tenant, grain, at, queue, bucket) left join long using (tenant, grain, at, queue, bucket) group by 1, 2, 3, 4),
    kept as (
        insert into duly.rollups (tenant, grain, at, queue, started, succeeded, failed, timed_out, lost, cancelled, snoozed, skipped, expired, fenced,
                                  retried, dead, skew, duration)
        select tenant, grain, at, queue, coalesce(started, 0), coalesce(succeeded, 0), coalesce(failed, 0), coalesce(timed_out, 0), coalesce(lost, 0),
               coalesce(cancelled, 0), coalesce(snoozed, 0), coalesce(skipped, 0), coalesce(expired, 0), coalesce(fenced, 0), coalesce(retried, 0),
               coalesce(dead, 0), shaped.skew, shaped.duration
          from counted join shaped using (tenant, grain, at, queue)
        on conflict (tenant, grain, queue, at) do update
           set started = rollups.started + excluded.started, succeeded = rollups.succeeded + excluded.succeeded, failed = rollups.failed + excluded.failed,
               timed_out = rollups.timed_out + excluded.timed_out, lost = rollups.lost + excluded.lost, cancelled = rollups.cancelled + excluded.cancelled,
               snoozed = rollups.snoozed + excluded.snoozed, skipped = rollups.skipped + excluded.skipped, expired = rollups.expired + excluded.expired,
               fenced = rollups.fenced + excluded.fenced, retried = rollups.retried + excluded.retried, dead = rollups.dead + excluded.dead,
               skew = duly.added(rollups.skew, excluded.skew), duration = duly.added(rollups.duration, excluded.duration))
    select count(*) into v_moved from taken;
    return v_moved;
end $$;
