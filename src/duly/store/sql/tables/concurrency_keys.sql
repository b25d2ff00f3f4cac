-- name: reserve
select looked, given from duly.reserve_due($1)

-- name: limit_concurrency_key
select duly.limit_concurrency_key($1, $2, $3, $4, $5)

-- name: page
-- The keys of a tenant from a position on: in use, or limited. What waits is counted up to a number, for each key of the page.
with recursive waited as (
    (select key from duly.blocked where tenant = $1 and waits_for = 'concurrency' and key > $2 order by key limit 1)
    union all
    select next.key from waited cross join lateral (
        select key from duly.blocked where tenant = $1 and waits_for = 'concurrency' and blocked.key > waited.key order by key limit 1) as next),
keys as (
    select key from (
        (select key from waited limit $3)
        union (select key from duly.concurrency_keys where tenant = $1 and key > $2 order by key limit $3)
        union (select key from duly.rate_limits where tenant = $1 and key > $2 order by key limit $3)
        union (select key from duly.key_limits where tenant = $1 and key > $2 order by key limit $3)) as found
     order by key limit $3)
select keys.key, used.slots, coalesce(used.active, 0) as slots_used,
       (select count(*) from (select from duly.blocked where blocked.tenant = $1 and blocked.waits_for = 'concurrency' and blocked.key = keys.key limit $4) as at_concurrency_key) as waiting,
       coalesce(used.is_fifo, false) or exists (
           select from duly.blocked where blocked.tenant = $1 and blocked.waits_for = 'concurrency' and blocked.key = keys.key and blocked.options ? 'fifo') as is_fifo,
       coalesce(limits.per_second, rates.requested_per_second) as per_second, coalesce(limits.burst, rates.requested_burst) as burst,
       (select count(*) from (select from duly.blocked where blocked.tenant = $1 and blocked.waits_for = 'rate' and blocked.key = keys.key limit $4) as at_rate_limit) as waiting_for_rate,
       limits.slots as limit_slots, limits.per_second as limit_per_second, limits.burst as limit_burst, limits.changed_at
  from keys
  left join lateral (select * from duly.concurrency_keys as one where one.tenant = $1 and one.key = keys.key limit 1) as used on true
  left join lateral (select * from duly.rate_limits as one where one.tenant = $1 and one.key = keys.key limit 1) as rates on true
  left join lateral (select * from duly.key_limits where key_limits.tenant = $1 and key_limits.key = keys.key limit 1) as limits on true
 order by keys.key

-- name: find
-- One key, as a page shows it.
with keys as (select $2::text collate "C" as key, $3::integer as one)
select keys.key, used.slots, coalesce(used.active, 0) as slots_used,
       (select count(*) from (select from duly.blocked where blocked.tenant = $1 and blocked.waits_for = 'concurrency' and blocked.key = keys.key limit $4) as at_concurrency_key) as waiting,
       coalesce(used.is_fifo, false) or exists (
           select from duly.blocked where blocked.tenant = $1 and blocked.waits_for = 'concurrency' and blocked.key = keys.key and blocked.options ? 'fifo') as is_fifo,
       coalesce(limits.per_second, rates.requested_per_second) as per_second, coalesce(limits.burst, rates.requested_burst) as burst,
       (select count(*) from (select from duly.blocked where blocked.tenant = $1 and blocked.waits_for = 'rate' and blocked.key = keys.key limit $4) as at_rate_limit) as waiting_for_rate,
       limits.slots as limit_slots, limits.per_second as limit_per_second, limits.burst as limit_burst, limits.changed_at
  from keys
  left join lateral (select * from duly.concurrency_keys as one where one.tenant = $1 and one.key = keys.key limit 1) as used on true
  left join lateral (select * from duly.rate_limits as one where one.tenant = $1 and one.key = keys.key limit 1) as rates on true
  left join lateral (select * from duly.key_limits where key_limits.tenant = $1 and key_limits.key = keys.key limit 1) as limits on true
 where used.key is not null or rates.key is not null or limits.key is not null
    or exists (select from duly.blocked where blocked.tenant = $1 and blocked.waits_for = 'concurrency' and blocked.key = keys.key)
    or exists (select from duly.blocked where blocked.tenant = $1 and blocked.waits_for = 'rate' and blocked.key = keys.key)
