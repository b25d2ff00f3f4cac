-- Shares: requests that each worker may send to a destination, granted under the lock of the destination's row; and runs that wait for one.
-- docs/decisions/0030-workers-share-destination-limits.md says why.

-- Return the requests a second that a destination may be sent: its limit, and after an outage the ramp. Null: no limit.
create or replace function duly.destination_rate(p_destination duly.destinations, p_now timestamptz) returns double precision language sql stable as $$
    select least(p_destination.rate_per_second, case when p_now < p_destination.ramp_until then p_destination.ramp_rate
        * case when p_destination.ramp_grows then power(2, least(20, greatest(0, floor(date_part('epoch', p_now - p_destination.state_changed_at))))) else 1 end end)
$$;

-- The tokens in the bucket: one at most. What was granted ahead is owed, and never for more than a second: a rate that was lowered
-- does not stand still for what was granted at the one before.
create or replace function duly.destination_tokens(p_destination duly.destinations, p_rate double precision, p_now timestamptz) returns double precision
language sql stable as $$
    select least(1, greatest(-p_rate, p_destination.tokens) + greatest(0, date_part('epoch', p_now - p_destination.counted_at)) * p_rate)
$$;

-- Take a worker's report on the destinations it uses, and return its shares until its next report. p_holds is what it keeps to at this
-- moment: it has no more under way, and starts no more before it is answered. Where there is a rate it is granted reservations: the first in
-- first_seconds, each next one 1 / rate later, none beyond p_ahead. A worker numbers its reports upwards: one that comes late, or again,
-- changes nothing and is not answered. Locked are the worker's row, that of its number, so that its reports follow each other, and then the
-- destinations by tenant and origin.
create or replace function duly.report_destinations(
    p_worker_id uuid, p_number bigint, p_ids uuid[], p_tenants integer[], p_origins text[], p_healthy integer[], p_failing integer[],
    p_streaks integer[], p_requested double precision[], p_in_flight integer[], p_waiting integer[], p_wanted integer[], p_holds integer[],
    p_tokens integer[], p_spares integer[], p_retries integer[], p_rejected integer[], p_ahead double precision)
