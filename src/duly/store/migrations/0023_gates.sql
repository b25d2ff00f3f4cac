-- Gates at speed, lines in order, turns at a rate, and limits that are changed while runs wait.
-- docs/decisions/0029-gates-at-speed.md says why. A plain name is a concurrency key, a line or an overlap; @ stands before a
-- destination, & before what a run waits for otherwise, ~ before a rate.

create sequence duly.lines cache 1;

alter table duly.gates add column in_line boolean not null default false;      -- who is inside came from a line, and is alone there

-- What somebody has set for a key; it comes before what runs carry.
create table duly.gate_limits (
    tenant       integer     not null,
    key          text        not null collate "C",
    places       integer     check (places between 1 and 999999),
    per_second   double precision check (per_second > 0 and per_second <= 1000000),
    burst        integer     check (burst between 1 and 999999),
    changed_at   timestamptz not null,
    primary key (tenant, key),
    check ((per_second is null) = (burst is null)),
    check (places is not null or per_second is not null)
);

-- Rates in use: when the next turn is free if nobody rests. What runs ask for stands beside what was reserved by.
create table duly.paces (
    tenant       integer     not null,
    key          text        not null collate "C",
    per_second   double precision not null check (per_second > 0),
    burst        integer     not null check (burst >= 1),
    asked_per_second double precision not null,
    asked_burst  integer     not null,
    next_at      timestamptz not null,
    look_at      timestamptz not null,                  -- nothing is to be done before
    primary key (tenant, key)
) with (fillfactor = 50);
create index paces_by_look on duly.paces (look_at);

---------------------------------------------------------------------------------------------------- what a run waits for

-- Waits for more than its moment: a place, or a turn.
create or replace function duly.is_gated(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ?| array['gate', 'rate'], false)
$$;

-- Whether it has to wait for something before it is ready: a place that it does not hold, or its turn, which each attempt needs.
create or replace function duly.must_enter(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ? 'rate' or (p_options ? 'gate' and not p_options ? 'held'), false)
$$;

-- Whether all it needs is a place, so that it may go there straight from its timer.
create function duly.may_pass(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ? 'gate' and not p_options ?| array['held', 'overlap', 'fifo', 'rate'], false)
$$;

-- Where it waits first: at its gate, unless it holds a place there, and then at its rate.
create function duly.waits_at(p_options jsonb) returns text language sql immutable parallel safe as $$
    select case when p_options ? 'gate' and not p_options ? 'held' then p_options->'gate'->>0 else '~' || (p_options->'rate'->>0) end
$$;

-- Whether runs wait at this gate for a place, and for nothing else.
create function duly.is_place(p_gate text) returns boolean language sql immutable parallel safe as $$
    select left(p_gate, 1) not in ('@', '&', '~')
$$;

create function duly.keeping_place(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options ? 'gate' then p_options || '{"held": true}' else p_options end
$$;

-- A run of a line carries its number; without one it stands behind all that have one and are due at the same moment.
create function duly.line_of(p_options jsonb) returns bigint language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_options->'fifo') = 'number' then (p_options->>'fifo')::bigint else 9223372036854775807 end
$$;

create function duly.numbered(p_options jsonb) returns jsonb language sql as $$
    select case when p_options->'fifo' = 'true' then p_options || jsonb_build_object('fifo', nextval('duly.lines')) else p_options end
$$;

-- Lines, as they stand in each box. They hold FIFO rows alone, so that others pay nothing.
create index blocked_in_line on duly.blocked (tenant, gate, due_at, duly.line_of(options), run_id) where options ? 'fifo';
create index timers_in_line on duly.timers (tenant, ((options->'gate'->>0) collate "C"), due_at, duly.line_of(options)) where options ? 'fifo';
-- Turns that were given and not taken.
create index ready_paced on duly.ready (tenant, ((options->'rate'->>0) collate "C"), due_at) where options ? 'rate';
-- Who waits for a turn, by who may take it.
create index blocked_by_taker on duly.blocked (tenant, gate, queue, handler, suspect, due_at, run_id) where left(gate, 1) = '~';

-- Queues on which no more recurring work of low priority is piled.
create function duly.overloaded() returns text[] language sql stable as $$
    select array(select queue from duly.overloads)
$$;

------------------------------------------------------------------------------------------------------------------ rates

-- The oldest who wait for a turn at a rate, without those of a queue and a handler that nobody serves: their turns lie in ready and are
-- not taken. Suspects count apart, because each of them waits until a worker is free for it alone. Kind by kind, however many wait.
create function duly.next_at_rate_v1(p_tenant integer, p_key text, p_turns integer, p_now timestamptz) returns uuid[]
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
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
        return array(select run_id from duly.blocked where blocked.tenant = p_tenant and blocked.gate = '~' || p_key
                      order by due_at, run_id limit p_turns for update skip locked);
    end if;
    return array(
        with recursive kinds as (
            (select queue, handler, suspect from duly.blocked
              where blocked.tenant = p_tenant and blocked.gate = '~' || p_key and left(blocked.gate, 1) = '~'
              order by queue, handler, suspect limit 1)
            union all
            select next.* from kinds cross join lateral (
                select queue, handler, suspect from duly.blocked
                 where blocked.tenant = p_tenant and blocked.gate = '~' || p_key and left(blocked.gate, 1) = '~'
                   and (blocked.queue, blocked.handler, blocked.suspect) > (kinds.queue, kinds.handler, kinds.suspect)
                 order by queue, handler, suspect limit 1) as next),
        oldest as materialized (
            select waiter.run_id from kinds cross join lateral (
                select due_at, run_id from duly.blocked
                 where blocked.tenant = p_tenant and blocked.gate = '~' || p_key and left(blocked.gate, 1) = '~'
                   and blocked.queue = kinds.queue and blocked.handler = kinds.handler and blocked.suspect = kinds.suspect
                 order by due_at, run_id limit p_turns) as waiter
             where not exists (select from unnest(v_queues, v_handlers, v_suspects) as stuck(queue, handler, suspect)
                                where stuck.queue = kinds.queue and stuck.handler = kinds.handler and stuck.suspect = kinds.suspect)
             order by waiter.due_at, waiter.run_id limit p_turns)
        select run_id from duly.blocked where blocked.run_id = any (array(select oldest.run_id from oldest)) for update skip locked);
