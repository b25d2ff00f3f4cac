-- name: send
select pg_notify('duly_ready', queue) from unnest($1::text[]) as hinted(queue)

-- name: send_holds_changed
select pg_notify('duly_holds', '')
