-- name: pending
select telling_id from duly.tellings order by telling_id limit $1

-- name: deliver
select run_id, answer, queue from duly.deliver_v1($1)