end $$;

-- Give turns at one rate whose row the caller has locked, up to a second ahead, to the oldest who wait. Those whose turns nobody takes
-- get no more. Moments are rounded up, so that no stretch holds more than it may. Returns how many turns were given.
create function duly.pace_one_v1(p_tenant integer, p_key text, p_now timestamptz) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    c_ahead   constant double precision := 1;           -- seconds
    c_turns   constant integer := 1000;                 -- in one statement
    v_pace    duly.paces;
    v_limit   duly.gate_limits;
    v_owed    double precision;                         -- how far the next free turn lies ahead, were there no burst, in seconds
    v_burst   double precision;                         -- how far ahead of that one may start, in seconds
    v_turns   integer;
    v_next    uuid[];
    v_given   integer;
    v_waiting boolean;
begin
    select * into strict v_pace from duly.paces where paces.tenant = p_tenant and paces.key = p_key;
    select * into v_limit from duly.gate_limits where gate_limits.tenant = p_tenant and gate_limits.key = p_key;
    v_owed := greatest(date_part('epoch', v_pace.next_at - p_now), 0) * v_pace.per_second;
    v_pace.per_second := coalesce(v_limit.per_second, v_pace.asked_per_second);
    v_pace.burst := coalesce(v_limit.burst, v_pace.asked_burst);
    v_owed := v_owed / v_pace.per_second;               -- What is reserved are runs, and not a stretch of time.
    v_burst := (v_pace.burst - 1) / v_pace.per_second;
    v_turns := least(greatest(floor((c_ahead + v_burst - v_owed) * v_pace.per_second) + 1, 0), c_turns);
    v_next := duly.next_at_rate_v1(p_tenant, p_key, v_turns, p_now);
    with taken as (
        delete from duly.blocked where run_id = any (v_next) returning *),
    staged as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select run_id, job_id, scheduled_at, turn.at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options - 'held', duly.rank(turn.at, priority)
          from (select taken.*, row_number() over (order by due_at, run_id) - 1 as number from taken) as taken cross join lateral (
               select greatest(taken.due_at, p_now + ceil(greatest(v_owed + taken.number / v_pace.per_second - v_burst, 0) * 1000000) * interval '1 microsecond') as at) as turn
        on conflict do nothing)
    select count(*) into v_given from taken;
    v_owed := v_owed + v_given / v_pace.per_second;
    v_waiting := exists (select from duly.blocked where blocked.tenant = p_tenant and blocked.gate = '~' || p_key);
    if v_owed <= 0 and not v_waiting then
        delete from duly.paces where paces.tenant = p_tenant and paces.key = p_key;
        return v_given;
    end if;
    v_pace.next_at := p_now + ceil(v_owed * 1000000) * interval '1 microsecond';
    -- Looked at again when the next turn is near enough to be given; with nobody waiting, when the row may go.
    v_pace.look_at := case when v_waiting then p_now + greatest(v_owed - v_burst - c_ahead, 0) * interval '1 second' else v_pace.next_at end;
    update duly.paces set per_second = v_pace.per_second, burst = v_pace.burst, next_at = v_pace.next_at, look_at = v_pace.look_at
     where paces.tenant = p_tenant and paces.key = p_key;
    return v_given;
end $$;

-- Give turns to those who have just come to their rates, the last thing in a transaction. Rates are locked in one order, after gates.
create function duly.pace_v1(p_tenants integer[], p_rates jsonb[]) returns integer
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_rate  record;
    v_given integer := 0;
begin
    for v_rate in select u.tenant, (u.rate->>0) collate "C" as key, max((u.rate->>1)::double precision) as per_second, max((u.rate->>2)::integer) as burst
                    from unnest(p_tenants, p_rates) as u(tenant, rate) group by 1, 2 order by 1, 2 loop
        insert into duly.paces (tenant, key, per_second, burst, asked_per_second, asked_burst, next_at, look_at)
        values (v_rate.tenant, v_rate.key, v_rate.per_second, v_rate.burst, v_rate.per_second, v_rate.burst, v_now, v_now)
        on conflict (tenant, key) do update set asked_per_second = excluded.asked_per_second, asked_burst = excluded.asked_burst;
        v_given := v_given + duly.pace_one_v1(v_rate.tenant, v_rate.key, duly.clock_now());
    end loop;
    return v_given;
end $$;

-- Give turns at the rates that are to be looked at, so many at most; those that somebody works on are passed over.
create function duly.pace_due_v1(p_limit integer) returns table (looked integer, given integer)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
    v_one record;
begin
    looked := 0;
    given := 0;
    for v_one in select tenant, key from duly.paces where look_at <= v_now order by look_at limit p_limit for update skip locked loop
        looked := looked + 1;
        given := given + duly.pace_one_v1(v_one.tenant, v_one.key, v_now);
    end loop;
    return next;
end $$;

---------------------------------------------------------------------------------------------------------------- release

-- Release: let runs in. With p_left = 1 the given runs have left their gates, with 0 they have come to them, and p_arrived are such as
-- have come and stand in no box yet: they go to ready where there is a place, and to blocked where there is none. Then the oldest
-- waiting ones enter while there are places. Called by every move that takes a run out of ready or leased, or brings one to a
-- gate, as the last thing it does: gates are locked in one order, and whoever locks a gate last sees what the one before has done, so
-- that nobody waits at a gate with a free place. A count that was wrong must not hold up what leaves.
-- Of a line the first enters when nobody is inside, and nothing that comes before it is due and still in timers. While one of a line is
-- inside or waits, the gate has one place, also for others who share its key.
create function duly.release_v2(p_tenants integer[], p_options jsonb[], p_left integer, p_arrived duly.blocked[]) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
set jit = off as $$
#variable_conflict use_column
declare
    v_now          timestamptz := duly.clock_now();
    v_overloaded   text[] := duly.overloaded();
    v_tenants      integer[];
    v_gates        text[];
    v_places       integer[];
    v_left         integer[];
    v_policies     text[];
    v_waiting_max  integer[];
    v_rate_tenants integer[];
    v_rates        jsonb[];
    v_turning      integer[];
    v_turns        jsonb[];
    v_released     integer := 0;
