-- name: server
-- Of other roles' sessions the server may not show everything: that is left out.
select current_setting('server_version') as version, current_database()::text as database, pg_database_size(current_database()) as bytes,
       pg_is_in_recovery() or current_setting('default_transaction_read_only')::boolean as is_read_only,
       current_setting('fsync')::boolean as fsync, current_setting('full_page_writes')::boolean as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit, current_setting('autovacuum')::boolean as autovacuum,
       current_setting('wal_level') as wal_level,
       case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end::text as wal_position,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
       current_setting('max_connections')::integer as connections_max,
       (select extract(epoch from max(clock_timestamp() - xact_start))::double precision from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend') as oldest_transaction_seconds,
       (select count(*) from pg_prepared_xacts where database = current_database()) as prepared_transactions,
       (select extract(epoch from max(clock_timestamp() - prepared))::double precision from pg_prepared_xacts
         where database = current_database()) as oldest_prepared_seconds

-- name: tables
-- Partitions count with their table. What autovacuum waits for is the table's own setting, or the server's. What maintenance vacuums every
-- few seconds is behind sooner: there autovacuum is a safety net.
with ours as (
    select coalesce(pg_partition_root(c.oid), c.oid) as root, c.oid, c.reltuples,
           case when c.relname in ('ready', 'leased') then 20000 else coalesce((select option_value::double precision from pg_options_to_table(c.reloptions) where option_name = 'autovacuum_vacuum_threshold'),
                    current_setting('autovacuum_vacuum_threshold')::double precision)
           + coalesce((select option_value::double precision from pg_options_to_table(c.reloptions) where option_name = 'autovacuum_vacuum_scale_factor'),
                      current_setting('autovacuum_vacuum_scale_factor')::double precision) * greatest(c.reltuples, 0) end as dead_limit
      from pg_class as c where c.relnamespace = 'duly'::regnamespace and c.relkind = 'r')
select root.relname::text as name, sum(pg_total_relation_size(ours.oid))::bigint as bytes,
       sum(greatest(ours.reltuples, stats.n_live_tup, 0))::bigint as rows, coalesce(sum(stats.n_dead_tup), 0)::bigint as dead_rows,
       sum(ours.dead_limit) as dead_limit,
       max(greatest(stats.last_vacuum, stats.last_autovacuum)) as vacuumed_at, max(greatest(stats.last_analyze, stats.last_autoanalyze)) as analyzed_at
  from ours join pg_class as root on root.oid = ours.root left join pg_stat_all_tables as stats on stats.relid = ours.oid
 group by root.relname order by bytes desc, name

-- name: indexes
-- Those of partitions follow the index of their table.
select i.relname::text as name, pg_index.indisvalid as is_valid
  from pg_index join pg_class as i on i.oid = pg_index.indexrelid join pg_class as t on t.oid = pg_index.indrelid
 where t.relnamespace = 'duly'::regnamespace and not i.relispartition

-- name: missing_partitions
select wanted.parent || '_' || $1 as name from unnest(array['attempts_succeeded', 'attempts_failed', 'logs']) as wanted(parent)
 where to_regclass('duly.' || wanted.parent || '_' || $1) is null

-- name: replicas
select coalesce(application_name, client_addr::text, pid::text) as name, state, pg_wal_lsn_diff(sent_lsn, replay_lsn)::bigint as lag_bytes,
       extract(epoch from replay_lag)::double precision as lag_seconds
  from pg_stat_replication order by name limit 100

-- name: slots
select slot_name::text as name, active as is_active,
       coalesce(pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end, restart_lsn), 0)::bigint
           as retained_bytes
  from pg_replication_slots order by slot_name limit 100

-- name: xmin_holder
-- The oldest of what pins vacuum in this database. The snapshots of others reach back to a transaction that writes, so of the same age it is named.
select kind, name, age::bigint from (
    select case when backend_type = 'walsender' then 'replica' else 'transaction' end as kind,
           case when backend_type = 'walsender' then coalesce(nullif(application_name, ''), client_addr::text, pid::text) else pid::text end as name,
           greatest(age(backend_xid), age(backend_xmin)) as age, backend_xid is null as is_reader, xact_start as since
      from pg_stat_activity
     where pid <> pg_backend_pid() and backend_type <> 'autovacuum worker' and (datname = current_database() or backend_type = 'walsender')
    union all
    select 'prepared', gid, age(transaction), false, prepared from pg_prepared_xacts where database = current_database()
    union all
    select 'slot', slot_name::text, greatest(age(xmin), age(catalog_xmin)), false, null from pg_replication_slots) as holders
 where age is not null order by age desc, is_reader, since limit 1

-- name: freeze_age
-- Of all databases: the server stops when one of them must be frozen.
select datname::text as database, age(datfrozenxid)::bigint as age from pg_database order by 2 desc limit 1

-- name: server_process
select pg_backend_pid() as pid, pg_postmaster_start_time() as started_at

-- name: stalled
select name, extract(epoch from duly.clock_now() - stalled_at)::double precision as seconds, stalled_in as handlers
  from duly.workers where stalled_at is not null and until > duly.clock_now() order by stalled_at limit 100

-- name: schedulers
select schedulers.scheduler_id, schedulers.name, schedulers.version, schedulers.tzdb, schedulers.started_at, schedulers.until,
       count(shards.shard)::integer as shards
  from duly.schedulers left join duly.shards on shards.holder = schedulers.scheduler_id
 where schedulers.until > duly.clock_now() group by schedulers.scheduler_id order by schedulers.name, schedulers.scheduler_id

-- name: worker_versions
select version, count(*)::integer as workers from duly.workers where until > duly.clock_now() group by version order by version

-- name: unroutable
select queue, handler, runs, is_more, oldest_due_at, tenants, is_served from duly.unroutable($1, $2, $3)

-- name: schema
select max(version) from duly.migrations

-- name: tzdb_in_force
select version from duly.zone_data
