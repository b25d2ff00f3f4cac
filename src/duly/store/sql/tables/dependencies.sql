-- name: check
select duly.check_dependents($1)

-- name: vacuum
vacuum (skip_locked, truncate off) duly.ended_dependencies
