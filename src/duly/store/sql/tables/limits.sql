-- name: put
-- Each tenant has its own number of limits, so that none of them can use up the room for the others. Two who come at once may pass it.
-- A limit set by the operator ($7) stays, unless the operator changes it ($6): checked on the locked row.
insert into duly.limits (tenant, queue, slots, set_by, set_at)
select $1, $2, $3, $4, duly.clock_now()
 where exists (select from duly.limits where tenant is not distinct from $1 and queue is not distinct from $2)
    or (select count(*) from duly.limits where tenant is not distinct from $1) < $5
on conflict (coalesce(tenant, 0), coalesce(queue, '')) do update set slots = excluded.slots, set_by = excluded.set_by, set_at = excluded.set_at
 where $6::boolean or not starts_with(limits.set_by, $7::text)
returning slots

-- name: remove
delete from duly.limits where tenant is not distinct from $1 and queue is not distinct from $2
   and ($3::boolean or not starts_with(set_by, $4::text)) returning slots

-- name: find
select tenant, queue, slots, duly.count_leased(tenant, queue, 1000000) as running, set_by, set_at from duly.limits
 where tenant is not distinct from $1 and queue is not distinct from $2

-- name: standing
-- Counted in one walk over what is leased, however many limits there are.
with held as (select tenant, queue, count(*) as runs from duly.leased where handler <> '@workflow' group by tenant, queue)
select limits.tenant, limits.queue, limits.slots, limits.set_by, limits.set_at,
       coalesce((select sum(held.runs) from held where coalesce(limits.tenant, held.tenant) = held.tenant
                    and coalesce(limits.queue, held.queue) = held.queue), 0)::integer as running
  from duly.limits order by limits.tenant nulls first, limits.queue nulls first
