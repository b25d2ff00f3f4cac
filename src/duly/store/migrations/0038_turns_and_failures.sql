-- Destinations: turns ahead of time, and what failed there last. docs/decisions/0043-turns.md says why.

-- What is in the bucket: one at most. What was granted ahead is owed, and never for more than a second: a rate that was made lower
-- does not stand still for what was granted at the one before.
create or replace function duly.destination_tokens(p_destination duly.destinations, p_rate double precision, p_now timestamptz) returns double precision
language sql stable as $$
    select least(1, greatest(-p_rate, p_destination.tokens) + greatest(0, date_part('epoch', p_now - p_destination.counted_at)) * p_rate)
$$;

-- What a worker has seen of the destinations it uses, and what it may do until its next report. p_holds is what it keeps to at this
-- moment: it has no more under way, and starts no more before it is answered. Where there is a rate it is granted turns: the first in
-- first_seconds, each next one 1 / rate later, none beyond p_ahead. Rows are locked in one order.
create function duly.report_destinations_v3(
    p_worker_id uuid, p_number bigint, p_ids uuid[], p_tenants integer[], p_origins text[], p_healthy integer[], p_failing integer[],
    p_streaks integer[], p_asked double precision[], p_in_flight integer[], p_waiting integer[], p_wanted integer[], p_holds integer[],
    p_tokens integer[], p_spares integer[], p_retries integer[], p_turned_away integer[], p_ahead double precision)
returns table (tenant integer, origin text, ceiling integer, granted integer, is_contended boolean, state text, turn integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               asked_seconds double precision, since_turn_seconds double precision, steady_rate double precision, destination_id uuid,
               retry_share double precision, workers integer, rate double precision, first_seconds double precision, read_at timestamptz)
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_told   record;
    v_row    duly.destinations;
    v_others record;
    v_budget integer;
    v_part   integer;
    v_half   double precision;
    v_places integer;
    v_spare  integer;
    v_waiting integer;
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    for v_told in select * from unnest(p_ids, p_tenants, p_origins, p_healthy, p_failing, p_streaks, p_asked, p_in_flight, p_waiting, p_wanted,
                                       p_holds, p_tokens, p_spares, p_retries, p_turned_away)
                      as u(id, tenant, origin, healthy, failing, streak, asked, in_flight, waiting, wanted, holds, tokens, spare, retries, turned_away)
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
        select coalesce(sum(shares.places), 0)::integer as places, coalesce(sum(shares.waiting), 0)::integer as waiting,
               count(*) filter (where shares.in_flight + shares.waiting > 0)::integer as rivals,
               count(*) filter (where shares.in_flight + shares.waiting > 0 and shares.worker_id < p_worker_id)::integer as before_us
          into v_others from duly.destination_shares as shares
         where shares.destination_id = v_row.destination_id and shares.worker_id <> p_worker_id;
        v_budget := case when v_now < v_row.asked_until then 0 when v_row.state = 'closed' then v_row.places when v_row.state = 'half_open' then 1 else 0 end;
        -- An even part, and of what is left over one each to the first: of five places among three, two, two and one.
        v_part := v_budget / (v_others.rivals + 1) + case when v_others.before_us < v_budget % (v_others.rivals + 1) then 1 else 0 end;
        ceiling := case when v_others.waiting = 0 then least(v_told.wanted, v_budget)      -- Nobody waits in vain.
                        else least(v_told.wanted, v_told.in_flight + v_told.waiting, greatest(1, v_part), v_budget) end;
        ceiling := greatest(0, least(ceiling, v_told.holds + greatest(0, v_budget - v_others.places - v_told.holds)));
        v_places := greatest(v_told.holds, ceiling);

        -- Turns: for those who wait; and for those who may come, unless others wait, or what is parked, to whomever it goes.
        rate := duly.destination_rate(v_row, v_now);
        granted := null;
        first_seconds := null;
        v_waiting := v_told.waiting;
        if rate is not null then
            v_row.tokens := duly.destination_tokens(v_row, rate, v_now);
            v_row.counted_at := v_now;
            first_seconds := greatest(0, (1 - v_row.tokens) / rate);
            v_spare := case when v_others.waiting > 0 or exists (
                select from duly.blocked where blocked.tenant = v_row.tenant and blocked.gate = '@' || v_row.origin) then 0 else v_told.spare end;
            granted := case when ceiling > 0 then greatest(0, least(v_told.tokens + v_spare, floor(v_row.tokens + p_ahead * rate)::integer)) else 0 end;
            v_row.tokens := v_row.tokens - granted;
            v_waiting := case when v_row.state = 'closed' then greatest(0, v_told.tokens - granted) else v_told.waiting end;
        end if;
        if v_places + v_told.in_flight + v_told.waiting > 0 then
            insert into duly.destination_shares (destination_id, worker_id, number, places, in_flight, waiting)
            values (v_row.destination_id, p_worker_id, p_number, v_places, v_told.in_flight, v_waiting)
            on conflict (destination_id, worker_id) do update
               set number = excluded.number, places = excluded.places, in_flight = excluded.in_flight, waiting = excluded.waiting
             where destination_shares.number < excluded.number;
            continue when not found;                   -- A later report has been answered.
        else
            delete from duly.destination_shares where destination_shares.destination_id = v_row.destination_id
               and destination_shares.worker_id = p_worker_id and destination_shares.number < p_number;
        end if;

        update duly.destinations
           set healthy = v_row.healthy, failing = v_row.failing, healthy_before = v_row.healthy_before, failing_before = v_row.failing_before,
               half_at = v_row.half_at, steady_rate = v_row.steady_rate, failures_in_a_row = v_row.failures_in_a_row,
               successes_in_a_row = v_row.successes_in_a_row, asked_until = v_row.asked_until, tokens = v_row.tokens, counted_at = v_row.counted_at,
               healthy_total = healthy_total + v_told.healthy, failing_total = failing_total + v_told.failing,
               retries_total = retries_total + v_told.retries, turned_away_total = turned_away_total + v_told.turned_away,
               turned_away_at = case when v_told.turned_away > 0 then v_now else turned_away_at end
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
        retry_share := v_row.retry_share;
        workers := greatest(1, (select count(*) from duly.destination_shares where destination_shares.destination_id = v_row.destination_id));
        read_at := v_now;
        return next;
    end loop;
