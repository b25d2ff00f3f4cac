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
