-- name: exists
select to_regclass('duly.migrations') is not null

-- name: applied
-- Development versions had no such column. Their data is refused, but only once it has been read.
select version, name, to_jsonb(migrations)->'finished_at' is distinct from 'null' as is_finished from duly.migrations

-- name: record
insert into duly.migrations (version, name) values ($1, $2)

-- name: finish_all
update duly.migrations set finished_at = now() where finished_at is null

-- name: older
select role, name, host, version from duly.processes
 where schema < $1 and recorded_at > duly.clock_now() - make_interval(secs => $2) order by role, host, name limit 100

-- name: shapes
-- Functions by their parameters and results, and the columns of tables and views.
select format('%s(%s) returns %s', proname, pg_get_function_identity_arguments(oid), pg_get_function_result(oid)) as shape, false as is_required
  from pg_proc where pronamespace = to_regnamespace('duly')
union all
select format('%s.%s %s', relname, attname, format_type(atttypid, atttypmod)),
       relkind <> 'v' and attnotnull and not atthasdef and attidentity = '' and attgenerated = ''
  from pg_attribute join pg_class on pg_class.oid = attrelid
 where relnamespace = to_regnamespace('duly') and relkind in ('r', 'p', 'v') and not relispartition and attnum > 0 and not attisdropped

-- name: holder
select pid, concat_ws(': ', coalesce(nullif(application_name, ''), backend_type),
                      regexp_replace(left(query, 200), '\s+', ' ', 'g')) as description
  from pg_stat_activity
 where pid <> pg_backend_pid() and pid in (
       select pid from pg_locks join pg_class on pg_class.oid = relation
        where granted and relnamespace = to_regnamespace('duly')
          and database = (select oid from pg_database where datname = current_database()))
 order by xact_start nulls first
 limit 1

-- name: owners
-- Of objects that we may not change.
select distinct pg_get_userbyid(owner)::text
  from (select relowner from pg_class where relnamespace = to_regnamespace('duly')
        union all select proowner from pg_proc where pronamespace = to_regnamespace('duly')) as made (owner)
 where not pg_has_role(owner, 'usage')

-- name: wait_for_vacuums
select set_config('lock_timeout', (setting::integer + 500)::text, true) from pg_settings where name = 'deadlock_timeout'

-- name: vacuumed
select relation::regclass::text from pg_locks join pg_class on pg_class.oid = relation
 where relnamespace = to_regnamespace('duly') and relkind = 'r' and mode = 'ShareUpdateExclusiveLock' and granted and pid <> pg_backend_pid()
   and database = (select oid from pg_database where datname = current_database())

-- name: sizes
-- Partitions count with their table; an index stands for its table.
select coalesce(root.relname, pg_class.relname)::text as name, greatest(0, sum(greatest(pg_class.reltuples, 0)))::bigint as rows,
       sum(pg_total_relation_size(pg_class.oid))::bigint as bytes
  from pg_class left join pg_class as root on root.oid = pg_partition_root(pg_class.oid) and root.oid <> pg_class.oid
 where pg_class.relnamespace = to_regnamespace('duly') and pg_class.relkind = 'r' group by 1
union all
select i.relname, greatest(t.reltuples, 0)::bigint, pg_relation_size(i.oid)
  from pg_index join pg_class as i on i.oid = indexrelid join pg_class as t on t.oid = indrelid where i.relnamespace = to_regnamespace('duly')

-- name: oldest_transaction
-- Of those that have one of our tables locked.
select extract(epoch from max(clock_timestamp() - xact_start))::double precision from pg_stat_activity
 where pid <> pg_backend_pid() and pid in (
       select pid from pg_locks join pg_class on pg_class.oid = relation
        where granted and relnamespace = to_regnamespace('duly')
          and database = (select oid from pg_database where datname = current_database()))
