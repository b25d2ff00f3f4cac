-- name: send
select pg_notify('duly_ready', queue) from unnest($1::text[]) as hinted(queue)

-- name: send_to_all
select pg_notify('duly_ready', '')

-- name: send_holds_changed
select pg_notify('duly_holds', '')
