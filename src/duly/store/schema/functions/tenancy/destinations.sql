-- Destinations: where webhooks go to, what each may be sent, and their health. docs/decisions/0030-workers-share-destination-limits.md says why. What follows
-- from the sums is decided in domain/targets/circuit.py.

-- Create a destination that nobody has used before. Repeated, it is created once.
create or replace function duly.create_destination(p_destination_id uuid, p_tenant integer, p_origin text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    perform duly.must_be_ours(p_tenant);
    insert into duly.destinations (destination_id, tenant, origin, created_at, state_changed_at, half_at, counted_at, released_at, answers_at)
    values (p_destination_id, p_tenant, p_origin, v_now, v_now, v_now, v_now, v_now, v_now)
    on conflict (tenant, origin) do nothing;
    return found;
end $$;

-- Change the state, if `state_version` is still the one seen; of two who have, one succeeds. What was counted before it says nothing about it.
-- Reservations that were granted ahead are leased by workers, and stay owed: reckoned at the rate there was, or, where there was none,
-- at the one that comes, for time that passes without a rate pays for nothing. Otherwise they would be granted a second time.
create or replace function duly.change_destination_state(p_destination_id uuid, p_state_version integer, p_state text, p_openings integer, p_wait double precision,
                                                    p_ramp_rate double precision, p_ramp_grows boolean) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now  timestamptz := duly.clock_now();
    v_row  duly.destinations;
    v_rate double precision;
begin
    select * into v_row from duly.destinations where destination_id = p_destination_id and state_version = p_state_version and duly.is_ours(tenant)
       for no key update;
    if not found then
        return false;
    end if;
    v_rate := coalesce(duly.destination_rate(v_row, v_now), least(v_row.rate_per_second, p_ramp_rate));
    update duly.destinations
       set state = p_state, state_version = state_version + 1, state_changed_at = v_now, openings = p_openings,
           wait_until = case when p_state = 'open' then v_now + make_interval(secs => p_wait) else '-infinity' end,
           requested_until = case when p_state = 'open' then requested_until else '-infinity' end,
           failures_in_a_row = 0, successes_in_a_row = 0, healthy = 0, failing = 0, healthy_before = 0, failing_before = 0, half_at = v_now,
           ramp_rate = p_ramp_rate, ramp_grows = p_ramp_grows,
           ramp_until = case when p_ramp_rate is null then '-infinity' else v_now + interval '2 seconds' end,
           tokens = least(0, case when v_rate is null then v_row.tokens else duly.destination_tokens(v_row, v_rate, v_now) end),
           counted_at = case when v_rate is null then v_row.counted_at else v_now end
     where destination_id = p_destination_id;
    return true;
end $$;

-- Set the limits of a destination; those not given stay. No rate means no limit, so a flag says whether one is given.
-- Its workers hear of it with their next reports.
create or replace function duly.limit_destination(
    p_destination_id uuid, p_slots integer, p_rate double precision, p_has_rate boolean, p_retry_share double precision) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update duly.destinations
       set slots = coalesce(p_slots, slots), rate_per_second = case when p_has_rate then p_rate else rate_per_second end,
           retry_share = coalesce(p_retry_share, retry_share)
     where destination_id = p_destination_id and duly.is_ours(tenant);
    return found;
end $$;

-- Keep a secret under the next number, unless a newer one exists. The one before it is good for a day more; older ones go.
create or replace function duly.keep_secret(p_destination_id uuid, p_number integer, p_sealed bytea, p_key_id text, p_kept interval) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now    timestamptz := duly.clock_now();
    v_tenant integer;
begin
    select tenant into v_tenant from duly.destinations where destination_id = p_destination_id and duly.is_ours(tenant) for update;
    if not found or p_number <> 1 + coalesce((select max(number) from duly.destination_secrets where destination_id = p_destination_id), 0) then
        return false;
    end if;
    delete from duly.destination_secrets where destination_id = p_destination_id and number < p_number - 1;
    update duly.destination_secrets set retires_at = v_now + p_kept where destination_id = p_destination_id and number = p_number - 1;
    insert into duly.destination_secrets (destination_id, number, tenant, sealed, key_id, created_at)
    values (p_destination_id, p_number, v_tenant, p_sealed, p_key_id, v_now);
    return true;
end $$;

-- Requests under way to a destination and runs that wait with its workers, as those that live last said.
create or replace function duly.load_of_destination(p_destination_id uuid, out in_flight integer, out waiting integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
begin
    select coalesce(sum(shares.in_flight), 0), coalesce(sum(shares.waiting), 0) into in_flight, waiting
      from duly.destination_shares as shares
     where shares.destination_id = p_destination_id
       and exists (select from duly.destinations where destinations.destination_id = p_destination_id and duly.is_ours(destinations.tenant))
       and exists (select from duly.workers where workers.worker_id = shares.worker_id);
end $$;

-- Failed attempts at a destination, the last first, after a position.
create or replace function duly.page_failures(
    p_tenant integer, p_origin text, p_before_at timestamptz, p_before uuid, p_before_attempt integer, p_limit integer)
returns table (run_id uuid, job_id uuid, attempt integer, finished_at timestamptz, outcome text, status integer, reason text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, in order, unsorted} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select failed.run_id, failed.job_id, failed.attempt, failed.finished_at, failed.outcome::text,
           case when jsonb_typeof(failed.detail->'status') = 'number' then (failed.detail->'status')::integer end, failed.reason
      from duly.attempts_failed as failed
     where failed.handler = '@webhook' and failed.outcome in ('failed', 'timed_out')
       and failed.tenant = p_tenant and duly.reported_origin(failed.detail) = p_origin
       and (failed.finished_at, failed.run_id, failed.attempt)
           < (coalesce(p_before_at, 'infinity'), coalesce(p_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), coalesce(p_before_attempt, 0))
     order by failed.finished_at desc, failed.run_id desc, failed.attempt desc limit p_limit;
end $$;

-- Forget destinations that have not been used for so long, with their secrets; holders of shares report every few seconds. What
-- somebody has set stays. Should a run still wait for one, maintenance creates it anew.
create or replace function duly.forget_destinations(p_unused interval, p_limit integer) returns integer
language plpgsql {planned by index, in order, unsorted} as $$
declare
    v_before timestamptz := duly.clock_now() - p_unused;
    v_ids    uuid[];
begin
    v_ids := array(
        select d.destination_id from duly.destinations as d
         where d.half_at < v_before
           and d.slots = 100 and d.rate_per_second is null and d.retry_share = 0.2
         order by d.half_at limit p_limit for update of d skip locked);
    delete from duly.destination_shares where destination_id = any (v_ids);
    delete from duly.destination_secrets where destination_id = any (v_ids);
    delete from duly.destinations where destination_id = any (v_ids);
    return cardinality(v_ids);
end $$;

grant execute on function duly.load_of_destination, duly.page_failures, duly.create_destination, duly.change_destination_state,
    duly.limit_destination, duly.keep_secret to duly_api;