end $$;

-- For workers of the versions before, which send what they are granted at once.
create or replace function duly.report_destinations_v2(
    p_worker_id uuid, p_number bigint, p_ids uuid[], p_tenants integer[], p_origins text[], p_healthy integer[], p_failing integer[],
    p_streaks integer[], p_asked double precision[], p_in_flight integer[], p_waiting integer[], p_wanted integer[], p_holds integer[],
    p_tokens integer[], p_retries integer[], p_turned_away integer[])
returns table (tenant integer, origin text, ceiling integer, granted integer, is_contended boolean, state text, turn integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               asked_seconds double precision, since_turn_seconds double precision, steady_rate double precision, destination_id uuid,
               retry_share double precision, workers integer)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
    select tenant, origin, ceiling, granted, is_contended, state, turn, openings, failures_in_a_row, successes_in_a_row, healthy, failing, wait_seconds,
           asked_seconds, since_turn_seconds, steady_rate, destination_id, retry_share, workers
      from duly.report_destinations_v3(p_worker_id, p_number, p_ids, p_tenants, p_origins, p_healthy, p_failing, p_streaks, p_asked, p_in_flight,
                                       p_waiting, p_wanted, p_holds, p_tokens, array_fill(0, array[cardinality(p_ids)]), p_retries, p_turned_away, 0.25);
end $$;

create or replace function duly.report_destinations_v1(
    p_worker_id uuid, p_number bigint, p_ids uuid[], p_tenants integer[], p_origins text[], p_healthy integer[], p_failing integer[],
    p_streaks integer[], p_asked double precision[], p_in_flight integer[], p_waiting integer[], p_wanted integer[], p_holds integer[],
    p_tokens integer[])
returns table (tenant integer, origin text, ceiling integer, granted integer, is_contended boolean, state text, turn integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               asked_seconds double precision, since_turn_seconds double precision, steady_rate double precision, destination_id uuid)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
    select tenant, origin, ceiling, granted, is_contended, state, turn, openings, failures_in_a_row, successes_in_a_row, healthy, failing, wait_seconds,
           asked_seconds, since_turn_seconds, steady_rate, destination_id
      from duly.report_destinations_v2(p_worker_id, p_number, p_ids, p_tenants, p_origins, p_healthy, p_failing, p_streaks, p_asked, p_in_flight,
                                       p_waiting, p_wanted, p_holds, p_tokens, array_fill(0, array[cardinality(p_ids)]), array_fill(0, array[cardinality(p_ids)]));
end $$;

---------------------------------------------------------------------------------------------------------------- failures

-- Where a webhook's attempt was sent to, as its detail says.
create function duly.origin_told(p_detail jsonb) returns text language sql immutable parallel safe as $$
    select substring(p_detail->>'to' from '^[a-z]+://[^/?#]+')
$$;

create index attempts_failed_at on duly.attempts_failed (tenant, duly.origin_told(detail), finished_at, run_id, attempt)
 where handler = '@webhook' and outcome in ('failed', 'timed_out');

-- What failed at a destination, the last first, from behind one that was seen on.
create function duly.page_failures_v1(
    p_tenant integer, p_origin text, p_before_at timestamptz, p_before uuid, p_before_attempt integer, p_limit integer)
returns table (run_id uuid, job_id uuid, attempt integer, finished_at timestamptz, outcome text, status integer, reason text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select failed.run_id, failed.job_id, failed.attempt, failed.finished_at, failed.outcome::text,
           case when jsonb_typeof(failed.detail->'status') = 'number' then (failed.detail->'status')::integer end, failed.reason
      from duly.attempts_failed as failed
     where failed.handler = '@webhook' and failed.outcome in ('failed', 'timed_out')
       and failed.tenant = p_tenant and duly.origin_told(failed.detail) = p_origin
       and (failed.finished_at, failed.run_id, failed.attempt)
           < (coalesce(p_before_at, 'infinity'), coalesce(p_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), coalesce(p_before_attempt, 0))
     order by failed.finished_at desc, failed.run_id desc, failed.attempt desc limit p_limit;
end $$;

revoke execute on function duly.report_destinations_v3, duly.origin_told, duly.page_failures_v1 from public;
grant execute on function duly.page_failures_v1 to duly_api;