begin
    select array_agg(tenant), array_agg(gate), array_agg(places), array_agg(left_gate), array_agg(policy), array_agg(waiting_max)
      into v_tenants, v_gates, v_places, v_left, v_policies, v_waiting_max
      from (select tenant, gate, max(places) as places, sum(left_gate) as left_gate, max(policy) as policy, max(waiting_max) as waiting_max
              from (select u.tenant, (u.options->'gate'->>0) collate "C" as gate,
                           case when not u.options ? 'fifo' then (u.options->'gate'->>1)::integer end as places,     -- Of a line, its one place says nothing of others.
                           case when u.options ? 'outside' then 0 else p_left end as left_gate,
                           u.options->'overlap'->>0 as policy, (u.options->'overlap'->>1)::integer as waiting_max
                      from unnest(p_tenants, p_options) as u(tenant, options)
                     where u.options ? 'gate' and not (p_left = 0 and u.options ? 'held')
                    union all
                    select tenant, gate, (options->'gate'->>1)::integer, 0, null, null from unnest(p_arrived)) as each
             group by tenant, gate order by tenant, gate) as sorted;
    if v_tenants is not null then
        insert into duly.gates (tenant, gate, places)               -- Locks those that are there, and writes them not.
        select tenant, gate, coalesce(places, 1) from unnest(v_tenants, v_gates, v_places) as u(tenant, gate, places)
        on conflict (tenant, gate) do update set places = excluded.places where false;
        with asked as materialized (
            select u.tenant, u.gate, row.place, row.active - u.left_gate as active, line.stands, row.in_line,
                   case when line.stands or row.in_line then 1 else row.places end as places,
                   case when line.stands or row.in_line then 1 else row.places end - greatest(row.active - u.left_gate, 0) as free
              from unnest(v_tenants, v_gates, v_places, v_left) as u(tenant, gate, places, left_gate)
             cross join lateral (
                   select gates.ctid as place, gates.active, gates.in_line and gates.active > u.left_gate as in_line,
                          coalesce((select limits.places from duly.gate_limits as limits where limits.tenant = u.tenant and limits.key = u.gate), u.places,
                                   (select (options->'gate'->>1)::integer from duly.blocked where blocked.tenant = u.tenant and blocked.gate = u.gate
                                     order by due_at, run_id limit 1), 1) as places
                     from duly.gates where gates.tenant = u.tenant and gates.gate = u.gate limit 1) as row
             cross join lateral (
                   select exists (select from duly.blocked where blocked.tenant = u.tenant and blocked.gate = u.gate and blocked.options ? 'fifo') as stands
                   offset 0) as line),
        oldest as materialized (
            select asked.tenant, asked.gate, waiter.run_id from asked cross join lateral (
                   select run_id from duly.blocked where blocked.tenant = asked.tenant and blocked.gate = asked.gate
                    order by due_at, run_id limit asked.free for update skip locked) as waiter
             where asked.free > 0 and not asked.stands),
        first_in_line as materialized (
            select asked.tenant, asked.gate, waiter.run_id from asked cross join lateral (
                   select blocked.run_id from duly.blocked where blocked.run_id = (
                       select first.run_id from (
                              select run_id, due_at, duly.line_of(options) as line from duly.blocked as waiting
                               where waiting.tenant = asked.tenant and waiting.gate = asked.gate and waiting.options ? 'fifo'
                               order by due_at, duly.line_of(options), run_id limit 1) as first
                        where (select true from duly.timers
                               where timers.tenant = asked.tenant and ((timers.options->'gate'->>0) collate "C") = asked.gate and timers.options ? 'fifo'
                                 and (timers.due_at, duly.line_of(timers.options)) < (first.due_at, first.line) and not timers.options ? 'held'
                                 and (timers.priority < 7 or timers.run_id is not null or timers.queue <> all (v_overloaded))
                               order by timers.tenant, ((timers.options->'gate'->>0) collate "C"), timers.due_at, duly.line_of(timers.options)
                               limit 1) is null)          -- In the order of the index, so that no other can serve.
                      for update skip locked) as waiter
             where asked.free > 0 and asked.stands),
        chosen as materialized (select * from oldest union all select * from first_in_line),
        passing as materialized (                      -- Who has waited enters before who comes.
            select run_id from (
                select run_id, first_value(room) over gate as room, row_number() over gate - 1 as number from (
                    select tenant, gate, 0 as kind, null::timestamptz as due_at, null::uuid as run_id, sum(free) as room from (
                           select tenant, gate, greatest(free, 0) as free from asked union all select tenant, gate, -1 from chosen) as left_free
                     where p_arrived is not null
                     group by tenant, gate
                    union all
                    select tenant, gate, 1, due_at, run_id, null from unnest(p_arrived)) as met
                window gate as (partition by tenant, gate order by kind, due_at, run_id)) as numbered
             where number between 1 and room),
        arrived as materialized (
            select u.*, u.run_id in (select passing.run_id from passing) as enters from unnest(p_arrived) as u),
        taken as (
            delete from duly.blocked where run_id = any (array(select run_id from chosen)) returning *),
        entering as materialized (
            select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
                   payload_stored, queue, handler, payload,
                   case when options ? 'fifo' and not options ? 'overlap' then options || '{"overlap": ["fifo"]}' else options end as options, gate
              from taken
            union all
            select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
                   payload_stored, queue, handler, payload, options, gate
              from arrived where enters),
        staged as (
            insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                    suspect, payload_stored, queue, handler, payload, options, rank)
            select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                   suspect, payload_stored, queue, handler, payload, options, duly.rank(due_at, priority)
              from entering where not options ? 'rate'
            on conflict do nothing
            returning run_id, tenant, options),
        turning as (
            insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                      suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
            select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                   suspect, payload_stored, queue, handler, payload, duly.keeping_place(options), '~' || (options->'rate'->>0), v_now
              from entering where options ? 'rate'
            on conflict do nothing
            returning run_id, tenant, options),
        left_out as (
            insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                      suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
            select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                   suspect, payload_stored, queue, handler, payload, options, gate, blocked_at
              from arrived where not enters
            on conflict do nothing
            returning run_id),
        doubles as (
            insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
            select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'ready', queue, handler, 'skipped_duplicate'
              from arrived
             where (select count(*) from staged) + (select count(*) from left_out) < (select count(*) from arrived) + (select count(*) from taken)
               and run_id not in (select staged.run_id from staged union all select left_out.run_id from left_out)),
        totals as materialized (
            select max(place) as place, max(places) as places, greatest(sum(active), 0) + sum(entered) as active, bool_or(in_line) as in_line from (
                   select tenant, gate, place, places, active, 0 as entered, in_line from asked
                   union all select tenant, options->'gate'->>0, null, null, 0, 1, options ? 'fifo' from staged
                   union all select tenant, options->'gate'->>0, null, null, 0, 1, options ? 'fifo' from turning) as each
             group by tenant, gate),
        counted as (
            update duly.gates set active = totals.active, places = totals.places, in_line = totals.in_line from totals
             where gates.ctid = totals.place and totals.active > 0
               and (gates.active, gates.places, gates.in_line) <> (totals.active, totals.places, totals.in_line)),
        closed as (
            delete from duly.gates where ctid = any (array(select totals.place from totals where totals.active = 0)))
        select (select count(*) from staged) + (select count(*) from turning), array_agg(tenant), array_agg(options->'rate')
          into v_released, v_turning, v_turns from turning;
        if exists (select from unnest(v_waiting_max) as waiting_max where waiting_max is not null) then
            -- Where runs may wait only in limited company, those beyond it are dropped: the newest of a queue, the older of a buffer of one.
            with dropped as (
                delete from duly.blocked where run_id = any (array(
                    select waiter.run_id from unnest(v_tenants, v_gates, v_policies, v_waiting_max) as u(tenant, gate, policy, waiting_max)
                     cross join lateral (
                           select run_id from duly.blocked where blocked.tenant = u.tenant and blocked.gate = u.gate
                            order by case when u.policy = 'queue' then due_at end, case when u.policy <> 'queue' then due_at end desc, run_id
                           offset u.waiting_max for update skip locked) as waiter
                     where u.waiting_max is not null))
                returning *)
            insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
            select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'skipped', queue, handler, 'skipped_overlap'
              from dropped;
        end if;
    end if;
    select array_agg(u.tenant), array_agg(u.options->'rate') into v_rate_tenants, v_rates
      from unnest(p_tenants, p_options) as u(tenant, options)
     where p_left = 0 and u.options ? 'rate' and (u.options ? 'held' or not u.options ? 'gate');
    perform duly.pace_v1(v_turning || v_rate_tenants, v_turns || v_rates) where v_turning is not null or v_rate_tenants is not null;
    return v_released;
