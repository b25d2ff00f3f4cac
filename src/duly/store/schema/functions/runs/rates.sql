-- Reservations at a rate. They are reserved in the rate's own row, at most a second ahead, and every attempt needs one of its own.
-- docs/decisions/0023-concurrency-keys-count-in-one-row.md and docs/decisions/0024-rate-limits-reserve-start-times.md say why.

-- The oldest runs that wait for a reservation at a rate, without those of a queue and a handler that no worker serves: their reservations lie in ready and are
-- not taken. Suspects count separately, because each of them waits until a worker is free for it alone. Kind by kind, however many wait. A run that
-- was due by a clock that was set back since waits for its own moment. It is separated after the limit, in the order of which it comes last, so
-- that the same indexes serve.
create or replace function duly.next_at_rate(p_tenant integer, p_key text, p_reservations integer, p_now timestamptz) returns uuid[]
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_queues   text[];
    v_handlers text[];
    v_suspects boolean[];
begin
    select array_agg(queue), array_agg(handler), array_agg(suspect) into v_queues, v_handlers, v_suspects
      from (select distinct ready.queue, ready.handler, ready.suspect from duly.ready
             where ready.tenant = p_tenant and ((ready.options->'rate'->>0) collate "C") = p_key and ready.options ? 'rate'
               and ready.due_at < p_now - interval '1 second') as stuck;
    if v_queues is null then
        return array(
            select waiter.run_id from (
                select run_id, due_at from duly.blocked where blocked.tenant = p_tenant and blocked.waits_for = 'rate' and blocked.key = p_key
                 order by due_at, run_id limit p_reservations for update skip locked) as waiter
             where waiter.due_at <= p_now);
    end if;
    return array(
        with recursive kinds as (
            (select queue, handler, suspect from duly.blocked
              where blocked.tenant = p_tenant and blocked.waits_for = 'rate' and blocked.key = p_key
              order by queue, handler, suspect limit 1)
            union all
            select next.* from kinds cross join lateral (
                select queue, handler, suspect from duly.blocked
                 where blocked.tenant = p_tenant and blocked.waits_for = 'rate' and blocked.key = p_key
                   and (blocked.queue, blocked.handler, blocked.suspect) > (kinds.queue, kinds.handler, kinds.suspect)
                 order by queue, handler, suspect limit 1) as next),
        oldest as materialized (
            select waiter.run_id from kinds cross join lateral (
                select due_at, run_id from duly.blocked
                 where blocked.tenant = p_tenant and blocked.waits_for = 'rate' and blocked.key = p_key
                   and blocked.queue = kinds.queue and blocked.handler = kinds.handler and blocked.suspect = kinds.suspect
                 order by due_at, run_id limit p_reservations) as waiter
             where waiter.due_at <= p_now
               and not exists (select from unnest(v_queues, v_handlers, v_suspects) as stuck(queue, handler, suspect)
                                where stuck.queue = kinds.queue and stuck.handler = kinds.handler and stuck.suspect = kinds.suspect)
             order by waiter.due_at, waiter.run_id limit p_reservations)
        select run_id from duly.blocked where blocked.run_id = any (array(select oldest.run_id from oldest)) for update skip locked);
end $$;

-- Give reservations at one rate whose row the caller has locked, up to a second ahead, to the oldest who wait. Those whose reservations no worker takes
-- get no more. Moments are rounded up, so that no stretch holds more than it may. Returns how many reservations were given.
-- When the clock was set back, what is reserved lies as far ahead of now as it lay ahead of the moment it was reckoned at,
-- as if no time had passed between, and the reservations of the clock before are taken back. A step that is smaller than the distance of reservations
-- is waited for.
create or replace function duly.reserve_one(p_tenant integer, p_key text, p_now timestamptz) returns integer
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    c_ahead   constant double precision := 1;           -- seconds
    c_owed    constant double precision := 3155760000;  -- A hundred years, the most that is counted.
    c_reservations   constant integer := 1000;                 -- in one statement
    v_bucket    duly.rate_limits;
    v_limit   duly.key_limits;
    v_owed    double precision;                         -- how far the next free reservation lies ahead, were there no burst, in seconds
    v_burst   double precision;                         -- how far ahead of that one may start, in seconds
    v_reservations   integer;
    v_next    uuid[];
    v_given   integer;
    v_first   timestamptz;                              -- when the first of those who still wait is due
