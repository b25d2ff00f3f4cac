-- name: open
insert into duly.browser_sessions (token_hash, key_id, tenant, opened_at, expires_at)
values ($1, $2, $3, duly.clock_now(), duly.clock_now() + $4::interval)

-- name: find
select key_id, expires_at - duly.clock_now() as left from duly.browser_sessions where token_hash = $1 and expires_at > duly.clock_now()

-- name: prolong
update duly.browser_sessions set expires_at = duly.clock_now() + $2::interval where token_hash = $1 and expires_at > duly.clock_now()

-- name: close
delete from duly.browser_sessions where token_hash = $1 returning tenant

-- name: forget
delete from duly.browser_sessions where token_hash in (
    select token_hash from duly.browser_sessions where expires_at <= duly.clock_now() order by expires_at limit $1)