end $$;

create or replace function duly.release_v1(p_tenants integer[], p_options jsonb[], p_left integer) returns integer language sql as $$
    select duly.release_v2(p_tenants, p_options, p_left, null)
$$;

-- As before; only those that hold a place leave one.
create or replace function duly.leave_v1(p_job_ids uuid[], p_tenants integer[], p_options jsonb[], p_became text[], p_now timestamptz) returns void
language plpgsql as $$
declare
    v_run record;
begin
    for v_run in select u.job_id, u.options, u.became from unnest(p_job_ids, p_options, p_became) as u(job_id, options, became)
                  where u.options ?| array['rearm', 'watch'] and u.became is distinct from 'retrying' order by u.job_id loop
        if v_run.options ? 'rearm' then
            perform duly.rearm_v1(v_run.job_id, p_now);
        end if;
        if v_run.options ? 'watch' and v_run.became = 'dead' then
            perform duly.count_failure_v1(v_run.job_id, (v_run.options->>'watch')::integer, p_now);
        elsif v_run.options ? 'watch' and v_run.became = 'succeeded' then
            update duly.jobs set failures = 0 where jobs.job_id = v_run.job_id and jobs.failures > 0;
        end if;
    end loop;
    perform duly.release_v2(array_agg(u.tenant), array_agg(u.options), 1, null)
       from unnest(p_tenants, p_options) as u(tenant, options) where u.options ? 'gate' having count(*) > 0;
end $$;

------------------------------------------------------------------------------------------- those who bring runs to a gate

-- Cancel, as before; and whoever stood behind it in a line is looked for.
create or replace function duly.cancel_v1(p_run_ids uuid[], p_reason text) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_gone    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with waiting as (
        delete from duly.timers where timers.run_id = any (p_run_ids) and timers.run_id is not null
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options, duly.is_held(options) as inside),
    at_gate as (
        delete from duly.blocked where blocked.run_id = any (p_run_ids)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options, duly.is_held(options) as inside),
    staged as (
        delete from duly.ready where ready.run_id = any (p_run_ids)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options, true as inside),
    gone as (
        select * from waiting union all select * from at_gate union all select * from staged),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, p_reason, duly.marks_of(options)
          from gone),
    leaving as (                                       -- One that had not entered its gate leaves nothing behind there, but may have stood before others in a line.
        select job_id, tenant, case when inside then options when options ? 'fifo' then options || '{"outside": true}' else options - 'gate' end as options
          from gone where duly.has_consequence(options))
    select (select array_agg(run_id) from gone), array_agg(job_id), array_agg(tenant), array_agg(options)
      into v_gone, v_job_ids, v_tenants, v_options from leaving;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_gone);
end $$;