begin
    select * into strict v_bucket from duly.rate_limits where rate_limits.tenant = p_tenant and rate_limits.key = p_key;
    select * into v_limit from duly.key_limits where key_limits.tenant = p_tenant and key_limits.key = p_key;
    if v_bucket.reckoned_at > p_now + duly.step_back_min() then
        if duly.release_reservations(p_tenant, p_key, c_reservations, p_now) >= c_reservations then
            return 0;                                  -- There may be more: it is not reckoned anew before all are back.
        end if;
        v_bucket.next_at := p_now + (v_bucket.next_at - v_bucket.reckoned_at);
    end if;
    v_owed := greatest(date_part('epoch', v_bucket.next_at - p_now), 0) * v_bucket.per_second;
    v_bucket.per_second := greatest(coalesce(v_limit.per_second, v_bucket.requested_per_second), duly.rate_min());
    v_bucket.burst := coalesce(v_limit.burst, v_bucket.requested_burst);
    v_owed := least(v_owed / v_bucket.per_second, c_owed);  -- Reservations are of runs, and not of a stretch of time.
    v_burst := (v_bucket.burst - 1) / v_bucket.per_second;
    v_reservations := least(greatest(floor((c_ahead + v_burst - v_owed) * v_bucket.per_second) + 1, 0), c_reservations);
    v_next := duly.next_at_rate(p_tenant, p_key, v_reservations, p_now);
    with taken as (
        delete from duly.blocked where run_id = any (v_next) returning *),
    staged as (
        insert into duly.ready ({run})
        select {run: due_at = reservation.at, options = options - 'has_slot'}
          from (select taken.*, row_number() over (order by due_at, run_id) - 1 as number from taken) as taken cross join lateral (
               select p_now + ceil(greatest(v_owed + taken.number / v_bucket.per_second - v_burst, 0) * 1000000) * interval '1 microsecond' as at) as reservation
        on conflict do nothing)
    select count(*) into v_given from taken;
    v_owed := least(v_owed + v_given / v_bucket.per_second, c_owed);
    v_first := (select due_at from duly.blocked where blocked.tenant = p_tenant and blocked.waits_for = 'rate' and blocked.key = p_key order by due_at, run_id limit 1);
    if v_owed <= 0 and v_first is null then
        delete from duly.rate_limits where rate_limits.tenant = p_tenant and rate_limits.key = p_key;
        return v_given;
    end if;
    v_bucket.next_at := p_now + ceil(v_owed * 1000000) * interval '1 microsecond';
    -- Looked at again when the next reservation is near enough to be given, and a run is due; with none waiting, when the row may go.
    v_bucket.look_at := case when v_first is not null then greatest(p_now + greatest(v_owed - v_burst - c_ahead, 0) * interval '1 second', v_first)
                           else v_bucket.next_at end;
    update duly.rate_limits
       set per_second = v_bucket.per_second, burst = v_bucket.burst, next_at = v_bucket.next_at, look_at = v_bucket.look_at, reckoned_at = p_now
     where rate_limits.tenant = p_tenant and rate_limits.key = p_key;
    return v_given;
end $$;

-- Give reservations to runs that have just come to their rates, the last thing in a transaction. Rates are locked in one order, after concurrency keys.
create or replace function duly.reserve(p_tenants integer[], p_rates jsonb[]) returns integer
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_rate  record;
    v_given integer := 0;
begin
    for v_rate in select u.tenant, (u.rate->>0) collate "C" as key, max((u.rate->>1)::double precision) as per_second, max((u.rate->>2)::integer) as burst
                    from unnest(p_tenants, p_rates) as u(tenant, rate) group by 1, 2 order by 1, 2 loop
        insert into duly.rate_limits (tenant, key, per_second, burst, requested_per_second, requested_burst, next_at, look_at)
        values (v_rate.tenant, v_rate.key, v_rate.per_second, v_rate.burst, v_rate.per_second, v_rate.burst, v_now, v_now)
        on conflict (tenant, key) do update set requested_per_second = excluded.requested_per_second, requested_burst = excluded.requested_burst;
        v_given := v_given + duly.reserve_one(v_rate.tenant, v_rate.key, duly.clock_now());
    end loop;
    return v_given;
end $$;

-- Give reservations at the rates that are to be looked at, and at those whose reckoning lies ahead of the clock, which was therefore set back; so
-- many at most. Those that somebody works on are passed over.
create or replace function duly.reserve_due(p_limit integer) returns table (looked integer, given integer)
language plpgsql {planned by index, in order} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
    v_one record;
begin
    looked := 0;
    given := 0;
    for v_one in select tenant, key from duly.rate_limits where look_at <= v_now order by look_at limit p_limit for update skip locked loop
        looked := looked + 1;
        given := given + duly.reserve_one(v_one.tenant, v_one.key, v_now);
    end loop;
    for v_one in select tenant, key from duly.rate_limits where reckoned_at > v_now + duly.step_back_min()
                  order by reckoned_at desc limit p_limit for update skip locked loop
        looked := looked + 1;
        given := given + duly.reserve_one(v_one.tenant, v_one.key, v_now);
    end loop;
    return next;
end $$;

-- So far the clock may be set back and a rate just waits: its reservations are a second ahead, and workers that hold some differ from
-- those that hold what the clock was set back from.
create or replace function duly.step_back_min() returns interval language sql immutable parallel safe as $$ select interval '3 seconds' $$;

-- Take reservations back that were given by a clock which was set back since, and put their runs back in front of those that wait, so many at
-- most. What somebody is claiming at the moment goes back through its worker. Returns how many.
create or replace function duly.release_reservations(p_tenant integer, p_key text, p_limit integer, p_now timestamptz) returns integer
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_back integer;
begin
    with back as (
        delete from duly.ready where run_id = any (array(
            select run_id from duly.ready
             where ready.tenant = p_tenant and ((ready.options->'rate'->>0) collate "C") = p_key and ready.options ? 'rate' and ready.due_at > p_now
             order by ready.tenant, ((ready.options->'rate'->>0) collate "C"), ready.due_at limit p_limit for update skip locked))
        returning *),
    waiting as (
        insert into duly.blocked ({run}, waits_for, key, blocked_at)
        select {run: due_at = scheduled_at, options = duly.keeping_slot(options)}, 'rate', p_key, p_now
          from back
        on conflict do nothing)
    select count(*) into v_back from back;
    return v_back;
end $$;
