-- Concurrency keys: which of the waiting runs get a slot.

-- Release: give slots to runs. With p_left = 1 the given runs have left their concurrency keys, with 0 they have come to them, and p_arrived are those that
-- have come and are in no box yet: they go to ready where there is a slot, and to blocked where there is none. Then the oldest
-- waiting ones enter while there are slots; a run from `blocked` has waited. Called by every move that takes a run out of ready or
-- leased, or brings one to a concurrency key, as the last thing it does: keys are locked in one order, and the last transaction to lock a key sees what the one
-- before has done, so that no run waits for a key with a free slot. A count that was wrong must not hold up what leaves.
-- In FIFO order the first enters when no other is inside, and nothing that comes before it is due and still in timers. While one in FIFO order is
-- inside or waits, the key has one slot, also for runs that share it without FIFO. Where a run may wait only in limited company, those beyond the
-- limit are dropped, with a record: the newest of a queue, the older of a buffer of one.
create or replace function duly.release(p_tenants integer[], p_options jsonb[], p_left integer, p_arrived duly.blocked[]) returns integer
language plpgsql {planned by index, by loop, in order, unsorted} as $$
#variable_conflict use_column
declare
    v_now          timestamptz := duly.clock_now();
    v_overloaded   jsonb := duly.overloaded();
    v_tenants      integer[];
    v_keys        text[];
    v_slots       integer[];
    v_left         integer[];
    v_policies     text[];
    v_waiting_max  integer[];
    v_rate_tenants integer[];
    v_rates        jsonb[];
    v_next_tenants      integer[];
    v_next_rates        jsonb[];
    v_released     integer := 0;
