-- name: take_event
select is_duplicate, runs, queues from duly.take_event($1, $2, $3, $4, $5::text::jsonb, $6::text::jsonb)

-- name: forget_events
delete from duly.events where (tenant, digest) in (
    select tenant, digest from duly.events where received_at < (select duly.clock_now()) - $1::interval order by received_at limit $2)