-- Hand back, as before; but the turn at a rate is lost with the hands that held it, and the run goes to the front of the line again.
create or replace function duly.hand_back_v1(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[])
returns table (run_id uuid, fence bigint)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_run_ids uuid[];
    v_fences  bigint[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with back as (
        delete from duly.leased using unnest(p_run_ids, p_fences) as held(run_id, fence)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.*, duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence) as cancelled),
    again as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt - 1, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, duly.rank(due_at, priority)
          from back where not cancelled and not coalesce(options ? 'rate', false)
        on conflict do nothing),
    in_line as (
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                 suspect, payload_stored, queue, handler, payload, options, shard)
        select run_id, job_id, scheduled_at, scheduled_at, previous_scheduled_at, generation, tenant, attempt - 1, priority, losses,
               suspect, payload_stored, queue, handler, payload, duly.keeping_place(options), duly.shard_of(job_id)
          from back where not cancelled and options ? 'rate'
        on conflict do nothing),
    ended as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt - 1, 'cancelled', 'cancelled', queue, handler, 'cancelled', duly.marks_of(options)
          from back where cancelled)
    select array_agg(run_id), array_agg(fence), array_agg(job_id) filter (where cancelled and duly.has_consequence(options)),
           array_agg(tenant) filter (where cancelled and duly.has_consequence(options)),
           array_agg(options) filter (where cancelled and duly.has_consequence(options))
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options from back;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- Park, as before; what waits for a rate only has no place to give back.
create or replace function duly.park_v1(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_gates text[])
returns table (run_id uuid, fence bigint)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_run_ids uuid[];
    v_fences  bigint[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with taken as (
        delete from duly.leased using unnest(p_run_ids, p_fences, p_gates) as held(run_id, fence, gate)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.*, held.gate, duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence) as cancelled),
    parked as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt - 1, priority, losses,
               suspect, payload_stored, queue, handler, payload, case when options ? 'overlap' then options || '{"held": true}' else options end,
               gate, v_now
          from taken where not cancelled
        on conflict do nothing),
    ended as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt - 1, 'cancelled', 'cancelled', queue, handler, 'cancelled', duly.marks_of(options)
          from taken where cancelled),
    leaving as (
        select job_id, tenant, case when cancelled then options else jsonb_build_object('gate', options->'gate') end as options from taken
         where (cancelled and duly.has_consequence(options)) or (options ? 'gate' and not options ? 'overlap'))
    select (select array_agg(run_id order by run_id) from taken), (select array_agg(fence order by run_id) from taken),
           array_agg(job_id), array_agg(tenant), array_agg(options)
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options from leaving;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- Trigger, as before; one that has a rate waits for its turn.
create or replace function duly.trigger_v1(p_job_id uuid, p_key text, p_payload jsonb, p_beside boolean) returns table (run_id uuid, answer text)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_timer   duly.timers := duly.take_next_fire_v1(p_job_id);
    v_run_id  uuid := duly.occurrence_id(p_job_id, v_now, 'manual:' || p_key);
    v_key     text := 'trigger/' || p_job_id || '/' || p_key;
    v_hash    bytea := sha256(convert_to(concat_ws(E'\x01', p_payload, p_beside), 'UTF8'));
    v_options jsonb := duly.numbered(case when p_beside then v_timer.options - array['gate', 'overlap', 'fifo'] else v_timer.options end - 'rearm');
    v_stored  boolean := p_payload is null and v_timer.payload_stored;      -- A payload of its own travels with the run, whatever its size.
    v_answer  text := 'ready';
