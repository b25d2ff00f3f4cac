-- Destinations: where webhooks go to, by tenant and origin. Each row holds what a destination may be sent, how it is, and what its
-- workers share; docs/decisions/0023-destinations.md says why. What follows from the sums is decided in domain/health.py.

create table duly.destinations (
    destination_id uuid      primary key,
    tenant       integer     not null,
    origin       text        not null collate "C",
    made_at      timestamptz not null,
    places       integer     not null default 100 check (places between 1 and 100000),  -- requests under way at once
    rate_per_second double precision check (rate_per_second > 0),                       -- null: no limit
    state        text        not null default 'closed' check (state in ('closed', 'open', 'half_open')),
    turn         integer     not null default 0,        -- raised at each change of state: who has seen an old one changes nothing
    turned_at    timestamptz not null,
    openings     integer     not null default 0,        -- in a row, without calm between them
    wait_until   timestamptz not null default '-infinity',      -- of an open one: when it is tried
    asked_until  timestamptz not null default '-infinity',      -- until when it has asked to be left alone
    failures_in_a_row integer not null default 0,
    successes_in_a_row integer not null default 0,
    half_at      timestamptz not null,                  -- when the younger half of the window began
    healthy      integer     not null default 0,
    failing      integer     not null default 0,
    healthy_before integer   not null default 0,        -- in the older half
    failing_before integer   not null default 0,
    steady_rate  double precision,                      -- healthy answers a second, in stretches in which it was closed
    ramp_rate    double precision,                      -- after an outage, while something is parked: no more a second
    ramp_grows   boolean     not null default false,
    ramp_until   timestamptz not null default '-infinity',
    tokens       double precision not null default 1,   -- of the rate, as of counted_at
    counted_at   timestamptz not null,
    released_at  timestamptz not null,                  -- when runs that wait for it were last let go
    answers_at   timestamptz not null,                  -- from when on answers are counted, for their pace
    answers_before bigint    not null default 0,        -- how many there had been by then
    pace         double precision not null default 0,   -- answers a second, in the stretch before
    healthy_total bigint     not null default 0,
    failing_total bigint     not null default 0
) with (fillfactor = 50);
create unique index destinations_by_origin on duly.destinations (tenant, origin);
create index destinations_shut on duly.destinations (wait_until) where state <> 'closed';

-- What signs: the newest, and the one before until it retires. Sealed; the key that opens it is not in this database.
create table duly.destination_secrets (
    destination_id uuid      not null,
    number       integer     not null check (number >= 1),
    tenant       integer     not null,
    sealed       bytea       not null,
    key_id       text        not null,
    made_at      timestamptz not null,
    retires_at   timestamptz,
    primary key (destination_id, number)
);

-- What a worker may have under way to a destination. The sum of places never exceeds the budget, unless that was made smaller.
create table duly.destination_shares (
    destination_id uuid      not null,
    worker_id    uuid        not null,
    number       bigint      not null,                  -- of the report: one that comes late changes nothing
    places       integer     not null,
    in_flight    integer     not null,
    waiting      integer     not null,
    primary key (destination_id, worker_id)
) with (fillfactor = 50);

-- What waits for destinations, gate by gate.
create index blocked_parked on duly.blocked (tenant, gate, due_at, run_id) where duly.is_parked(gate);

-- How much may be sent a second: its own limit, and after an outage the ramp. Null: any amount.
create function duly.destination_rate(p_destination duly.destinations, p_now timestamptz) returns double precision language sql stable as $$
    select least(p_destination.rate_per_second, case when p_now < p_destination.ramp_until then p_destination.ramp_rate
        * case when p_destination.ramp_grows then power(2, least(20, greatest(0, floor(date_part('epoch', p_now - p_destination.turned_at))))) else 1 end end)
$$;

-- What is in the bucket: a quarter of a second's worth at most, and at least room for one.
create function duly.destination_tokens(p_destination duly.destinations, p_rate double precision, p_now timestamptz) returns double precision
language sql stable as $$
    select least(greatest(1, p_rate / 4), p_destination.tokens + greatest(0, date_part('epoch', p_now - p_destination.counted_at)) * p_rate)
$$;

