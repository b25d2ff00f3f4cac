-- name: primary
-- The installation is its database and the moment of its baseline; the position is the end of what was flushed: a standby receives nothing later.
-- A server in recovery has none.
select case when not pg_is_in_recovery() then pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint end as position,
       (select oid::bigint from pg_database where datname = current_database()) as database_id,
       (select applied_at from duly.migrations where version = 1) as founded_at,
       (select max(version) from duly.migrations) as schema, (select max(edition) from duly.functions) as edition

-- name: standby
select case when pg_is_in_recovery() then coalesce(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0'), 0)::bigint end as position,
       (select oid::bigint from pg_database where datname = current_database()) as database_id,
       (select applied_at from duly.migrations where version = 1) as founded_at,
       (select max(version) from duly.migrations) as schema, (select max(edition) from duly.functions) as edition
