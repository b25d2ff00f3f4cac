-- Retries that end, work that is worthless late, and dead letters at a pace. docs/decisions/0031-retries-and-expiry.md says why.

--------------------------------------------------------------------------------------------------------------- policies

-- Whether this is a rule for failures: of one error, status or exit code, and what then.
create function duly.is_retry_rule(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_value) <> 'object' then false
                else p_value - array['then', 'error', 'status', 'exit', 'delay_seconds'] = '{}' and (p_value->>'then' in ('retry', 'bury', 'snooze')) is true
                     and (p_value ? 'error')::integer + (p_value ? 'status')::integer + (p_value ? 'exit')::integer = 1
                     and not jsonb_path_exists(p_value - array['then', 'delay_seconds'], '$.* ? (@.type() != "string")')
                     and duly.is_span(p_value->'delay_seconds') and (p_value->>'then' <> 'snooze' or p_value ? 'delay_seconds') end
$$;

create or replace function duly.is_retry(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) <> 'object' then false
                else coalesce(p_value->'max_attempts', '1')::text ~ '^[1-9][0-9]{0,3}$'
                     and duly.is_span(p_value->'base_seconds') and duly.is_span(p_value->'cap_seconds')
                     and coalesce(p_value->>'policy', 'fixed') in ('exponential', 'linear', 'fixed', 'list')
                     and case when p_value->'delays' is null then p_value->>'policy' is distinct from 'list'
                              when jsonb_typeof(p_value->'delays') <> 'array' then false
                              else jsonb_array_length(p_value->'delays') between 1 and 100
                                   and (select bool_and(duly.is_span(delay)) from jsonb_array_elements(p_value->'delays') as delay) end
                     and (coalesce(jsonb_typeof(p_value->'jitter'), 'null') = 'null' or (duly.is_span(p_value->'jitter') and (p_value->'jitter')::numeric <= 1))
                     and (coalesce(jsonb_typeof(p_value->'max_age_seconds'), 'null') = 'null' or duly.is_span(p_value->'max_age_seconds'))
                     and case when p_value->'rules' is null then true when jsonb_typeof(p_value->'rules') <> 'array' then false
                              else jsonb_array_length(p_value->'rules') <= 32
                                   and coalesce((select bool_and(duly.is_retry_rule(rule)) from jsonb_array_elements(p_value->'rules') as rule), true) end end
$$;

----------------------------------------------------------------------------------------------------------------- expiry

-- The moment after which a run is not started; null: it is never too late.
create function duly.expiry(p_scheduled_at timestamptz, p_options jsonb) returns timestamptz language sql immutable parallel safe as $$
    select least(case when p_options ? 'expires_at' then to_timestamp(least(greatest((p_options->>'expires_at')::double precision, 0), 253370764800)) end,
                 p_scheduled_at + make_interval(secs => (p_options->>'expires_seconds')::double precision))
$$;

-- What expires, box by box. A row that never does is in none of them; nor is a next fire, which is no run.
create index timers_expiring on duly.timers (duly.expiry(scheduled_at, options))
 where options ?| array['expires_at', 'expires_seconds'] and run_id is not null;
create index blocked_expiring on duly.blocked (duly.expiry(scheduled_at, options)) where options ?| array['expires_at', 'expires_seconds'];
create index ready_expiring on duly.ready (duly.expiry(scheduled_at, options)) where options ?| array['expires_at', 'expires_seconds'];