-- A destination that nobody has used before. Asked twice, it is made once.
create function duly.make_destination_v1(p_destination_id uuid, p_tenant integer, p_origin text) returns boolean
language plpgsql as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    insert into duly.destinations (destination_id, tenant, origin, made_at, turned_at, half_at, counted_at, released_at, answers_at)
    values (p_destination_id, p_tenant, p_origin, v_now, v_now, v_now, v_now, v_now, v_now)
    on conflict (tenant, origin) do nothing;
    return found;
end $$;

-- What a worker has seen of the destinations it uses, and what it may do until its next report. p_holds is what it keeps to at this
-- moment: it has no more under way, and starts no more before it is answered. Rows are locked in one order.
create function duly.report_destinations_v1(
    p_worker_id uuid, p_number bigint, p_ids uuid[], p_tenants integer[], p_origins text[], p_healthy integer[], p_failing integer[],
    p_streaks integer[], p_asked double precision[], p_in_flight integer[], p_waiting integer[], p_wanted integer[], p_holds integer[],
    p_tokens integer[])
returns table (tenant integer, origin text, ceiling integer, granted integer, is_contended boolean, state text, turn integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               asked_seconds double precision, since_turn_seconds double precision, steady_rate double precision, destination_id uuid)
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_told   record;
    v_row    duly.destinations;
    v_others record;
    v_budget integer;
    v_rate   double precision;
    v_half   double precision;
    v_places integer;
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    for v_told in select * from unnest(p_ids, p_tenants, p_origins, p_healthy, p_failing, p_streaks, p_asked, p_in_flight, p_waiting, p_wanted,
                                       p_holds, p_tokens)
                      as u(id, tenant, origin, healthy, failing, streak, asked, in_flight, waiting, wanted, holds, tokens)
                   order by u.tenant, u.origin collate "C" loop
        select * into v_row from duly.destinations where destinations.tenant = v_told.tenant and destinations.origin = v_told.origin for update;
        if not found then
            perform duly.make_destination_v1(v_told.id, v_told.tenant, v_told.origin);
            select * into strict v_row from duly.destinations where destinations.tenant = v_told.tenant and destinations.origin = v_told.origin for update;
        end if;
        v_now := greatest(v_now, duly.clock_now());    -- Somebody else may have held the row.

        -- The window has two halves of five seconds. A half that was closed and busy tells what is usual.
        v_half := date_part('epoch', v_now - v_row.half_at);
        if v_half not between 0 and 5 then
            if v_half between 5 and 10 and v_row.state = 'closed' and v_row.turned_at <= v_row.half_at and v_row.ramp_until <= v_row.half_at
               and v_row.healthy > 0 then
                v_row.steady_rate := coalesce(v_row.steady_rate * 0.7 + v_row.healthy / v_half * 0.3, v_row.healthy / v_half);
            end if;
            v_row.healthy_before := case when v_half between 5 and 10 then v_row.healthy else 0 end;
            v_row.failing_before := case when v_half between 5 and 10 then v_row.failing else 0 end;
            v_row.healthy := 0;
            v_row.failing := 0;
            v_row.half_at := v_now;
        end if;
        v_row.healthy := v_row.healthy + v_told.healthy;
        v_row.failing := v_row.failing + v_told.failing;
        v_row.failures_in_a_row := case when v_told.healthy > 0 then v_told.streak else v_row.failures_in_a_row + v_told.failing end;
        v_row.successes_in_a_row := case when v_told.failing > 0 then 0 else v_row.successes_in_a_row + v_told.healthy end;
        v_row.asked_until := greatest(v_row.asked_until, v_now + make_interval(secs => v_told.asked));

        -- Shares: a worker that is gone has none, and nobody grows into what another may use.
        delete from duly.destination_shares where destination_shares.destination_id = v_row.destination_id
           and not exists (select from duly.workers where workers.worker_id = destination_shares.worker_id);
        select coalesce(sum(shares.places), 0)::integer as places, coalesce(sum(shares.waiting), 0)::integer as waiting, count(*) filter (where shares.in_flight + shares.waiting > 0) as rivals
          into v_others from duly.destination_shares as shares
         where shares.destination_id = v_row.destination_id and shares.worker_id <> p_worker_id;
        v_budget := case when v_now < v_row.asked_until then 0 when v_row.state = 'closed' then v_row.places when v_row.state = 'half_open' then 1 else 0 end;
        ceiling := case when v_others.waiting = 0 then least(v_told.wanted, v_budget)      -- Nobody waits in vain.
                        else least(v_told.in_flight + v_told.waiting, greatest(1, v_budget / (v_others.rivals + 1)), v_budget) end;
        ceiling := greatest(0, least(ceiling, v_told.holds + greatest(0, v_budget - v_others.places - v_told.holds)));
        v_places := greatest(v_told.holds, ceiling);
        if v_places + v_told.in_flight + v_told.waiting > 0 then
            insert into duly.destination_shares (destination_id, worker_id, number, places, in_flight, waiting)
            values (v_row.destination_id, p_worker_id, p_number, v_places, v_told.in_flight, v_told.waiting)
            on conflict (destination_id, worker_id) do update
               set number = excluded.number, places = excluded.places, in_flight = excluded.in_flight, waiting = excluded.waiting
             where destination_shares.number < excluded.number;
            continue when not found;                   -- A later report has been answered.
        else
            delete from duly.destination_shares where destination_shares.destination_id = v_row.destination_id
               and destination_shares.worker_id = p_worker_id and destination_shares.number < p_number;
        end if;

        v_rate := duly.destination_rate(v_row, v_now);
        granted := null;
        if v_rate is not null then
            v_row.tokens := duly.destination_tokens(v_row, v_rate, v_now);
            v_row.counted_at := v_now;
            granted := case when ceiling > 0 then least(v_told.tokens, floor(v_row.tokens)::integer) else 0 end;
            v_row.tokens := v_row.tokens - granted;
        end if;
        update duly.destinations
           set healthy = v_row.healthy, failing = v_row.failing, healthy_before = v_row.healthy_before, failing_before = v_row.failing_before,
               half_at = v_row.half_at, steady_rate = v_row.steady_rate, failures_in_a_row = v_row.failures_in_a_row,
               successes_in_a_row = v_row.successes_in_a_row, asked_until = v_row.asked_until, tokens = v_row.tokens, counted_at = v_row.counted_at,
               healthy_total = healthy_total + v_told.healthy, failing_total = failing_total + v_told.failing
         where destinations.destination_id = v_row.destination_id;
        is_contended := v_others.waiting > 0;
        tenant := v_row.tenant;
        origin := v_row.origin;
        state := v_row.state;
        turn := v_row.turn;
        openings := v_row.openings;
        failures_in_a_row := v_row.failures_in_a_row;
        successes_in_a_row := v_row.successes_in_a_row;
        healthy := v_row.healthy + v_row.healthy_before;
        failing := v_row.failing + v_row.failing_before;
        wait_seconds := duly.seconds_until(v_row.wait_until, v_now);
        asked_seconds := duly.seconds_until(v_row.asked_until, v_now);
        since_turn_seconds := date_part('epoch', v_now - v_row.turned_at);
        steady_rate := v_row.steady_rate;
        destination_id := v_row.destination_id;
        return next;
    end loop;