returns table (tenant integer, origin text, ceiling integer, granted integer, is_contended boolean, state text, state_version integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               requested_seconds double precision, since_state_change_seconds double precision, steady_rate double precision, destination_id uuid,
               retry_share double precision, workers integer, rate double precision, first_seconds double precision, read_at timestamptz)
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_report   record;
    v_row    duly.destinations;
    v_others record;
    v_budget integer;
    v_part   integer;
    v_half   double precision;
    v_slots integer;
    v_spare  integer;
    v_waiting integer;
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    insert into duly.destination_reports (worker_id, number) values (p_worker_id, p_number)
    on conflict (worker_id) do update set number = excluded.number where destination_reports.number < excluded.number;
    if not found then                                  -- This report or a later one has been answered.
        return;
    end if;
    for v_report in select * from unnest(p_ids, p_tenants, p_origins, p_healthy, p_failing, p_streaks, p_requested, p_in_flight, p_waiting, p_wanted,
                                       p_holds, p_tokens, p_spares, p_retries, p_rejected)
                      as u(id, tenant, origin, healthy, failing, streak, requested, in_flight, waiting, wanted, holds, tokens, spare, retries, rejected)
                   order by u.tenant, u.origin collate "C" loop
        select * into v_row from duly.destinations where destinations.tenant = v_report.tenant and destinations.origin = v_report.origin for update;
        if not found then
            perform duly.create_destination(v_report.id, v_report.tenant, v_report.origin);
            select * into strict v_row from duly.destinations where destinations.tenant = v_report.tenant and destinations.origin = v_report.origin for update;
        end if;
        v_now := greatest(v_now, duly.clock_now());    -- Somebody else may have held the row.

        -- The window has two halves of five seconds. A half that was closed and busy gives the usual rate.
        v_half := date_part('epoch', v_now - v_row.half_at);
        if v_half not between 0 and 5 then
            if v_half between 5 and 10 and v_row.state = 'closed' and v_row.state_changed_at <= v_row.half_at and v_row.ramp_until <= v_row.half_at
               and v_row.healthy > 0 then
                v_row.steady_rate := coalesce(v_row.steady_rate * 0.7 + v_row.healthy / v_half * 0.3, v_row.healthy / v_half);
            end if;
            v_row.healthy_before := case when v_half between 5 and 10 then v_row.healthy else 0 end;
            v_row.failing_before := case when v_half between 5 and 10 then v_row.failing else 0 end;
            v_row.healthy := 0;
            v_row.failing := 0;
            v_row.half_at := v_now;
        end if;
        v_row.healthy := v_row.healthy + v_report.healthy;
        v_row.failing := v_row.failing + v_report.failing;
        v_row.failures_in_a_row := case when v_report.healthy > 0 then v_report.streak else v_row.failures_in_a_row + v_report.failing end;
        v_row.successes_in_a_row := case when v_report.failing > 0 then 0 else v_row.successes_in_a_row + v_report.healthy end;
        v_row.requested_until := case                      -- A past one is cleared: were the clock set back, it would lie ahead again.
            when v_report.requested > 0 then greatest(v_row.requested_until, v_now + make_interval(secs => v_report.requested))
            when v_row.requested_until > v_now then v_row.requested_until else '-infinity' end;

        -- Shares: an expired worker has none, and nobody grows into what another may use.
        delete from duly.destination_shares where destination_shares.destination_id = v_row.destination_id
           and not exists (select from duly.workers where workers.worker_id = destination_shares.worker_id);
        select coalesce(sum(shares.slots), 0)::integer as slots, coalesce(sum(shares.waiting), 0)::integer as waiting,
               count(*) filter (where shares.in_flight + shares.waiting > 0)::integer as rivals,
               count(*) filter (where shares.in_flight + shares.waiting > 0 and shares.worker_id < p_worker_id)::integer as before_us
          into v_others from duly.destination_shares as shares
         where shares.destination_id = v_row.destination_id and shares.worker_id <> p_worker_id;
        v_budget := case when v_now < v_row.requested_until then 0 when v_row.state = 'closed' then v_row.slots when v_row.state = 'half_open' then 1 else 0 end;
        -- An even part, and of what is left over one each to the first: of five slots among three: two, two and one.
        v_part := v_budget / (v_others.rivals + 1) + case when v_others.before_us < v_budget % (v_others.rivals + 1) then 1 else 0 end;
        ceiling := case when v_others.waiting = 0 then least(v_report.wanted, v_budget)      -- Nobody waits in vain.
                        else least(v_report.wanted, v_report.in_flight + v_report.waiting, greatest(1, v_part), v_budget) end;
        ceiling := greatest(0, least(ceiling, v_report.holds + greatest(0, v_budget - v_others.slots - v_report.holds)));
        v_slots := greatest(v_report.holds, ceiling);

        -- Reservations: for those who wait; and for those who may come, unless others or waiting runs wait.
        rate := duly.destination_rate(v_row, v_now);
        granted := null;
        first_seconds := null;
        v_waiting := v_report.waiting;
        if rate is not null then
            v_row.tokens := duly.destination_tokens(v_row, rate, v_now);
            v_row.counted_at := v_now;
            first_seconds := greatest(0, (1 - v_row.tokens) / rate);
            v_spare := case when v_others.waiting > 0 or exists (
                select from duly.blocked where blocked.tenant = v_row.tenant and blocked.waits_for = 'destination' and blocked.key = v_row.origin) then 0 else v_report.spare end;
            granted := case when ceiling > 0 then greatest(0, least(v_report.tokens + v_spare, floor(v_row.tokens + p_ahead * rate)::integer)) else 0 end;
            v_row.tokens := v_row.tokens - granted;
            v_waiting := case when v_row.state = 'closed' then greatest(0, v_report.tokens - granted) else v_report.waiting end;
        end if;
        if v_slots + v_report.in_flight + v_report.waiting > 0 then
            insert into duly.destination_shares (destination_id, worker_id, slots, in_flight, waiting)
            values (v_row.destination_id, p_worker_id, v_slots, v_report.in_flight, v_waiting)
            on conflict (destination_id, worker_id) do update
               set slots = excluded.slots, in_flight = excluded.in_flight, waiting = excluded.waiting;
        else
            delete from duly.destination_shares where destination_shares.destination_id = v_row.destination_id
               and destination_shares.worker_id = p_worker_id;
        end if;

        update duly.destinations
           set healthy = v_row.healthy, failing = v_row.failing, healthy_before = v_row.healthy_before, failing_before = v_row.failing_before,
               half_at = v_row.half_at, steady_rate = v_row.steady_rate, failures_in_a_row = v_row.failures_in_a_row,
               successes_in_a_row = v_row.successes_in_a_row, requested_until = v_row.requested_until, tokens = v_row.tokens, counted_at = v_row.counted_at,
               healthy_total = healthy_total + v_report.healthy, failing_total = failing_total + v_report.failing,
               retries_total = retries_total + v_report.retries, rejected_total = rejected_total + v_report.rejected,
               rejected_at = case when v_report.rejected > 0 then v_now else rejected_at end
         where destinations.destination_id = v_row.destination_id;
        is_contended := v_others.waiting > 0;
        tenant := v_row.tenant;
        origin := v_row.origin;
        state := v_row.state;
        state_version := v_row.state_version;
        openings := v_row.openings;
        failures_in_a_row := v_row.failures_in_a_row;
        successes_in_a_row := v_row.successes_in_a_row;
        healthy := v_row.healthy + v_row.healthy_before;
        failing := v_row.failing + v_row.failing_before;
        wait_seconds := duly.seconds_until(v_row.wait_until, v_now);
        requested_seconds := duly.seconds_until(v_row.requested_until, v_now);
        since_state_change_seconds := date_part('epoch', v_now - v_row.state_changed_at);
        steady_rate := v_row.steady_rate;
        destination_id := v_row.destination_id;
        retry_share := v_row.retry_share;
        workers := greatest(1, (select count(*) from duly.destination_shares where destination_shares.destination_id = v_row.destination_id));
        read_at := v_now;
        return next;
    end loop;
