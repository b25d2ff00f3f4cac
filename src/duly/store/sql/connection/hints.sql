-- name: send
select case queue when '@due' then pg_notify('duly_due', '') else pg_notify('duly_ready', queue) end from unnest($1::text[]) as hinted(queue)

-- name: send_to_all
select pg_notify('duly_ready', '')

-- name: send_pauses_changed
select pg_notify('duly_pauses', '')