end $$;

create function duly.seconds_until(p_moment timestamptz, p_now timestamptz) returns double precision language sql immutable parallel safe as $$
    select case when p_moment > p_now then date_part('epoch', p_moment - p_now) else 0 end
$$;

-- A change of state, by whoever has seen this turn; of two who have, one turns. What was counted before it says nothing about it.
create function duly.turn_destination_v1(p_destination_id uuid, p_turn integer, p_state text, p_openings integer, p_wait double precision,
                                         p_ramp_rate double precision, p_ramp_grows boolean) returns boolean
language plpgsql as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    update duly.destinations
       set state = p_state, turn = turn + 1, turned_at = v_now, openings = p_openings,
           wait_until = case when p_state = 'open' then v_now + make_interval(secs => p_wait) else '-infinity' end,
           asked_until = case when p_state = 'open' then asked_until else '-infinity' end,
           failures_in_a_row = 0, successes_in_a_row = 0, healthy = 0, failing = 0, healthy_before = 0, failing_before = 0, half_at = v_now,
           ramp_rate = p_ramp_rate, ramp_grows = p_ramp_grows,
           ramp_until = case when p_ramp_rate is null then '-infinity' else v_now + interval '2 seconds' end,
           tokens = 0, counted_at = v_now
     where destination_id = p_destination_id and turn = p_turn;
    return found;
end $$;