end $$;

-- Destinations that need a look: those whose circuit is open, and those that runs wait for; of the waiting, destination by destination and not run by run,
-- behind the one that was seen last. Nothing was seen: from the first on, and open circuits as well; what is to be probed comes before what is.
-- While retries are being turned away, not all that waits goes round at every look.
create or replace function duly.watched_destinations(p_tenant integer, p_origin text, p_limit integer)
returns table (destination_id uuid, tenant integer, origin text, has_waiting_runs boolean, released_at timestamptz, state text, state_version integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               requested_seconds double precision, since_state_change_seconds double precision, steady_rate double precision, slots integer,
               in_flight integer, waiting integer, answers_per_second double precision, rate double precision, tokens double precision,
               retry_share double precision, rejects boolean)
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with recursive origins as (
        (select blocked.tenant, blocked.key from duly.blocked
          where blocked.waits_for = 'destination' and (blocked.tenant, blocked.key) > (coalesce(p_tenant, 0), coalesce(p_origin, '') collate "C")
          order by blocked.tenant, blocked.key limit 1)
        union all
        select next.tenant, next.key from origins cross join lateral (
            select blocked.tenant, blocked.key from duly.blocked
             where blocked.waits_for = 'destination' and (blocked.tenant, blocked.key) > (origins.tenant, origins.key)
             order by blocked.tenant, blocked.key limit 1) as next),
    wanted as (
        (select origins.tenant, origins.key as origin, true as has_waiting_runs from origins limit p_limit)
        union all
        (select open.tenant, open.origin, false from duly.destinations as open
          where p_tenant is null and open.state <> 'closed' and open.wait_until <= v_now order by open.wait_until desc limit p_limit)),
    named as (select wanted.tenant, wanted.origin, bool_or(wanted.has_waiting_runs) as has_waiting_runs from wanted group by 1, 2)
    select d.destination_id, named.tenant, named.origin, named.has_waiting_runs, d.released_at, d.state, d.state_version, d.openings,
           d.failures_in_a_row, d.successes_in_a_row, d.healthy + d.healthy_before, d.failing + d.failing_before,
           duly.seconds_until(d.wait_until, v_now), duly.seconds_until(d.requested_until, v_now), date_part('epoch', v_now - d.state_changed_at), d.steady_rate,
           d.slots, live.in_flight, live.waiting,
           greatest(d.measured_rate, (d.healthy_total + d.failing_total - d.answers_before) / greatest(0.75, date_part('epoch', v_now - d.answers_at))),
           limits.rate, duly.destination_tokens(d, limits.rate, v_now),
           coalesce(d.retry_share, 0.2), coalesce(d.rejected_at > v_now - interval '1 second', false)
      from named
      left join duly.destinations as d on d.tenant = named.tenant and d.origin = named.origin
      left join lateral (select duly.destination_rate(d, v_now) as rate) as limits on true
      left join lateral (
          select coalesce(sum(shares.in_flight), 0)::integer as in_flight, coalesce(sum(shares.waiting), 0)::integer as waiting
            from duly.destination_shares as shares where shares.destination_id = d.destination_id
             and exists (select from duly.workers where workers.worker_id = shares.worker_id)) as live on true
     order by named.tenant, named.origin collate "C";
end $$;

-- Let runs go that wait for destinations, unless another caller has done so meanwhile. While some wait, a ramp lasts.
-- Rows are locked in the order in which reports lock them.
create or replace function duly.release_destinations(p_ids uuid[], p_seen timestamptz[], p_counts integer[])
returns table (destination_id uuid, released integer)
language plpgsql {planned by index, by loop} as $$
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
           set measured_rate = (healthy_total + failing_total - answers_before) / date_part('epoch', v_now - answers_at),
               answers_before = healthy_total + failing_total, answers_at = v_now
         where destinations.destination_id = v_row.destination_id and destinations.answers_at < v_now - interval '0.75 seconds';
        destination_id := v_row.destination_id;
        released := duly.release_destination_runs(v_row.tenant, v_row.origin, v_one.count);
        return next;
    end loop;
end $$;
