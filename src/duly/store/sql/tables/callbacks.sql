-- name: pending
select telling_id, job_id from duly.tellings where telling_id > $1 order by telling_id limit $2

-- name: deliver
select run_id, answer, queue from duly.deliver($1)