-- Destinations that need a look: those that are shut, and those that runs wait for; of the waiting, gate by gate and not run by run,
-- behind the one that was seen last. Nothing was seen: from the first on, and what is shut as well; what is to be tried comes before what is.
create function duly.minded_destinations_v1(p_tenant integer, p_origin text, p_limit integer)
returns table (destination_id uuid, tenant integer, origin text, is_parked boolean, released_at timestamptz, state text, turn integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               asked_seconds double precision, since_turn_seconds double precision, steady_rate double precision, places integer,
               in_flight integer, waiting integer, answers_per_second double precision, rate double precision, tokens double precision)
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with recursive gates as (
        (select blocked.tenant, blocked.gate from duly.blocked
          where duly.is_parked(blocked.gate) and (blocked.tenant, blocked.gate) > (coalesce(p_tenant, 0), coalesce('@' || p_origin, '') collate "C")
          order by blocked.tenant, blocked.gate limit 1)
        union all
        select next.tenant, next.gate from gates cross join lateral (
            select blocked.tenant, blocked.gate from duly.blocked
             where duly.is_parked(blocked.gate) and (blocked.tenant, blocked.gate) > (gates.tenant, gates.gate)
             order by blocked.tenant, blocked.gate limit 1) as next),
    wanted as (
        (select gates.tenant, substr(gates.gate, 2) as origin, true as is_parked from gates limit p_limit)
        union all
        (select shut.tenant, shut.origin, false from duly.destinations as shut
          where p_tenant is null and shut.state <> 'closed' and shut.wait_until <= v_now order by shut.wait_until desc limit p_limit)),
    named as (select wanted.tenant, wanted.origin, bool_or(wanted.is_parked) as is_parked from wanted group by 1, 2)
    select d.destination_id, named.tenant, named.origin, named.is_parked, d.released_at, d.state, d.turn, d.openings,
           d.failures_in_a_row, d.successes_in_a_row, d.healthy + d.healthy_before, d.failing + d.failing_before,
           duly.seconds_until(d.wait_until, v_now), duly.seconds_until(d.asked_until, v_now), date_part('epoch', v_now - d.turned_at), d.steady_rate,
           d.places, live.in_flight, live.waiting,
           greatest(d.pace, (d.healthy_total + d.failing_total - d.answers_before) / greatest(0.75, date_part('epoch', v_now - d.answers_at))),
           limits.rate, duly.destination_tokens(d, limits.rate, v_now)
      from named
      left join duly.destinations as d on d.tenant = named.tenant and d.origin = named.origin
      left join lateral (select duly.destination_rate(d, v_now) as rate) as limits on true
      left join lateral (
          select coalesce(sum(shares.in_flight), 0)::integer as in_flight, coalesce(sum(shares.waiting), 0)::integer as waiting
            from duly.destination_shares as shares where shares.destination_id = d.destination_id
             and exists (select from duly.workers where workers.worker_id = shares.worker_id)) as live on true
     order by named.tenant, named.origin collate "C";
end $$;

-- Let runs go that wait for destinations, by whoever was first to see when that was last done. While some wait, a ramp lasts.
-- Rows are locked in the order in which reports lock them.
create function duly.release_destinations_v1(p_ids uuid[], p_seen timestamptz[], p_counts integer[])
returns table (destination_id uuid, released integer)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
    v_one record;
    v_row record;
begin
    for v_one in
        select u.id, u.seen, u.count from unnest(p_ids, p_seen, p_counts) as u(id, seen, count)
          join duly.destinations on destinations.destination_id = u.id order by destinations.tenant, destinations.origin loop
        update duly.destinations
           set released_at = greatest(v_now, released_at + interval '1 microsecond'), ramp_until = case when ramp_until > v_now then v_now + interval '2 seconds' else ramp_until end
         where destinations.destination_id = v_one.id and destinations.released_at = v_one.seen
        returning destinations.destination_id, destinations.tenant, destinations.origin into v_row;
        continue when not found;
        -- Workers report about four times a second: over a shorter stretch their answers say nothing.
        update duly.destinations
           set pace = (healthy_total + failing_total - answers_before) / date_part('epoch', v_now - answers_at),
               answers_before = healthy_total + failing_total, answers_at = v_now
         where destinations.destination_id = v_row.destination_id and destinations.answers_at < v_now - interval '0.75 seconds';
        destination_id := v_row.destination_id;
        released := duly.unpark_v1(v_row.tenant, '@' || v_row.origin, v_one.count);
        return next;
    end loop;
end $$;

------------------------------------------------------------------------------------------------------------------ secrets