begin
    if v_timer.job_id is null then
        return query select null::uuid, 'over';
        return;
    elsif octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    insert into duly.keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (v_timer.tenant, v_key, v_run_id, v_hash, v_now, v_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where keys.expires_at <= v_now;
    if not found then
        if not exists (select from duly.keys where keys.tenant = v_timer.tenant and keys.key = v_key and keys.body_hash = v_hash) then
            raise exception using errcode = 'DU001', message = format('key %s was used for another run of this job', quote_literal(p_key)),
                  detail = (select keys.job_id::text from duly.keys where keys.tenant = v_timer.tenant and keys.key = v_key);
        end if;
        perform duly.put_next_fire_v1(v_timer);
        return query select keys.job_id, 'replayed' from duly.keys where keys.tenant = v_timer.tenant and keys.key = v_key;
        return;
    end if;
    if not p_beside and (v_timer.overlap is null or v_timer.overlap = 'after_end') and duly.is_active(v_timer.last_run_id) then
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        values (v_run_id, p_job_id, v_now, v_now, v_now, v_timer.tenant, 0, 'skipped', 'skipped', v_timer.queue, v_timer.handler, 'skipped_overlap');
        v_answer := 'skipped_overlap';
    elsif duly.must_enter(v_options) then
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        values (v_run_id, p_job_id, v_now, v_now, v_timer.previous_scheduled_at, v_timer.generation, v_timer.tenant, 0, v_timer.priority, 0,
                false, v_stored, v_timer.queue, v_timer.handler, coalesce(p_payload, v_timer.payload), v_options,
                duly.waits_at(v_options), v_now);
        perform duly.release_v1(array[v_timer.tenant], array[v_options], 0);
    else
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        values (v_run_id, p_job_id, v_now, v_now, v_timer.previous_scheduled_at, v_timer.generation, v_timer.tenant, 0, v_timer.priority, 0,
                false, v_stored, v_timer.queue, v_timer.handler, coalesce(p_payload, v_timer.payload), v_options, duly.rank(v_now, v_timer.priority));
    end if;
    if v_timer.overlap = 'cancel_running' and not p_beside and v_timer.last_run_id is not null then
        perform duly.cancel_v1(array[v_timer.last_run_id], 'a run was asked for');
        perform duly.signal_v1(array[v_timer.last_run_id], 'cancel');
    end if;
    if v_answer = 'ready' and duly.must_enter(v_options) then
        v_answer := case when exists (select from duly.blocked where blocked.run_id = v_run_id) then 'blocked'
                         when exists (select from duly.ready where ready.run_id = v_run_id) then 'ready' else 'skipped_overlap' end;
    end if;
    if v_answer <> 'skipped_overlap' and not p_beside and v_timer.overlap is distinct from 'after_end' then
        v_timer.last_run_id := v_run_id;
    end if;
    perform duly.put_next_fire_v1(v_timer);
    return query select v_run_id, v_answer;
end $$;

-- Take an event, as before; a job that has a rate waits for its turn.
create or replace function duly.take_event_v1(p_tenant integer, p_source text, p_id text, p_type text, p_event jsonb, p_marks jsonb)
returns table (is_duplicate boolean, runs uuid[], queues text[])
language plpgsql set lock_timeout = '2s' set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off set jit = off as $$
#variable_conflict use_column
declare
    c_jobs_max constant integer := 1000;
    v_now    timestamptz := duly.clock_now();
    v_digest bytea := sha256(convert_to(p_source, 'UTF8') || '\x00' || convert_to(p_id, 'UTF8'));
    v_jobs   duly.jobs[];
    v_gated  jsonb[];
    v_large  duly.jobs;
begin
    insert into duly.events (tenant, digest, runs, received_at) values (p_tenant, v_digest, '{}', v_now) on conflict do nothing;
    if not found then
        return query select true, events.runs, '{}'::text[] from duly.events where events.tenant = p_tenant and events.digest = v_digest;
        return;
    end if;
    v_jobs := array(select listening from (            -- Compared and ordered as whole keys, so that no other index can serve.
        select jobs.* from duly.jobs
         where (jobs.tenant, jobs.schedule->'on_event'->>'type', jobs.job_id) >= (p_tenant, p_type, '00000000-0000-0000-0000-000000000000'::uuid)
           and (jobs.tenant, jobs.schedule->'on_event'->>'type', jobs.job_id) <= (p_tenant, p_type, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
           and jobs.schedule ? 'on_event' and jobs.state = 'active'
           and coalesce(jobs.schedule->'on_event'->>'source', p_source) = p_source
         order by jobs.tenant, jobs.schedule->'on_event'->>'type', jobs.job_id limit c_jobs_max + 1 for share) as listening);
    if cardinality(v_jobs) > c_jobs_max then
        raise exception using errcode = 'DU005', message = format(
            'more than %s jobs wait for events of type %s; let fewer jobs wait for it, or give them a source', c_jobs_max, quote_literal(p_type));
    end if;
    select job.* into v_large from unnest(v_jobs) as job left join duly.payloads on payloads.job_id = job.job_id and payloads.generation = job.generation
     where octet_length((coalesce(job.payload, payloads.body, '{}') || jsonb_build_object('event', p_event))::text) > 262144 limit 1;
    if found then
        raise exception using errcode = 'DU004', message = format(
            'the payload of job %s with the event in it is too large', quote_literal(coalesce(v_large.name, v_large.job_id::text)));
    end if;
    return query
    with made as (
        select listed.*, duly.numbered(listed.asked) as marked from (
        select duly.occurrence_id(job.job_id, v_now, 'event:' || encode(v_digest, 'hex')) as run_id, job.*,
               coalesce(job.payload, payloads.body, '{}') || jsonb_build_object('event', p_event) as carried,
               case when p_marks is null then job.options         -- Options that say nothing are still the job's own.
                    else case when job.options = '{}' then '{"retry": {}}' else coalesce(job.options, '{}') end || p_marks end as asked
          from unnest(v_jobs) as job left join duly.payloads on payloads.job_id = job.job_id and payloads.generation = job.generation) as listed),
    waiting as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                  queue, handler, payload, options, gate, blocked_at)
        select run_id, job_id, v_now, v_now, generation, tenant, 0, priority, 0, false, false, queue, handler, carried, marked,
               duly.waits_at(marked), v_now
          from made where duly.must_enter(marked)),
    started as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                queue, handler, payload, options, rank)
        select run_id, job_id, v_now, v_now, generation, tenant, 0, priority, 0, false, false, queue, handler, carried, marked,
               duly.rank(v_now, priority)
          from made where not duly.must_enter(marked)),
    kept as (
        update duly.events set runs = array(select run_id from made order by job_id)
         where events.tenant = p_tenant and events.digest = v_digest and exists (select from made))
    select false, array(select run_id from made order by job_id), array(select distinct queue from made);
    v_gated := array(select job.options from unnest(v_jobs) as job where duly.must_enter(job.options) order by job.job_id);
    if cardinality(v_gated) > 0 then
        perform duly.release_v1(array_fill(p_tenant, array[cardinality(v_gated)]), v_gated, 0);
    end if;
end $$;

-- As before; the fires that stage leaves where they are take nobody's place here.
create or replace function duly.due_cohorts_v1(p_shards smallint[], p_horizon interval, p_per_shard integer)
returns table (cohort bigint, scheduled_at timestamptz, late boolean, read_at timestamptz)
language plpgsql set enable_seqscan = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now        timestamptz := duly.clock_now();
    v_overloaded text[] := duly.overloaded();
begin
    if not exists (select from duly.jobs where jobs.cohort is not null) then
        return;                                        -- Plain intervals only: nothing that is due has to be looked at for this.
    end if;
    return query
    select distinct due.cohort, due.scheduled_at, duly.is_late(due.due_at, due.grace_seconds, v_now), v_now
      from unnest(p_shards) as held(shard) cross join lateral (
           select timers.cohort, timers.scheduled_at, timers.due_at, timers.grace_seconds from duly.timers
            where timers.shard = held.shard and timers.due_at <= v_now + p_horizon and timers.cohort is not null and (timers.priority < 7 or timers.queue <> all (v_overloaded))
            order by due_at limit p_per_shard) as due;
end $$;

create or replace function duly.due_accounts_v1(
    p_shards smallint[], p_horizon interval, p_per_shard integer, p_cohorts bigint[], p_scheduled timestamptz[], p_firsts timestamptz[])
returns table (cohort bigint, scheduled_at timestamptz, since timestamptz)
language plpgsql stable set enable_seqscan = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_overloaded text[] := duly.overloaded();
begin
    return query
    select distinct due.cohort, due.scheduled_at, job.since
      from unnest(p_shards) as held(shard) cross join lateral (
           select timers.cohort, timers.scheduled_at, timers.job_id, timers.previous_scheduled_at from duly.timers
            where timers.shard = held.shard and timers.due_at <= duly.clock_now() + p_horizon and timers.cohort is not null and (timers.priority < 7 or timers.queue <> all (v_overloaded))
            order by due_at limit p_per_shard) as due
      join unnest(p_cohorts, p_scheduled, p_firsts) as taken(cohort, scheduled_at, first)
        on taken.cohort = due.cohort and taken.scheduled_at = due.scheduled_at
     cross join lateral (select duly.accountable_from(due.job_id, due.previous_scheduled_at) as since offset 0) as job
     where job.since > taken.first;
end $$;

