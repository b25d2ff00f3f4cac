-- name: open
-- Of a key's sessions the $7 used last stay, this one among them.
with ended as (
    delete from duly.browser_sessions where token_hash in (
        select token_hash from duly.browser_sessions where tenant = $3 and key_id = $2 order by last_used_at desc offset $7::integer - 1))
insert into duly.browser_sessions (token_hash, key_id, tenant, opened_at, last_used_at, expires_at, address, user_agent)
values ($1, $2, $3, duly.clock_now(), duly.clock_now(), duly.clock_now() + $4::interval, $5, $6)

-- name: find
select session_id, key_id, expires_at - duly.clock_now() as left from duly.browser_sessions
 where token_hash = $1 and expires_at > duly.clock_now()

-- name: prolong
update duly.browser_sessions set expires_at = duly.clock_now() + $2::interval, last_used_at = duly.clock_now()
 where token_hash = $1 and expires_at > duly.clock_now()

-- name: close
delete from duly.browser_sessions where token_hash = $1 returning tenant

-- name: page
-- Of a tenant, or of one of its keys, the last opened first, behind a position in that order. Those of a revoked key open nothing.
select session_id, one.tenant, key_id, keys.name as key_name, opened_at, one.last_used_at, one.expires_at, address, user_agent
  from duly.browser_sessions as one join duly.api_keys as keys using (key_id)
 where one.tenant = $1 and ($2::text is null or key_id = $2) and one.expires_at > duly.clock_now()
   and keys.revoked_at is null and (keys.expires_at is null or keys.expires_at > duly.clock_now())
   and ($3::timestamptz is null or (opened_at, session_id) < ($3, $4))
 order by opened_at desc, session_id desc limit $5

-- name: revoke
-- Of a tenant, or of one of its keys; none: of any.
delete from duly.browser_sessions
 where session_id = $1 and ($2::integer is null or tenant = $2) and ($3::text is null or key_id = $3) and expires_at > duly.clock_now()
returning tenant, key_id, coalesce((select name from duly.api_keys where api_keys.key_id = browser_sessions.key_id), '') as key_name

-- name: forget
delete from duly.browser_sessions where token_hash in (
    select token_hash from duly.browser_sessions where expires_at <= duly.clock_now() order by expires_at limit $1)