-- Expire: end runs that wait and are worthless by now, the longest overdue first, with a record. One that had not entered its gate
-- leaves nothing behind there; one that waits for its turn at a rate has.
create function duly.expire_v1(p_limit integer) returns setof uuid
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_gone    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with waiting as (
        delete from duly.timers where timers.run_id = any (array(
            select run_id from duly.timers
             where options ?| array['expires_at', 'expires_seconds'] and run_id is not null and duly.expiry(scheduled_at, options) <= v_now
             order by duly.expiry(scheduled_at, options) limit p_limit for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options, duly.is_held(options) as inside),
    at_gate as (
        delete from duly.blocked where blocked.run_id = any (array(
            select run_id from duly.blocked
             where options ?| array['expires_at', 'expires_seconds'] and duly.expiry(scheduled_at, options) <= v_now
             order by duly.expiry(scheduled_at, options) limit p_limit for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options,
                  duly.is_held(options) or left(gate, 1) = '~' as inside),
    staged as (
        delete from duly.ready where ready.run_id = any (array(
            select run_id from duly.ready
             where options ?| array['expires_at', 'expires_seconds'] and duly.expiry(scheduled_at, options) <= v_now
             order by duly.expiry(scheduled_at, options) limit p_limit for update skip locked))
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options, true as inside),
    gone as (
        select * from waiting union all select * from at_gate union all select * from staged),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'expired', queue, handler,
               'expired at ' || to_char(duly.expiry(scheduled_at, options) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), duly.marks_of(options)
          from gone),
    leaving as (                                       -- It may have stood before others in a line.
        select job_id, tenant, case when inside then options when options ? 'fifo' then options || '{"outside": true}' else options - 'gate' end as options
          from gone where duly.has_consequence(options))
    select (select array_agg(run_id) from gone), array_agg(job_id), array_agg(tenant), array_agg(options)
      into v_gone, v_job_ids, v_tenants, v_options from leaving;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_gone);
end $$;

----------------------------------------------------------------------------------------------------------------- settle

-- Whether a run keeps the place at its gate until it is over: a retry is part of it, and what comes next must not go before it.
create or replace function duly.keeps_place(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ?| array['overlap', 'fifo'], false)
$$;

-- Lay what is known of a run's life over its options. Options that say nothing, and mean it, say so from here on: what is laid over
-- them leaves how the run is run to its handler.
create function duly.carry_on(p_options jsonb, p_carried jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_carried is null then p_options when p_options = '{}' then '{"retry": {}}' || p_carried else coalesce(p_options, '{}') || p_carried end
$$;

-- As settle_v1 was, and each run that goes on carries what p_carried lays over its options. No p_carried: an older worker, for which
-- a snooze does not count against max_attempts.
create function duly.settle_v2(
    p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_started timestamptz[], p_finished timestamptz[], p_outcomes duly.outcome[],
    p_became duly.state[], p_delays interval[], p_losses smallint[], p_suspects boolean[], p_reasons text[], p_results jsonb[], p_details jsonb[],
    p_carried jsonb[], p_horizon interval default '5 seconds')
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
    v_became  text[];
begin
    with done as (
        delete from duly.leased using unnest(p_run_ids, p_fences, p_started, p_finished, p_outcomes, p_became, p_delays, p_losses, p_suspects,
                                             p_reasons, p_results, p_details, p_carried)
             as held(run_id, fence, started_at, finished_at, outcome, became, delay, losses, suspect, reason, result, detail, carried)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.run_id, leased.job_id, leased.scheduled_at, leased.due_at as was_due_at, leased.previous_scheduled_at, leased.generation,
                  leased.tenant, leased.attempt, leased.priority, leased.payload_stored, leased.queue, leased.handler, leased.payload,
                  leased.fence, leased.worker_id, held.losses, held.suspect, held.started_at,
                  coalesce(held.finished_at, v_now) as finished_at, held.outcome, held.reason, held.result, held.detail,
                  case when held.became = 'retrying' and duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence)
                       then 'cancelled' else held.became end as became,
                  case when p_carried is not null then duly.carry_on(leased.options, held.carried)
                       when held.outcome = 'snoozed' then duly.forgive_attempt(leased.options) else leased.options end as options,
                  greatest(v_now + held.delay, leased.scheduled_at) as due_at),
    retrying as (                                      -- A retry is part of its run, so it keeps the place where order matters; any other gate's it gives back.
        select done.*, case when duly.keeps_place(options) then options || '{"held": true}' else options end as carried from done where became = 'retrying'),
    again as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, carried, duly.rank(due_at, priority)
          from retrying where due_at <= v_now + p_horizon and not duly.must_enter(carried)
        on conflict do nothing),
    later as (
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                 suspect, payload_stored, queue, handler, payload, options, shard)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, carried, duly.shard_of(job_id)
          from retrying where due_at > v_now + p_horizon or duly.must_enter(carried)
        on conflict do nothing),
    buried as (
        insert into duly.dead (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                               suspect, payload_stored, queue, handler, payload, options, buried_at, reason, replays)
        select run_id, job_id, scheduled_at, was_due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options - array['held', 'rearm'], v_now, coalesce(reason, outcome::text),
               coalesce((options->>'replays')::integer, 0)
          from done where became = 'dead'
        on conflict do nothing),
    unneeded as (
        delete from duly.checkpoints using done where checkpoints.run_id = done.run_id and done.became not in ('retrying', 'dead')),
    recorded as (                                      -- What was skipped made no attempt.
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, reason, result, detail, marks)
        select run_id, job_id, scheduled_at, was_due_at, started_at, finished_at, fence, tenant,
               case when outcome = 'skipped' then attempt - 1 else attempt end, outcome, became,
               queue, handler, worker_id, reason, result, detail, duly.marks_of(options)
          from done
        returning attempts.run_id, attempts.fence),
    leaving as (
        select job_id, tenant, options, became from done
         where (became <> 'retrying' and duly.has_consequence(options)) or (duly.is_gated(options) and not duly.keeps_place(options)))
    select (select array_agg(run_id order by run_id) from recorded), (select array_agg(fence order by run_id) from recorded),
           array_agg(leaving.job_id), array_agg(leaving.tenant), array_agg(leaving.options), array_agg(leaving.became::text)
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options, v_became from leaving;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, v_became, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- For workers of the version before.
create or replace function duly.settle_v1(
    p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_started timestamptz[], p_finished timestamptz[], p_outcomes duly.outcome[],
    p_became duly.state[], p_delays interval[], p_losses smallint[], p_suspects boolean[], p_reasons text[], p_results jsonb[], p_details jsonb[],
    p_horizon interval default '5 seconds')
