-- Concurrency keys of a run: the key it waits at, and whether it keeps its slot. docs/decisions/0023-concurrency-keys-count-in-one-row.md says why.
--
-- Return whether a run waits for more than its moment: a slot, or a reservation. A run that needs a slot carries {"concurrency": [name, slots]} in its options.
create or replace function duly.has_limits(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ?| array['concurrency', 'rate'], false)
$$;

-- A run with a concurrency key that comes back for its retry holds its slot already, where the key is the overlap of a job with itself.
create or replace function duly.holds_slot(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ? 'has_slot', false)
$$;

-- Return whether a run has to wait for something before it is ready: a slot that it does not hold, or a reservation, which each attempt needs.
create or replace function duly.must_enter(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ? 'rate' or (p_options ? 'concurrency' and not p_options ? 'has_slot'), false)
$$;

-- Return whether all it needs is a slot, so that it may go there straight from its timer.
create or replace function duly.may_pass(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ? 'concurrency' and not p_options ?| array['has_slot', 'overlap', 'fifo', 'rate'], false)
$$;

-- The wait that comes first: for a slot of its concurrency key, unless it holds one, and then for a reservation at its rate.
create or replace function duly.wait_kind(p_options jsonb) returns duly.wait language sql immutable parallel safe as $$
    select case when p_options ? 'concurrency' and not p_options ? 'has_slot' then 'concurrency' else 'rate' end::duly.wait
$$;

create or replace function duly.wait_key(p_options jsonb) returns text language sql immutable parallel safe as $$
    select case when p_options ? 'concurrency' and not p_options ? 'has_slot' then p_options->'concurrency'->>0 else p_options->'rate'->>0 end
$$;

create or replace function duly.keeping_slot(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options ? 'concurrency' then p_options || '{"has_slot": true}' else p_options end
$$;

-- Return whether a run keeps the slot of its concurrency key until it is over: a retry is part of it, and what comes next must not go before it.
create or replace function duly.keeps_slot(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ?| array['overlap', 'fifo'], false)
$$;

create or replace function duly.numbered(p_options jsonb) returns jsonb language sql as $$
    select case when p_options->'fifo' = 'true' then p_options || jsonb_build_object('fifo', nextval('duly.fifo_numbers')) else p_options end
$$;

-------------------------------------------------------------------------------------------------------- limits of a key

-- Set the limits of a key; none given: what runs carry counts again. Says whether something was there to be taken away.
create or replace function duly.limit_concurrency_key(p_tenant integer, p_key text, p_slots integer, p_per_second double precision, p_burst integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    v_found boolean;
begin
    perform duly.must_be_ours(p_tenant);
    if p_slots is null and p_per_second is null then
        delete from duly.key_limits where key_limits.tenant = p_tenant and key_limits.key = p_key;
        v_found := found;
    else
        insert into duly.key_limits (tenant, key, slots, per_second, burst, changed_at)
        values (p_tenant, p_key, p_slots, p_per_second, p_burst, duly.clock_now())
        on conflict (tenant, key) do update set slots = excluded.slots, per_second = excluded.per_second, burst = excluded.burst,
                                                changed_at = excluded.changed_at;
        v_found := true;
    end if;
    perform duly.look_again(p_tenant, p_key);
    return v_found;
end $$;

-- Let runs in, or give reservations, after the limits of a key have changed. The limit that runs request is read from the oldest that waits.
create or replace function duly.look_again(p_tenant integer, p_key text) returns void
language plpgsql {planned by index, in order} as $$
begin
    perform duly.release(array[p_tenant], array[waiting.options], 0, null)
       from (select options from duly.blocked where blocked.tenant = p_tenant and blocked.waits_for = 'concurrency' and blocked.key = p_key order by due_at, run_id limit 1) as waiting;
    perform from duly.rate_limits where rate_limits.tenant = p_tenant and rate_limits.key = p_key for update;
    if found then
        perform duly.reserve_one(p_tenant, p_key, duly.clock_now());
    end if;
end $$;

grant execute on function duly.limit_concurrency_key to duly_api;
