-- What ended, counted by the minute, for charts; and the sessions of people who look at them. docs/decisions/0034-the-dashboard.md says why.

-- The buckets of all histograms: below a millisecond, between two bounds, an hour and more. `store/figures.py` knows the same bounds.
create function duly.bucket_of(p_seconds double precision) returns smallint language sql immutable parallel safe as $$
    select width_bucket(p_seconds, array[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600]::double precision[])::smallint
$$;

create function duly.added(p_one integer[], p_other integer[]) returns integer[] language sql immutable parallel safe as $$
    select array(select p_one[place] + p_other[place] from generate_series(1, cardinality(p_one)) as place order by place)
$$;

-- What statements have recorded, summed up, until it is folded into the roll-ups. Rows come and go, and are never updated.
create table duly.tallies (
    minute       timestamptz not null,
    tenant       integer     not null,
    queue        text        not null collate "C",
    outcome      duly.outcome not null,
    became       duly.state  not null,
    skew         smallint,                              -- the bucket of how late it began; null: it never did
    duration     smallint,
    runs         integer     not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- Under an empty name stands the sum of all queues.
create table duly.rollups (
    tenant       integer     not null,
    grain        text        not null check (grain in ('minute', 'hour')),
    at           timestamptz not null,
    queue        text        not null collate "C",
    started      integer     not null,                  -- attempts that had begun, counted where they ended
    succeeded    integer     not null,
    failed       integer     not null,
    timed_out    integer     not null,
    lost         integer     not null,
    cancelled    integer     not null,
    snoozed      integer     not null,
    skipped      integer     not null,
    expired      integer     not null,
    fenced       integer     not null,
    retried      integer     not null,                  -- of those that did not succeed: another attempt follows
    dead         integer     not null,                  -- of those that did not succeed: nothing follows by itself
    skew         integer[]   not null check (cardinality(skew) = 21),
    duration     integer[]   not null check (cardinality(duration) = 21),
    primary key (tenant, grain, queue, at)
) with (fillfactor = 70);
create index rollups_by_time on duly.rollups (at);

-- A statement that records nothing leaves nothing.
create function duly.tally_v1() returns trigger language plpgsql as $$
begin
    insert into duly.tallies (minute, tenant, queue, outcome, became, skew, duration, runs)
    select date_trunc('minute', finished_at, 'UTC'), tenant, queue, outcome, became,
           case when outcome <> 'fenced' then duly.bucket_of(date_part('epoch', started_at - due_at)) end,
           case when outcome <> 'fenced' then duly.bucket_of(date_part('epoch', finished_at - started_at)) end, count(*)
      from ended group by 1, 2, 3, 4, 5, 6, 7;
    return null;
end $$;
create trigger attempts_tallied after insert on duly.attempts referencing new table as ended for each statement execute function duly.tally_v1();

-- Move tallies into the roll-ups; how many were moved. While somebody else does it, none.
create function duly.fold_tallies_v1(p_limit integer) returns integer language plpgsql as $$
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
               sum(runs) filter (where skew is not null) as started, sum(runs) filter (where outcome = 'succeeded') as succeeded,
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

-- People who have logged in with a key. Of what opens a session only a hash is kept; it is good for what its key is good for.
create table duly.browser_sessions (
    token_hash   bytea       primary key check (octet_length(token_hash) = 32),
    key_id       text        not null,
    tenant       integer     not null,
    opened_at    timestamptz not null,
    expires_at   timestamptz not null
);
create index browser_sessions_by_expiry on duly.browser_sessions (expires_at);

alter table duly.rollups enable row level security;
create policy of_its_tenant on duly.rollups for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.rollups to duly_api;
revoke execute on function duly.bucket_of(double precision), duly.added(integer[], integer[]), duly.tally_v1(), duly.fold_tallies_v1(integer) from public;
