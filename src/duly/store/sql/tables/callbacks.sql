-- name: pending
select callback_id, job_id from duly.completion_callbacks
 where callback_id > $1 and not exists (select from duly.absent_tenants where absent_tenants.tenant = completion_callbacks.tenant) order by callback_id limit $2

-- name: deliver
select run_id, answer, queue from duly.deliver($1)
