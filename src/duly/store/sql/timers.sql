-- name: stage
select staged, next_due_at, read_at from duly.stage_v1($1, $2, $3, $4, $5, $6)