-- When the first timer of these shards falls due that is not left where it is. Runs under the planner settings of its caller.
create function duly.next_due(p_shards smallint[], p_overloaded text[]) returns timestamptz language plpgsql stable as $$
begin
    return (select min(t.due_at) from unnest(p_shards) as held(shard) cross join lateral (
                select due_at from duly.timers where timers.shard = held.shard and due_at < 'infinity'
                   and (timers.priority < 7 or timers.run_id is not null or timers.queue <> all (p_overloaded))
                 order by due_at limit 1) as t);
end $$;

-- Stage, as before. Besides: what comes to a gate with a free place goes straight to ready; a run of a line that has no number gets
-- one; and the next fires of low priority whose queue is overloaded stay where they are, to be judged as late when it has recovered.
create or replace function duly.stage_v2(
    p_holder uuid, p_shards smallint[], p_epochs bigint[], p_horizon interval, p_per_shard integer, p_read_at timestamptz,
    p_keys bigint[], p_cohorts bigint[], p_run_at timestamptz[], p_missed integer[],
    p_next_at timestamptz[], p_windows integer[], p_skips jsonb[], p_catch_up jsonb[])
returns table (staged integer, next_due_at timestamptz, read_at timestamptz)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_held    smallint[];
    v_staged  integer;
    v_tenants integer[];
    v_options jsonb[];
    v_stopped uuid[];
    v_arrived duly.blocked[];
    v_overloaded text[] := duly.overloaded();
begin
    v_held := array(select shards.shard from unnest(p_shards, p_epochs) as held(shard, epoch)
                      join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder
                     where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now));
    if not exists (select from unnest(v_held) as held(shard) cross join lateral (
                       select from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon limit 1) as t) then
        return query select 0, duly.next_due(v_held, v_overloaded), v_now;      -- Even to do nothing, what follows takes milliseconds.
        return;
    end if;
    with due as (
        delete from duly.timers where ctid = any (array(
            select t.ctid from (select array(select unnest(p_keys)) as list offset 0) as keys cross join unnest(v_held) as held(shard) cross join lateral (
                select ctid from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon
                   and (timers.priority < 7 or timers.run_id is not null or timers.queue <> all (v_overloaded))
                   and (timers.due_at <= v_now or (
                           not duly.must_enter(timers.options)                            -- A place is taken when due, not ahead.
                           and (timers.last_run_id is null or timers.overlap is not null
                                or not (exists (select from duly.ready where ready.run_id = timers.last_run_id)
                                        or exists (select from duly.leased where leased.run_id = timers.last_run_id)
                                        or exists (select from duly.blocked where blocked.run_id = timers.last_run_id)
                                        or exists (select from duly.timers as retry where retry.run_id = timers.last_run_id)))))
                   and (timers.cohort is null
                        or (p_keys[width_bucket(duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at)), keys.list)]
                                = duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at))
                            and p_cohorts[width_bucket(duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at)), keys.list)]
                                = timers.cohort))
                 order by due_at limit p_per_shard for update skip locked) as t))
        returning *),
    answered as (
        select due.*, case when cohort is not null
                           then width_bucket(duly.fire_key(cohort, scheduled_at, duly.is_late(due_at, grace_seconds, p_read_at)), keys.list) end as answer,
               overlap is null and last_run_id is not null and due_at <= v_now and (
                   exists (select from duly.ready where ready.run_id = due.last_run_id)
                   or exists (select from duly.leased where leased.run_id = due.last_run_id)
                   or exists (select from duly.blocked where blocked.run_id = due.last_run_id)
                   or exists (select from duly.timers as retry where retry.run_id = due.last_run_id)) as overlapping
          from (select array(select unnest(p_keys)) as list offset 0) as keys cross join due where due.run_id is null),
    fires as (
        select fire.*, moment.*, moment.run_at is not null and not fire.overlapping as runs,
               duly.occurrence_id(fire.job_id, coalesce(moment.run_at, fire.scheduled_at), 'schedule') as new_run_id
          from answered as fire cross join lateral (
               select case when fire.cohort is null then fire.scheduled_at + make_interval(secs => late.count * fire.every_seconds::double precision)
                           else p_run_at[fire.answer] end as run_at,
                      case when fire.cohort is not null then p_missed[fire.answer] else late.count::integer + late.is_late::integer end as missed,
                      case when fire.overlap = 'after_end' then 'infinity' when fire.cohort is null
                           then fire.scheduled_at + make_interval(secs => (late.count + 1) * fire.every_seconds::double precision)
                           else p_next_at[fire.answer] end as next_at
                 from (select is_late, case when is_late then floor(date_part('epoch', v_now - fire.scheduled_at) / fire.every_seconds) else 0 end as count
                         from (select fire.cohort is null and fire.overlap is distinct from 'after_end'
                                      and duly.is_late(fire.due_at, fire.grace_seconds, v_now) as is_late) as judged offset 0) as late
               offset 0) as moment),                   -- Computed once for each row, and not once for each use.
    next_fires as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard, every_seconds, cohort, last_run_id, overlap, jitter, runs_left, grace_seconds)
        select job_id, case when next_at = 'infinity' then scheduled_at else next_at end,
               case when jitter is null then next_at else next_at + duly.jitter_delay(jitter, job_id, next_at, p_windows[answer]) end,
               case when runs then run_at when p_catch_up[answer] is not null then (p_catch_up[answer]->>'last_at')::timestamptz
                    else previous_scheduled_at end, generation, tenant, priority, payload_stored,
               queue, handler, payload, options, shard, every_seconds, cohort, case when runs then new_run_id else last_run_id end, overlap, jitter,
               runs_left - runs::integer, grace_seconds
          from fires where next_at is not null and (runs_left is null or runs_left > runs::integer)),
    completed as (
        update duly.jobs set state = 'completed', updated_at = v_now
          from fires where jobs.job_id = fires.job_id and (fires.next_at is null or fires.runs_left = fires.runs::integer)),
    skipped as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
        select duly.occurrence_id(job_id, scheduled_at, 'schedule'), job_id, scheduled_at, scheduled_at, v_now, tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, 'skipped_misfire',
               jsonb_build_object('first', scheduled_at, 'last', run_at - make_interval(secs => every_seconds), 'count', missed - 1)
          from fires where cohort is null and missed > 1
        union all
        select duly.occurrence_id(job_id, skip.first, 'schedule'), job_id, skip.first, skip.first, v_now, tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, skip.reason, jsonb_build_object('first', skip.first, 'last', skip.last, 'count', skip.count)
          from fires cross join lateral duly.skips_of(p_skips[answer], job_id, previous_scheduled_at) as skip where p_skips[answer] is not null
        union all
        select new_run_id, job_id, run_at, due_at, v_now, tenant, 0, 'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, 'skipped_overlap', null
          from fires where overlapping and run_at is not null),
    catching_up as (
        insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, from_at, to_at, cursor_at, rate, total, due_at,
                                    previous_scheduled_at, asked_at, schedule, calendars)
        select duly.occurrence_id(fires.job_id, catch_up.from_at, 'catch-up'), fires.job_id, fires.tenant, shard, 'schedule', catch_up.from_at,
               catch_up.to_at, catch_up.from_at, catch_up.rate, catch_up.total, v_now, previous_scheduled_at, v_now, jobs.schedule,
               duly.calendars_of(fires.tenant, jobs.schedule)
          from fires join duly.jobs on jobs.job_id = fires.job_id
         cross join lateral jsonb_to_record(p_catch_up[answer])
                                     as catch_up(from_at timestamptz, to_at timestamptz, rate double precision, total integer)
         where p_catch_up[answer] is not null
        on conflict do nothing),
    bringing as (
        select new_run_id as run_id, job_id, run_at as scheduled_at, case when missed > 0 then run_at else due_at end as due_at, previous_scheduled_at,
               generation, tenant, 0 as attempt, priority, 0::smallint as losses, false as suspect, payload_stored, queue, handler,
               payload, case when missed > 0 then coalesce(options, '{}') || jsonb_build_object('missed', missed) else options end as options
          from fires where runs
        union all
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
               payload_stored, queue, handler, payload, options
          from due where run_id is not null),
    staging as materialized (
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
               payload_stored, queue, handler, payload, case when options ? 'fifo' then duly.numbered(options) else options end as options
          from bringing),
    staged as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select staging.*, duly.rank(due_at, priority) from staging where not duly.must_enter(options)
        on conflict (run_id) do nothing
        returning run_id),
    at_gate as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select staging.*, duly.waits_at(options), v_now from staging where duly.must_enter(options) and not duly.may_pass(options)
        on conflict (run_id) do nothing
        returning run_id, tenant, options),
    losers as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'ready', queue, handler, 'skipped_duplicate'
          from staging where (select count(*) from staged) + (select count(*) from at_gate) < (select count(*) from staging where not duly.may_pass(options))
           and not duly.may_pass(options)
           and run_id not in (select staged.run_id from staged union all select at_gate.run_id from at_gate))
    select (select count(*) from due), array_agg(tenant), array_agg(options),
           (select array_agg(last_run_id) from fires where runs and overlap = 'cancel_running' and last_run_id is not null),
           (select array_agg(row(staging.*, options->'gate'->>0, v_now)::duly.blocked) from staging where duly.may_pass(options))
      into v_staged, v_tenants, v_options, v_stopped, v_arrived
      from (select tenant, options from at_gate
            union all                                  -- Others may have waited for this one, which does not run.
            select tenant, options from fires where not runs and options ? 'fifo') as looked_at;
    perform duly.release_v2(v_tenants, v_options, 0, v_arrived) where v_tenants is not null or v_arrived is not null;
    if v_stopped is not null then
        perform duly.cancel_v1(v_stopped, 'the next occurrence is due');
        perform duly.signal_v1(v_stopped, 'cancel');
    end if;
    return query select v_staged, duly.next_due(v_held, v_overloaded), v_now;
