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
