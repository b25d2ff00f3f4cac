-- name: exists
select to_regclass('duly.migrations') is not null

-- name: applied
-- Development versions had no such column. Their data is refused, but only once it has been read.
select version, name, to_jsonb(migrations)->'finished_at' is distinct from 'null' as is_finished from duly.migrations
