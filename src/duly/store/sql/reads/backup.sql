-- name: facts
select pg_export_snapshot() as name, duly.clock_now() as taken_at, current_setting('server_version') as server,
       (select max(version) from duly.migrations) as schema_version, (select max(edition) from duly.functions) as edition

-- name: counting
-- The statement that counts each table that has rows of its own.
select relname::text as name, format('select count(*) from duly.%I', relname) as statement
  from pg_class where relnamespace = to_regnamespace('duly') and relkind = 'r' order by relname

-- name: target
select to_regnamespace('duly') is not null as has_schema, to_regclass('duly.workers') is not null as has_tables,
       current_setting('server_version') as server, current_setting('server_version_num')::integer / 10000 as major,
       current_database()::text as name

-- name: sessions
-- Sessions of Duly's processes, which name themselves so.
select application_name || ', process ' || pid from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and application_name ~ '^duly( |$)' order by pid limit 10

-- name: processes
-- Processes whose lease is valid.
select 'worker ' || name from duly.workers where until > duly.clock_now()
union all
select 'scheduler ' || name from duly.schedulers where until > duly.clock_now() limit 10

-- name: last_moment
-- The last moment that the clock of the database had here.
select coalesce((select at from duly.clock_high_water), (select max(done_at) from duly.maintenance_tasks), duly.clock_now())