end $$;

-------------------------------------------------------------------------------------------------------- limits of a key

-- Let in, or give turns, after the limits of a key have changed. What runs ask for is read from the oldest that waits.
create function duly.look_again_v1(p_tenant integer, p_key text) returns void
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    perform duly.release_v2(array[p_tenant], array[waiting.options], 0, null)
       from (select options from duly.blocked where blocked.tenant = p_tenant and blocked.gate = p_key order by due_at, run_id limit 1) as waiting;
    perform from duly.paces where paces.tenant = p_tenant and paces.key = p_key for update;
    if found then
        perform duly.pace_one_v1(p_tenant, p_key, duly.clock_now());
    end if;
end $$;

-- Set the limits of a key; none given: what runs carry counts again. Says whether something was there to be taken away.
create function duly.limit_gate_v1(p_tenant integer, p_key text, p_places integer, p_per_second double precision, p_burst integer) returns boolean
language plpgsql set lock_timeout = '2s' as $$
declare
    v_found boolean;
begin
    if p_places is null and p_per_second is null then
        delete from duly.gate_limits where gate_limits.tenant = p_tenant and gate_limits.key = p_key;
        v_found := found;
    else
        insert into duly.gate_limits (tenant, key, places, per_second, burst, changed_at)
        values (p_tenant, p_key, p_places, p_per_second, p_burst, duly.clock_now())
        on conflict (tenant, key) do update set places = excluded.places, per_second = excluded.per_second, burst = excluded.burst,
                                                changed_at = excluded.changed_at;
        v_found := true;
    end if;
    perform duly.look_again_v1(p_tenant, p_key);
    return v_found;
end $$;

create function duly.api_limit_gate_v1(p_tenant integer, p_key text, p_places integer, p_per_second double precision, p_burst integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    return duly.limit_gate_v1(p_tenant, p_key, p_places, p_per_second, p_burst);
end $$;

-------------------------------------------------------------------------------------------------------------- the wall

alter table duly.gate_limits enable row level security;
alter table duly.paces enable row level security;
create policy of_its_tenant on duly.gate_limits for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.paces for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.gate_limits, duly.paces to duly_api;

revoke execute on function
    duly.may_pass, duly.waits_at, duly.is_place, duly.keeping_place, duly.line_of, duly.numbered, duly.overloaded, duly.next_due, duly.next_at_rate_v1, duly.pace_one_v1, duly.pace_v1,
    duly.pace_due_v1, duly.release_v2, duly.look_again_v1, duly.limit_gate_v1, duly.api_limit_gate_v1 from public;
grant execute on function duly.api_limit_gate_v1 to duly_api;
