-- name: record
insert into duly.migrations (version, name) values ($1, $2)

-- name: finish_all
update duly.migrations set finished_at = now() where finished_at is null
