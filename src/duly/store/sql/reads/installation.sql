-- name: take_turn
-- The figures as of now, which are old enough to be read anew; no row: they are fresh, or another process is reading them. A turn that has not
-- ended after $2 is taken over. A moment that lies ahead is from before a step of the clock.
insert into duly.metrics (turn, taken_at) values (1, duly.clock_now())
on conflict (is_only) do update set turn = metrics.turn + 1, taken_at = excluded.taken_at
 where metrics.taken_at not between excluded.taken_at - case when metrics.read_at >= metrics.taken_at then $1::interval else greatest($1::interval, $2::interval) end
                                and excluded.taken_at or $1::interval <= interval '0'
returning turn, figures

-- name: keep
-- Figures are as old as the turn that read them. A turn that took so long that another process had the next one writes nothing.
update duly.metrics set figures = $2, read_at = taken_at where turn = $1 returning extract(epoch from duly.clock_now() - read_at)::double precision

-- name: give_back
-- A turn that has failed: the next look takes another.
update duly.metrics set taken_at = coalesce(read_at, '-infinity') where turn = $1

-- name: kept
select figures, extract(epoch from duly.clock_now() - read_at)::double precision as age from duly.metrics where figures is not null

-- name: depths
-- Of each tenant $1 queues, those of $2 and the deepest first, and its others together as none; counted up to a bound.
select case when number <= $1 then queue end as queue, tenant, is_backfill, sum(runs)::bigint as runs, min(oldest_due_at) as oldest_due_at
  from (select queue, tenant, is_backfill, runs, oldest_due_at,
               dense_rank() over (partition by tenant order by queue = any ($2) desc, in_queue desc, queue) as number
          from (select queue, tenant, is_backfill, count(*) as runs, min(due_at) as oldest_due_at, sum(count(*)) over (partition by tenant, queue) as in_queue
                  from (select queue, tenant, due_at, priority >= 100 as is_backfill from duly.ready limit $3) as waiting
                 group by queue, tenant, is_backfill) as lanes) as ranked
 group by 1, 2, 3 order by 2, 4 desc

-- name: heads
-- The oldest runs, where there are more than are counted: the first of each queue, tenant and priority, one step of the index for each.
with recursive heads as (
    (select queue, tenant, priority, due_at from duly.ready where not is_unroutable order by queue, tenant, priority, due_at limit 1)
    union all
    select next.queue, next.tenant, next.priority, next.due_at from heads cross join lateral (
        select ready.queue, ready.tenant, ready.priority, ready.due_at from duly.ready
         where not ready.is_unroutable and (ready.queue, ready.tenant, ready.priority) > (heads.queue, heads.tenant, heads.priority)
         order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as next)
select queue, tenant, priority >= 100 as is_backfill, min(due_at) as oldest_due_at from (select * from heads limit $1) as first group by 1, 2, 3

-- name: engine
-- Schedulers, workers and shards, and what waits where no queue shows it; counted up to a bound.
select (select count(*) from duly.schedulers where until > duly.clock_now()) as schedulers,
       (select count(*) from duly.workers where until > duly.clock_now()) as workers,
       (select count(*) from duly.workers where until > duly.clock_now() and stalled_at is not null) as stalled_workers,
       (select count(*) from duly.shards join duly.schedulers on scheduler_id = holder and until > duly.clock_now()) as shards_held,
       (select sum(epoch) from duly.shards)::bigint as shard_grants,
       (select coalesce(extract(epoch from greatest(duly.clock_now() - done_at, interval '0')), 0)::double precision
          from duly.maintenance_tasks where name = 'reap') as reaper_age_seconds,
       coalesce((select value from duly.counters where name = 'lease_expiries'), 0) as lease_expiries,
       (select count(*) from (select from duly.leased limit $1) as counted) as leased_runs,
       (select count(*) from (select from duly.ready where is_unroutable limit $1) as counted) as unroutable_runs,
       (select count(*) from (select from duly.dead limit $1) as counted) as dead_letters

-- name: database
-- Of other roles' sessions the server may not show everything: that is left out. Transactions of other databases do not hold vacuum back in this
-- one; the server stops when any of them must be frozen.
select (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
       current_setting('max_connections')::integer as connections_max,
       coalesce((select extract(epoch from max(clock_timestamp() - xact_start)) from pg_stat_activity
                  where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'), 0)::double precision
           as oldest_transaction_seconds,
       (select count(*) from pg_prepared_xacts where database = current_database()) as prepared_transactions,
       coalesce((select extract(epoch from max(clock_timestamp() - prepared)) from pg_prepared_xacts where database = current_database()), 0)::double precision
           as oldest_prepared_seconds,
       coalesce((select max(greatest(age(backend_xid), age(backend_xmin))) from pg_stat_activity
                  where datname = current_database() and backend_type not in ('walsender', 'autovacuum worker')), 0)::bigint as xmin_transaction,
       coalesce((select max(age(transaction)) from pg_prepared_xacts where database = current_database()), 0)::bigint as xmin_prepared,
       coalesce((select max(greatest(age(xmin), age(catalog_xmin))) from pg_replication_slots), 0)::bigint as xmin_slot,
       coalesce((select max(age(backend_xmin)) from pg_stat_replication), 0)::bigint as xmin_replica,
       (select max(age(datfrozenxid)) from pg_database)::bigint as freeze_age,
       pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end, '0/0')::bigint as wal_bytes,
       coalesce((select max(pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end, restart_lsn))
                   from pg_replication_slots where not active), 0)::bigint as slot_retained_bytes,
       coalesce((select max(extract(epoch from replay_lag)) from pg_stat_replication), 0)::double precision as replica_lag_seconds

-- name: dead_rows
-- Of the tables that runs pass through; partitions count with their table.
select name, sum(dead_rows)::bigint as dead_rows
  from (select case when relispartition then case when relname like 'logs%' then 'logs' else 'attempts' end else relname::text end as name,
               pg_stat_get_dead_tuples(oid) as dead_rows
          from pg_class where relnamespace = 'duly'::regnamespace and relkind = 'r'
           and (relispartition or relname in ('timers', 'blocked', 'ready', 'leased', 'dead', 'tallies', 'jobs', 'concurrency_keys'))) as each
 group by name order by name

-- name: bytes
select pg_database_size(current_database())