returns table (run_id uuid, fence bigint) language plpgsql as $$
begin
    return query select settled.run_id, settled.fence from duly.settle_v2(
        p_worker_id, p_run_ids, p_fences, p_started, p_finished, p_outcomes, p_became, p_delays, p_losses, p_suspects, p_reasons, p_results,
        p_details, null, p_horizon) as settled;
end $$;

create function duly.api_settle_v2(
    p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_started timestamptz[], p_finished timestamptz[], p_outcomes duly.outcome[],
    p_became duly.state[], p_delays interval[], p_losses smallint[], p_suspects boolean[], p_reasons text[], p_results jsonb[], p_details jsonb[],
    p_carried jsonb[], p_horizon interval)
returns table (run_id uuid, fence bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
    if not duly.is_our_worker(p_worker_id) or exists (
        select from duly.leased where leased.run_id = any (p_run_ids) and not duly.is_ours(leased.tenant))
    then
        return;
    end if;
    return query
    select settled.run_id, settled.fence from duly.settle_v2(
        p_worker_id, p_run_ids, p_fences, p_started, p_finished, p_outcomes, p_became, p_delays, p_losses, p_suspects, p_reasons, p_results,
        p_details, p_carried, p_horizon) as settled;
end $$;

----------------------------------------------------------------------------------------------------------- dead letters

-- Give dead runs another set of attempts, each so long from now. Their numbers go on; the run keeps its id. A new life begins: what was
-- counted in the one before is not. A gated one goes by its timer, as ever, and one that is due later waits there.
create function duly.replay_v2(p_run_ids uuid[], p_delays interval[], p_horizon interval) returns setof uuid
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with risen as (
        delete from duly.dead using unnest(p_run_ids, p_delays) as asked(run_id, delay) where dead.run_id = asked.run_id
        returning dead.run_id, job_id, scheduled_at, greatest(v_now + coalesce(asked.delay, interval '0'), scheduled_at) as due_at, previous_scheduled_at, generation,
                  tenant, attempt, priority, 0::smallint as losses, suspect, payload_stored, queue, handler, payload,
                  duly.carry_on(options - array['since', 'snoozes', 'probes'], jsonb_build_object('replays', replays + 1, 'attempts_before', attempt)) as options),
    bygones as (                                       -- A cancel that came too late for the run's former life is not for this one.
        delete from duly.signals using risen where signals.run_id = risen.run_id),
    by_timer as (
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                 suspect, payload_stored, queue, handler, payload, options, shard)
        select risen.*, duly.shard_of(job_id) from risen where duly.must_enter(options) or due_at > v_now + p_horizon
        on conflict do nothing returning run_id),
    at_once as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select risen.*, duly.rank(due_at, priority) from risen where not duly.must_enter(options) and due_at <= v_now + p_horizon
        on conflict do nothing returning run_id)
    select run_id from by_timer union all select run_id from at_once;
