-- name: create
with created as (
    insert into duly.tenants (name, schedules_max, ready_max, submit_rate, weight, least_period, created_at) values ($1, $2, $3, $4, $6, $7, duly.clock_now())
    on conflict (name) do nothing
    returning tenant, name, state, schedules_max, ready_max, submit_rate, weight, least_period, created_at),
limited as (
    insert into duly.limits (tenant, slots, set_by, set_at) select tenant, $5, 'the operator', created_at from created where $5::integer is not null)
select *, $5::integer as running_max, '{}'::text[] as redact from created

-- name: find
select tenant, name, state, schedules_max, ready_max, submit_rate, weight, least_period, created_at,
       (select slots from duly.limits where limits.tenant = tenants.tenant and limits.queue is null) as running_max,
       coalesce((select rules from duly.redactions where redactions.tenant = tenants.tenant), '{}') as redact
  from duly.tenants where tenant = $1

-- name: number_of
select tenant from duly.tenants where name = $1 or tenant::text = $1

-- name: page
select tenant, name, state, schedules_max, ready_max, submit_rate, weight, least_period, created_at,
       (select slots from duly.limits where limits.tenant = tenants.tenant and limits.queue is null) as running_max,
       coalesce((select rules from duly.redactions where redactions.tenant = tenants.tenant), '{}') as redact
  from duly.tenants
 where $1::integer is null or tenant > $1 order by tenant limit $2

-- name: set_state
update duly.tenants set state = $2 where tenant = $1 returning tenant

-- name: set_limits
with known as (update duly.tenants set schedules_max = $2, ready_max = $3, submit_rate = $4, weight = $6, least_period = $7 where tenant = $1 returning tenant),
freed as (delete from duly.limits where tenant = $1 and queue is null and $5::integer is null),
limited as (
    insert into duly.limits (tenant, slots, set_by, set_at) select tenant, $5, 'the operator', duly.clock_now() from known where $5::integer is not null
    on conflict (coalesce(tenant, 0), coalesce(queue, '')) do update set slots = excluded.slots, set_by = excluded.set_by, set_at = excluded.set_at
     where limits.slots <> excluded.slots)
select tenant from known

-- name: set_rules
select duly.set_rules($1, $2)

-- name: draw
select drawn, tokens from duly.draw($1, $2, $3, $4, $5)

-- name: count_usage
select duly.count_usage()
