-- name: find
-- A tenant that is on its way to another cell has that state here.
select api_keys.key_id, api_keys.tenant, tenants.name as tenant_name,
       case when tenants.state = 'active' then coalesce(absent_tenants.state, 'active') else tenants.state end as tenant_state,
       tenants.submit_rate as tenant_rate,
       api_keys.name,
       api_keys.secret_hash, api_keys.scopes, api_keys.submit_rate as rate, api_keys.created_at, api_keys.expires_at, api_keys.revoked_at,
       api_keys.last_used_at
  from duly.api_keys join duly.tenants using (tenant) left join duly.absent_tenants using (tenant) where api_keys.key_id = $1

-- name: moved
select moved_keys.secret_hash, absent_tenants.state, absent_tenants.cell, tenants.name
  from duly.moved_keys join duly.absent_tenants using (tenant) join duly.tenants using (tenant) where moved_keys.key_id = $1

-- name: create
-- Without a row there is no such tenant.
insert into duly.api_keys (key_id, tenant, name, secret_hash, scopes, submit_rate, created_at, expires_at)
select $1, tenants.tenant, $3, $4, $5, $6, duly.clock_now(), $7 from duly.tenants where tenants.tenant = $2
returning key_id

-- name: revoke
-- Repeated, it stays as it was, and says so. Another tenant's key is as unknown as none.
with before as (select key_id, revoked_at from duly.api_keys where key_id = $1 and ($2::integer is null or tenant = $2) for no key update)
update duly.api_keys set revoked_at = coalesce(before.revoked_at, duly.clock_now()) from before where api_keys.key_id = before.key_id
returning api_keys.tenant, api_keys.name, before.revoked_at is not null as was_revoked

-- name: page
select api_keys.key_id, api_keys.tenant, tenants.name as tenant_name, tenants.state as tenant_state, tenants.submit_rate as tenant_rate,
       api_keys.name,
       api_keys.secret_hash, api_keys.scopes, api_keys.submit_rate as rate, api_keys.created_at, api_keys.expires_at, api_keys.revoked_at,
       api_keys.last_used_at
  from duly.api_keys join duly.tenants using (tenant)
 where ($1::integer is null or api_keys.tenant = $1) and ($2::text is null or api_keys.key_id > $2) order by api_keys.key_id limit $3

-- name: touch
-- To the minute: a key that is used all the time is written once in it.
update duly.api_keys set last_used_at = duly.clock_now()
 where key_id = any ($1::text[]) and (last_used_at is null or last_used_at <= duly.clock_now() - interval '1 minute')

-- name: any_usable
select exists (select from duly.api_keys join duly.tenants using (tenant)
                where revoked_at is null and (expires_at is null or expires_at > duly.clock_now()) and tenants.state = 'active')
