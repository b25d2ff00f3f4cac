-- name: index
select indisvalid as is_valid, exists (select from pg_stat_progress_create_index where index_relid = indexrelid) as is_being_built
  from pg_index where indexrelid = to_regclass('duly.' || $1)
