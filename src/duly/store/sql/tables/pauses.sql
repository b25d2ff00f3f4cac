-- name: pause_scope
-- A scope that is held keeps its first reason. Each tenant has its own number of holds, so that none of them can use up the room for
-- the others, or for a stop of everything. Two who come at once may pass it: it is about the work of reading them.
with created as (
    insert into duly.pauses (tenant, queue, reason, paused_by, paused_at)
    select $1, $2, $3, $4, duly.clock_now() where (select count(*) from duly.pauses where tenant is not distinct from $1) < $5
    on conflict do nothing returning paused_at)
select case when exists (select from created) then 'paused'
            when exists (select from duly.pauses where tenant is not distinct from $1 and queue is not distinct from $2)
              or (select count(*) from duly.pauses where tenant is not distinct from $1) < $5 then 'already'     -- Made by another just now.
            else 'full' end

-- name: resume_scope
delete from duly.pauses where tenant is not distinct from $1 and queue is not distinct from $2 returning paused_at

-- name: standing
select tenant, queue, reason, paused_by, paused_at from duly.pauses order by paused_at, tenant nulls first, queue nulls first