end $$;

create or replace function duly.replay_v1(p_run_ids uuid[]) returns setof uuid language sql as $$
    select duly.replay_v2(p_run_ids, null, interval '5 seconds')
$$;

create function duly.api_replay_v2(p_run_ids uuid[], p_delays interval[], p_horizon interval) returns setof uuid
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select duly.replay_v2(array_agg(asked.run_id order by asked.number), array_agg(asked.delay order by asked.number), p_horizon)
      from unnest(p_run_ids, p_delays) with ordinality as asked(run_id, delay, number)
     where asked.run_id = any (duly.our_runs(p_run_ids)) having count(*) > 0
$$;

-- What is alike in the reasons of runs that gave up: the first line, without what differs from run to run.
create function duly.error_group(p_reason text) returns text language sql immutable parallel safe as $$
    select left(regexp_replace(regexp_replace(regexp_replace(split_part(p_reason, E'\n', 1),
        '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '…', 'g'), '\m0x[0-9a-fA-F]+\M', '…', 'g'), '\d+([.,:]\d+)*', '…', 'g'), 200)
$$;

-- Dead letters by what is alike in their reasons, the most first; of those that fit, no more than p_looks of the last buried are looked at.
create function duly.group_dead_v1(
    p_tenant integer, p_before_at timestamptz, p_before uuid, p_since timestamptz, p_queues text[], p_handlers text[], p_reasons text[],
    p_beginning text, p_job_ids uuid[], p_tags text[], p_any_tags text[], p_limit integer, p_looks integer)
returns table (error text, count bigint, handlers text[], first_buried_at timestamptz, last_buried_at timestamptz, sample uuid[], looked bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
begin
    return query
    with page as (
        select * from duly.page_dead_v1(p_tenant, p_before_at, p_before, p_since, p_queues, p_handlers, p_reasons, p_beginning, p_job_ids, p_tags,
                                        p_any_tags, p_looks, p_looks))
    select duly.error_group(page.reason) as error, count(*) as count, (array_agg(distinct page.handler))[1:5], min(page.buried_at), max(page.buried_at),
           (array_agg(page.run_id order by page.buried_at desc))[1:3], (select max(page.number) from page)
      from page where page.fits group by 1 order by count desc, error limit p_limit;
end $$;

----------------------------------------------------------------------------------------------------------- destinations

alter table duly.destinations
    add column retry_share double precision not null default 0.2 check (retry_share between 0 and 1),   -- retries for each first attempt; 1: no budget
    add column retries_total bigint not null default 0,
    add column turned_away_total bigint not null default 0,                                            -- retries that had to wait for the budget
    add column turned_away_at timestamptz not null default '-infinity';

-- As report_destinations_v1, with what was sent and turned away of retries; and the answer says how many there may be, and how many
-- workers share what is free for all.
create function duly.report_destinations_v2(
    p_worker_id uuid, p_number bigint, p_ids uuid[], p_tenants integer[], p_origins text[], p_healthy integer[], p_failing integer[],
    p_streaks integer[], p_asked double precision[], p_in_flight integer[], p_waiting integer[], p_wanted integer[], p_holds integer[],
    p_tokens integer[], p_retries integer[], p_turned_away integer[])
returns table (tenant integer, origin text, ceiling integer, granted integer, is_contended boolean, state text, turn integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               asked_seconds double precision, since_turn_seconds double precision, steady_rate double precision, destination_id uuid,
               retry_share double precision, workers integer)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    select told.*, coalesce(known.retry_share, 0.2),
           greatest(1, (select count(*) from duly.destination_shares as shares where shares.destination_id = told.destination_id))::integer
      from duly.report_destinations_v1(p_worker_id, p_number, p_ids, p_tenants, p_origins, p_healthy, p_failing, p_streaks, p_asked, p_in_flight,
                                       p_waiting, p_wanted, p_holds, p_tokens) as told
      left join duly.destinations as known on known.destination_id = told.destination_id;
    update duly.destinations                           -- The rows are ours by now, locked in their order.
       set retries_total = destinations.retries_total + seen.retries, turned_away_total = destinations.turned_away_total + seen.turned_away,
           turned_away_at = case when seen.turned_away > 0 then v_now else destinations.turned_away_at end
      from unnest(p_tenants, p_origins, p_retries, p_turned_away) as seen(tenant, origin, retries, turned_away)
     where destinations.tenant = seen.tenant and destinations.origin = seen.origin and seen.retries + seen.turned_away > 0;
end $$;

-- As minded_destinations_v1; and whether retries are being turned away, so that not all that waits goes round at every look.
create function duly.minded_destinations_v2(p_tenant integer, p_origin text, p_limit integer)
returns table (destination_id uuid, tenant integer, origin text, is_parked boolean, released_at timestamptz, state text, turn integer, openings integer,
               failures_in_a_row integer, successes_in_a_row integer, healthy integer, failing integer, wait_seconds double precision,
               asked_seconds double precision, since_turn_seconds double precision, steady_rate double precision, places integer,
               in_flight integer, waiting integer, answers_per_second double precision, rate double precision, tokens double precision,
               retry_share double precision, turns_away boolean)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    select minded.*, coalesce(known.retry_share, 0.2), coalesce(known.turned_away_at > v_now - interval '1 second', false)
      from duly.minded_destinations_v1(p_tenant, p_origin, p_limit) as minded
      left join duly.destinations as known on known.destination_id = minded.destination_id
     order by minded.tenant, minded.origin collate "C";
end $$;

-- As limit_destination_v1; and how many retries there may be for each first attempt.
create function duly.limit_destination_v2(
    p_destination_id uuid, p_places integer, p_rate double precision, p_has_rate boolean, p_retry_share double precision) returns boolean
language plpgsql as $$
begin
    update duly.destinations
       set places = coalesce(p_places, places), rate_per_second = case when p_has_rate then p_rate else rate_per_second end,
           retry_share = coalesce(p_retry_share, retry_share)
     where destination_id = p_destination_id;
    return found;
end $$;

create function duly.api_limit_destination_v2(
    p_destination_id uuid, p_places integer, p_rate double precision, p_has_rate boolean, p_retry_share double precision) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return duly.is_our_destination(p_destination_id)
       and duly.limit_destination_v2(p_destination_id, p_places, p_rate, p_has_rate, p_retry_share);
end $$;

revoke execute on function
    duly.is_retry_rule, duly.expiry, duly.expire_v1, duly.keeps_place, duly.carry_on, duly.settle_v2, duly.api_settle_v2, duly.replay_v2, duly.api_replay_v2,
    duly.error_group, duly.group_dead_v1, duly.report_destinations_v2, duly.minded_destinations_v2, duly.limit_destination_v2,
    duly.api_limit_destination_v2
    from public;
grant execute on function
    duly.api_settle_v2, duly.api_replay_v2, duly.group_dead_v1, duly.api_limit_destination_v2 to duly_api;
