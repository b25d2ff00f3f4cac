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