begin
    select array_agg(tenant), array_agg(key), array_agg(slots), array_agg(left_slots), array_agg(policy), array_agg(waiting_max)
      into v_tenants, v_keys, v_slots, v_left, v_policies, v_waiting_max
      from (select tenant, key, max(slots) as slots, sum(left_slots) as left_slots, max(policy) as policy, max(waiting_max) as waiting_max
              from (select u.tenant, (u.options->'concurrency'->>0) collate "C" as key,
                           case when not u.options ? 'fifo' then (u.options->'concurrency'->>1)::integer end as slots,     -- The one slot of FIFO order says nothing of others.
                           case when u.options ? 'outside' then 0 else p_left end as left_slots,
                           u.options->'overlap'->>0 as policy, (u.options->'overlap'->>1)::integer as waiting_max
                      from unnest(p_tenants, p_options) as u(tenant, options)
                     where u.options ? 'concurrency' and not (p_left = 0 and u.options ? 'has_slot')
                    union all
                    select tenant, key, (options->'concurrency'->>1)::integer, 0, null, null from unnest(p_arrived)) as each
             group by tenant, key order by tenant, key) as sorted;
    if v_tenants is not null then
        insert into duly.concurrency_keys (tenant, key, slots)               -- Locks those that are there, and writes them not.
        select tenant, key, coalesce(slots, 1) from unnest(v_tenants, v_keys, v_slots) as u(tenant, key, slots)
        on conflict (tenant, key) do update set slots = excluded.slots where false;
        -- Each key that was named, locked, with the slots that are free after those who left.
        with requested as materialized (
            select u.tenant, u.key, row.tid, row.active - u.left_slots as active, fifo.is_waiting as has_fifo_waiting, row.is_fifo,
                   case when fifo.is_waiting or row.is_fifo then 1 else row.slots end as slots,
                   case when fifo.is_waiting or row.is_fifo then 1 else row.slots end - greatest(row.active - u.left_slots, 0) as free
              from unnest(v_tenants, v_keys, v_slots, v_left) as u(tenant, key, slots, left_slots)
             cross join lateral (
                   select concurrency_keys.ctid as tid, concurrency_keys.active, concurrency_keys.is_fifo and concurrency_keys.active > u.left_slots as is_fifo,
                          coalesce((select limits.slots from duly.key_limits as limits where limits.tenant = u.tenant and limits.key = u.key), u.slots,
                                   (select (options->'concurrency'->>1)::integer from duly.blocked where blocked.tenant = u.tenant and blocked.waits_for = 'concurrency' and blocked.key = u.key
                                     order by due_at, run_id limit 1), 1) as slots
                     from duly.concurrency_keys where concurrency_keys.tenant = u.tenant and concurrency_keys.key = u.key limit 1) as row
             cross join lateral (
                   select exists (select from duly.blocked where blocked.tenant = u.tenant and blocked.waits_for = 'concurrency' and blocked.key = u.key and blocked.options ? 'fifo') as is_waiting
                   offset 0) as fifo),
        -- The oldest waiting runs of a key without FIFO order, as many as it has free slots.
        oldest as materialized (
            select requested.tenant, requested.key, waiter.run_id from requested cross join lateral (
                   select run_id from duly.blocked where blocked.tenant = requested.tenant and blocked.waits_for = 'concurrency' and blocked.key = requested.key
                    order by due_at, run_id limit requested.free for update skip locked) as waiter
             where requested.free > 0 and not requested.has_fifo_waiting),
        -- The first run of a key in FIFO order, unless an earlier one is due and still in `timers`.
        first_in_order as materialized (
            select requested.tenant, requested.key, waiter.run_id from requested cross join lateral (
                   select blocked.run_id from duly.blocked where blocked.run_id = (
                       select first.run_id from (
                              select run_id, due_at, duly.fifo_number(options) as fifo_number from duly.blocked as waiting
                               where waiting.tenant = requested.tenant and waiting.waits_for = 'concurrency' and waiting.key = requested.key and waiting.options ? 'fifo'
                               order by due_at, duly.fifo_number(options), run_id limit 1) as first
                        where (select true from duly.timers
                               where timers.tenant = requested.tenant and ((timers.options->'concurrency'->>0) collate "C") = requested.key and timers.options ? 'fifo'
                                 and (timers.due_at, duly.fifo_number(timers.options)) < (first.due_at, first.fifo_number) and not timers.options ? 'has_slot'
                                 and not duly.is_postponed(v_overloaded, timers.priority, timers.run_id, timers.tenant, timers.queue)
                               order by timers.tenant, ((timers.options->'concurrency'->>0) collate "C"), timers.due_at, duly.fifo_number(timers.options)
                               limit 1) is null)          -- In the order of the index, so that no other can serve.
                      for update skip locked) as waiter
             where requested.free > 0 and requested.has_fifo_waiting),
        -- The waiting runs that enter.
        chosen as materialized (select * from oldest union all select * from first_in_order),
        -- Arriving runs that enter: runs that have waited go before them.
        passing as materialized (                      -- Waiting runs enter before arriving ones.
            select run_id from (
                select run_id, first_value(room) over key as room, row_number() over key - 1 as number from (
                    select tenant, key, 0 as kind, null::timestamptz as due_at, null::uuid as run_id, sum(free) as room from (
                           select tenant, key, greatest(free, 0) as free from requested union all select tenant, key, -1 from chosen) as left_free
                     where p_arrived is not null
                     group by tenant, key
                    union all
                    select tenant, key, 1, due_at, run_id, null from unnest(p_arrived)) as met
                window key as (partition by tenant, key order by kind, due_at, run_id)) as numbered
             where number between 1 and room),
        -- Arriving runs, and whether they enter.
        arrived as materialized (
            select u.*, u.run_id in (select passing.run_id from passing) as enters from unnest(p_arrived) as u),
        -- Each run that enters leaves `blocked` once.
        taken as (
            delete from duly.blocked where run_id = any (array(select run_id from chosen)) returning *),
        -- Runs that enter, from `blocked` or as they arrive; those that have waited say so.
        entering as materialized (
            select {run: options = duly.having_waited(
                        case when options ? 'fifo' and not options ? 'overlap' then options || '{"overlap": ["fifo"]}' else options end)}
              from taken
            union all
            select {run}
              from arrived where enters),
        -- Without a rate limit they are ready.
        staged as (
            insert into duly.ready ({run})
            select {run}
              from entering where not options ? 'rate'
            on conflict do nothing
            returning run_id, tenant, options),
        -- With one they keep their slot and wait for a reservation.
        to_rate as (
            insert into duly.blocked ({run}, waits_for, key, blocked_at)
            select {run: options = duly.keeping_slot(options)}, 'rate', options->'rate'->>0, v_now
              from entering where options ? 'rate'
            on conflict do nothing
            returning run_id, tenant, options),
        -- Arriving runs that do not enter wait.
        left_out as (
            insert into duly.blocked ({run}, waits_for, key, blocked_at)
            select {run}, waits_for, key, blocked_at
              from arrived where not enters
            on conflict do nothing
            returning run_id),
        -- An arriving run that stood in its next box already is on record as a duplicate.
        doubles as (
            insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
            select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'ready', queue, handler, 'skipped_duplicate'
              from arrived
             where (select count(*) from staged) + (select count(*) from left_out) < (select count(*) from arrived) + (select count(*) from taken)
               and run_id not in (select staged.run_id from staged union all select left_out.run_id from left_out)),
        -- What each key holds afterwards: runs that left are subtracted, runs that entered are counted.
        totals as materialized (
            select max(tid) as tid, max(slots) as slots, greatest(sum(active), 0) + sum(entered) as active, bool_or(is_fifo) as is_fifo from (
                   select tenant, key, tid, slots, active, 0 as entered, is_fifo from requested
                   union all select tenant, options->'concurrency'->>0, null, null, 0, 1, options ? 'fifo' from staged
                   union all select tenant, options->'concurrency'->>0, null, null, 0, 1, options ? 'fifo' from to_rate) as each
             group by tenant, key),
        -- Keys in use say so; unchanged rows are not written.
        counted as (
            update duly.concurrency_keys set active = totals.active, slots = totals.slots, is_fifo = totals.is_fifo from totals
             where concurrency_keys.ctid = totals.tid and totals.active > 0
               and (concurrency_keys.active, concurrency_keys.slots, concurrency_keys.is_fifo) <> (totals.active, totals.slots, totals.is_fifo)),
        -- A key without runs has no row.
        closed as (
            delete from duly.concurrency_keys where ctid = any (array(select totals.tid from totals where totals.active = 0)))
        select (select count(*) from staged) + (select count(*) from to_rate), array_agg(tenant), array_agg(options->'rate')
          into v_released, v_next_tenants, v_next_rates from to_rate;
        if exists (select from unnest(v_waiting_max) as waiting_max where waiting_max is not null) then
            -- Where runs may wait only in limited company, those beyond it are dropped: the newest of a queue, the older of a buffer of one.
            with dropped as (
                delete from duly.blocked where run_id = any (array(
                    select waiter.run_id from unnest(v_tenants, v_keys, v_policies, v_waiting_max) as u(tenant, key, policy, waiting_max)
                     cross join lateral (
                           select run_id from duly.blocked where blocked.tenant = u.tenant and blocked.waits_for = 'concurrency' and blocked.key = u.key
                            order by case when u.policy = 'queue' then due_at end, case when u.policy <> 'queue' then due_at end desc, run_id
                           offset u.waiting_max for update skip locked) as waiter
                     where u.waiting_max is not null))
                returning *)
            insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason,
                                       generation, priority, payload, payload_stored, options)
            select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'skipped', queue, handler, 'skipped_overlap',
                   nullif(generation, 1), nullif(priority, 5), payload, nullif(payload_stored, false), duly.options_recorded(options, tenant)
              from dropped;
        end if;
    end if;
    select array_agg(u.tenant), array_agg(u.options->'rate') into v_rate_tenants, v_rates
      from unnest(p_tenants, p_options) as u(tenant, options)
     where p_left = 0 and u.options ? 'rate' and (u.options ? 'has_slot' or not u.options ? 'concurrency');
    perform duly.reserve(v_next_tenants || v_rate_tenants, v_next_rates || v_rates) where v_next_tenants is not null or v_rate_tenants is not null;
    return v_released;
end $$;