-- Keep a secret under the next number, by whoever has seen the newest. The one before it is good for a day more; older ones go.
create function duly.keep_secret_v1(p_destination_id uuid, p_number integer, p_sealed bytea, p_key_id text, p_kept interval) returns boolean
language plpgsql as $$
declare
    v_now    timestamptz := duly.clock_now();
    v_tenant integer;
begin
    select tenant into v_tenant from duly.destinations where destination_id = p_destination_id for update;
    if not found or p_number <> 1 + coalesce((select max(number) from duly.destination_secrets where destination_id = p_destination_id), 0) then
        return false;
    end if;
    delete from duly.destination_secrets where destination_id = p_destination_id and number < p_number - 1;
    update duly.destination_secrets set retires_at = v_now + p_kept where destination_id = p_destination_id and number = p_number - 1;
    insert into duly.destination_secrets (destination_id, number, tenant, sealed, key_id, made_at)
    values (p_destination_id, p_number, v_tenant, p_sealed, p_key_id, v_now);
    return true;
end $$;

------------------------------------------------------------------------------------------------------------------ limits

-- What a destination may be sent; what is not given stays. No rate means no limit, so that it is said apart whether one is given.
-- Its workers hear of it with their next reports.
create function duly.limit_destination_v1(p_destination_id uuid, p_places integer, p_rate double precision, p_has_rate boolean) returns boolean
language plpgsql as $$
begin
    update duly.destinations
       set places = coalesce(p_places, places), rate_per_second = case when p_has_rate then p_rate else rate_per_second end
     where destination_id = p_destination_id;
    return found;
end $$;

--------------------------------------------------------------------------------------------------- what the API's role may do

create function duly.is_our_destination(p_destination_id uuid) returns boolean language plpgsql stable as $$
begin
    return exists (select from duly.destinations where destination_id = p_destination_id and duly.is_ours(tenant));
end $$;

-- What is under way to a destination and what waits with its workers, as those that live last said.
create function duly.load_of_destination(p_destination_id uuid, out in_flight integer, out waiting integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    select coalesce(sum(shares.in_flight), 0), coalesce(sum(shares.waiting), 0) into in_flight, waiting
      from duly.destination_shares as shares
     where shares.destination_id = p_destination_id and duly.is_our_destination(p_destination_id)
       and exists (select from duly.workers where workers.worker_id = shares.worker_id);
end $$;

create function duly.api_make_destination_v1(p_destination_id uuid, p_tenant integer, p_origin text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    return duly.make_destination_v1(p_destination_id, p_tenant, p_origin);
end $$;

create function duly.api_turn_destination_v1(p_destination_id uuid, p_turn integer, p_state text, p_openings integer, p_wait double precision,
                                             p_ramp_rate double precision, p_ramp_grows boolean) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return duly.is_our_destination(p_destination_id)
       and duly.turn_destination_v1(p_destination_id, p_turn, p_state, p_openings, p_wait, p_ramp_rate, p_ramp_grows);
end $$;

create function duly.api_keep_secret_v1(p_destination_id uuid, p_number integer, p_sealed bytea, p_key_id text, p_kept interval) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return duly.is_our_destination(p_destination_id) and duly.keep_secret_v1(p_destination_id, p_number, p_sealed, p_key_id, p_kept);
end $$;

create function duly.api_limit_destination_v1(p_destination_id uuid, p_places integer, p_rate double precision, p_has_rate boolean) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return duly.is_our_destination(p_destination_id) and duly.limit_destination_v1(p_destination_id, p_places, p_rate, p_has_rate);
end $$;

alter table duly.destinations enable row level security;
alter table duly.destination_secrets enable row level security;
create policy of_its_tenant on duly.destinations for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.destination_secrets for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.destinations, duly.destination_secrets to duly_api;

revoke execute on function
    duly.destination_rate, duly.destination_tokens, duly.make_destination_v1, duly.report_destinations_v1, duly.seconds_until,
    duly.turn_destination_v1, duly.minded_destinations_v1, duly.release_destinations_v1, duly.keep_secret_v1, duly.limit_destination_v1,
    duly.is_our_destination, duly.load_of_destination, duly.api_make_destination_v1, duly.api_turn_destination_v1, duly.api_keep_secret_v1, duly.api_limit_destination_v1
    from public;
grant execute on function
    duly.load_of_destination, duly.api_make_destination_v1, duly.api_turn_destination_v1, duly.api_keep_secret_v1, duly.api_limit_destination_v1 to duly_api;
