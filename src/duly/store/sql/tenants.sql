-- name: create
insert into duly.tenants (name, schedules_max, ready_max, submit_rate, least_period, created_at) values ($1, $2, $3, $4, $5, duly.clock_now())
on conflict (name) do nothing
returning tenant, name, state, schedules_max, ready_max, submit_rate, least_period, created_at

-- name: find
select tenant, name, state, schedules_max, ready_max, submit_rate, least_period, created_at from duly.tenants where tenant = $1

-- name: by_name
select tenant, name, state, schedules_max, ready_max, submit_rate, least_period, created_at from duly.tenants where name = $1

-- name: page
select tenant, name, state, schedules_max, ready_max, submit_rate, least_period, created_at from duly.tenants
 where $1::integer is null or tenant > $1 order by tenant limit $2

-- name: set_state
update duly.tenants set state = $2 where tenant = $1 returning tenant

-- name: set_limits
update duly.tenants set schedules_max = $2, ready_max = $3, submit_rate = $4, least_period = $5 where tenant = $1 returning tenant

-- name: draw
select drawn, tokens from duly.draw_v1($1, $2, $3, $4, $5)

-- name: count_usage
select duly.count_usage_v1()
