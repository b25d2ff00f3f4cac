-- Submit one-shots. They only insert: the caller's transaction may stay open for minutes, and must delay no other. What is due within
-- the horizon goes straight to ready, the rest to timers.

-- For any language, inside the caller's own transaction: select duly.submit('send_report', '{"customer": 7}').
create or replace function duly.submit(
    handler text, payload jsonb default '{}', queue text default 'default', priority integer default 5,
    at timestamptz default null, delay interval default null, key text default null, options jsonb default null, tenant integer default 1)
returns uuid language sql as $$
    select duly.check_requested(payload, priority, at, delay, key, options, tenant);
    select job_id from duly.submit_one(tenant, coalesce(key, gen_random_uuid()::text), handler, payload::text, queue, priority::smallint,
                                          at, delay, options::text)
$$;

-- Refuse what only plain SQL can request, in a sentence: the Python interfaces have checked it before. It is checked before the
-- key, so a moment that is past is not judged: it was none when this key was used first.
create or replace function duly.check_requested(
    p_payload jsonb, p_priority integer, p_at timestamptz, p_delay interval, p_key text, p_options jsonb, p_tenant integer)
returns void language plpgsql as $$
declare
    v_now   timestamptz := duly.clock_now();
    v_bytes integer := octet_length(p_payload::text);
begin
    if num_nulls(p_payload, p_priority, p_tenant) > 0 then
        raise exception using errcode = 'DU005', hint = 'Give it a value, or leave it out.', message = format(
            '%s is null', case when p_payload is null then 'payload' when p_priority is null then 'priority' else 'tenant' end);
    elsif num_nonnulls(p_at, p_delay) > 1 then
        raise exception using errcode = 'DU005', message = 'at and delay are both given',
            hint = 'Give at for a moment, or delay for a span that counts from now.';
    elsif not duly.is_name(p_key) then
        raise exception using errcode = 'DU005', message = format('a key of %s bytes is none: it has 1 to 1000, not all of them spaces', octet_length(p_key)),
            hint = 'Leave it out if the job needs none.';
    elsif p_priority not between 0 and 9 then
        raise exception using errcode = 'DU005', message = format('priority %s is outside 0 (first) to 9 (last)', p_priority),
            hint = 'Leave it out for 5.';
    elsif not isfinite(p_at) or p_at > v_now + interval '100 years' or p_delay < interval '0' or p_delay > interval '100 years'
          or v_bytes > 262144 then
        perform duly.check_one(p_at, p_delay, v_bytes, p_priority::smallint, null, v_now, interval '60 seconds');
    elsif jsonb_typeof(p_payload) <> 'object' then
        raise exception using errcode = 'DU007', message = format('payload is of type %s and not an object', jsonb_typeof(p_payload)),
            hint = 'Give each argument by its name, such as {"customer": 7}.';
    elsif not duly.is_readable(p_payload) or not duly.is_readable(p_options) then
        raise exception using errcode = 'DU007', hint = 'Flatten it, and pass such a number as a text.', message = format(
            '%s nested deeper than 64 levels, or with a number of more than 4300 digits',
            case when duly.is_readable(p_payload) then 'options are' else 'payload is' end);
    end if;
    if p_tenant <> 1 and has_table_privilege('duly.tenants', 'select') then
        if not exists (select from duly.tenants where tenants.tenant = p_tenant) then
            raise exception using errcode = 'DU021', message = format('no tenant %s', p_tenant), hint = '`duly tenants` lists them.';
        end if;
    end if;
end $$;

-- Send the workers a wake-up hint with the commit, for what this transaction has put into ready. False: the caller sends it after the commit.
-- PostgreSQL lets transactions that notify commit one after the other, so at most one at a time does, by a lock for which nobody waits; and
-- no submit may fail for a hint, as it would in a prepared transaction or behind a full queue of notifications. One expression, to be inlined.
create or replace function duly.hint(p_queue text, p_handler text) returns boolean language sql as $$
    select case when current_setting('max_prepared_transactions') <> '0' or pg_notification_queue_usage() >= 0.5 then false
                when pg_try_advisory_xact_lock(hashtext('duly.hint')) then pg_notify('duly_ready', p_queue || E'\x01' || p_handler) is not null
                else false end
$$;

-- Submit one one-shot. Each expression here is prepared anew in each transaction, so a plain job that is due now is put into ready by as few
-- as can be, which costs less than a batch of one; whatever else it is goes to put_one. Requests call create_one_shot or submit_checked.
create or replace function duly.submit_one(
    p_tenant integer, p_key text, p_handler text, p_payload text, p_queue text, p_priority smallint, p_at timestamptz, p_delay interval,
    p_options text, p_horizon interval default '5 seconds', p_grace interval default '60 seconds',
    out job_id uuid, out scheduled_at timestamptz, out replayed boolean, out needs_hint boolean)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_payload jsonb := p_payload;
    v_hash    bytea := sha256(convert_to(concat_ws(E'\x01', p_handler, v_payload, p_queue, p_priority,
                                                  coalesce((date_part('epoch', p_at) * 1000000)::bigint, 0),
                                                  coalesce((date_part('epoch', p_delay) * 1000000)::bigint, -1),
                                                  duly.requested_options(p_options::jsonb)), 'UTF8'));
    v_key     duly.idempotency_keys;
begin
    needs_hint := false;
    replayed := false;
    scheduled_at := coalesce(p_at, v_now + p_delay, v_now);
    job_id := duly.run_id(scheduled_at, duly.batch_name(p_tenant, p_key, v_now) || '1');
    if p_at is null and p_delay is null and p_options is null and octet_length(p_payload) <= 1024 and p_priority between 0 and 9
       and duly.is_name(p_handler) and duly.is_name(p_queue) then
        with used as (
            insert into duly.idempotency_keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
            values (p_tenant, p_key, submit_one.job_id, v_hash, v_now, v_now + interval '24 hours')
            on conflict (tenant, key) do update
               set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
             where idempotency_keys.expires_at <= v_now
            returning 1)
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                payload_stored, queue, handler, payload)
        select submit_one.job_id, submit_one.job_id, submit_one.scheduled_at, submit_one.scheduled_at, 1, p_tenant, 0, p_priority, 0, false,
               false, p_queue, p_handler, v_payload
          from used where not exists (select from duly.absent_tenants where absent_tenants.tenant = p_tenant);
        if found then
            needs_hint := not duly.hint(p_queue, p_handler);
            return;
        end if;
    end if;
    perform duly.check_presence(p_tenant);
    v_key := duly.use_key(p_tenant, p_key, job_id, v_hash, v_now);
    replayed := v_key.key is not null;
    if replayed then
        job_id := v_key.job_id;
        scheduled_at := coalesce(p_at, v_key.scheduled_at + coalesce(p_delay, interval '0'));
        needs_hint := scheduled_at <= v_now + p_horizon;   -- The first answer may have been lost, and with it the hint.
    else
        needs_hint := duly.put_one(p_tenant, job_id, scheduled_at, p_handler, v_payload, octet_length(p_payload), p_queue, p_priority, p_at, p_delay,
                                   p_options::jsonb, p_horizon, p_grace, v_now);
    end if;
end $$;

-- Put a new one-shot where it belongs, whatever it is, or refuse it: what is wrong is found with plain comparisons, and only that, or what
-- has options, goes to check_one, which says it in a sentence and has settings that cost on every call. A run in FIFO order gets its number
-- here, and a run with dependencies waits under `&after`. Returns whether the workers need a hint after the commit.
create or replace function duly.put_one(
    p_tenant integer, p_run_id uuid, p_due_at timestamptz, p_handler text, p_payload jsonb, p_payload_bytes integer, p_queue text,
    p_priority smallint, p_at timestamptz, p_delay interval, p_options jsonb, p_horizon interval, p_grace interval, p_now timestamptz)
returns boolean language plpgsql as $$
declare
    v_stored  boolean := p_payload_bytes > 1024;
    v_payload jsonb := case when not v_stored then p_payload end;
    v_options jsonb;
begin
    if duly.is_name(p_handler) is not true or duly.is_name(p_queue) is not true then
        raise exception using errcode = 'DU005', message = 'a job needs the name of a handler and of a queue, of at most 1000 bytes each',
            hint = 'Give both, such as duly.submit(''send_report'', queue => ''mail'').';
    end if;
    if p_at < p_now - p_grace or p_at > p_now + interval '100 years' or p_delay < interval '0' or p_delay > interval '100 years'
       or p_payload_bytes > 262144 or p_priority not between 0 and 9 or p_options is not null then
        perform duly.check_one(p_at, p_delay, p_payload_bytes, p_priority, duly.without_dependencies(p_options), p_now, p_grace);
    end if;
    v_options := duly.numbered(p_options);
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (p_run_id, 1, p_payload, p_now);
    end if;
    if v_options->'depends_on' is not null then
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                  payload_stored, queue, handler, payload, options, waits_for, key, blocked_at)
        values (p_run_id, p_run_id, p_due_at, p_due_at, 1, p_tenant, 0, p_priority, 0, false, v_stored, p_queue, p_handler, v_payload, v_options,
                'dependency', '', p_now);
        perform duly.add_dependencies(p_tenant, array[p_run_id], array[v_options], p_now);
    elsif p_due_at > p_now + p_horizon or duly.has_limits(v_options) then
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard)
        values (p_run_id, p_run_id, p_due_at, p_due_at, 1, p_tenant, p_priority, v_stored, p_queue, p_handler, v_payload, v_options,
                duly.shard_of(p_run_id));
    else
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                payload_stored, queue, handler, payload, options)
        values (p_run_id, p_run_id, p_due_at, p_due_at, 1, p_tenant, 0, p_priority, 0, false, v_stored, p_queue, p_handler, v_payload, v_options);
        return not duly.hint(p_queue, p_handler);
    end if;
    return false;
end $$;

-- Use an idempotency key for a job or a batch. Null: it is used for the first time; else what it was used for, with the same body.
create or replace function duly.use_key(p_tenant integer, p_key text, p_job_id uuid, p_hash bytea, p_now timestamptz) returns duly.idempotency_keys
language plpgsql as $$
declare
    v_key duly.idempotency_keys;
begin
    insert into duly.idempotency_keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (p_tenant, p_key, p_job_id, p_hash, p_now, p_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where idempotency_keys.expires_at <= p_now;
    if not found then
        select * into strict v_key from duly.idempotency_keys where tenant = p_tenant and key = p_key;
        if v_key.body_hash <> p_hash then
            raise exception using errcode = 'DU001', message = format('key %s was used for another job', quote_literal(p_key)), detail = v_key.job_id::text,
                hint = 'Use another key, or send the same job again.';
        end if;
    end if;
    return v_key;
end $$;

-- Submit one-shots. p_key names the whole batch: Repeated with the same key, it answers with the same ids and inserts nothing. A
-- run in FIFO order gets its number here, in the order of the batch; and a run with dependencies waits under `&after`. The settings keep the hash
-- of a body from depending on the caller's session.
create or replace function duly.submit_many(
    p_tenant integer, p_key text, p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[],
    p_at timestamptz[], p_delays interval[], p_options text[], p_hash bytea default null,
    p_horizon interval default '5 seconds', p_grace interval default '60 seconds')
returns table (job_id uuid, scheduled_at timestamptz, replayed boolean, needs_hint boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
    set lock_timeout = '2s' set timezone = 'UTC' set intervalstyle = 'postgres' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_batch   text := duly.batch_prefix(p_tenant, p_key, v_now);
    v_hash    bytea := coalesce(p_hash, sha256(convert_to(
        jsonb_build_array(p_handlers, p_payloads::jsonb[], p_queues, p_priorities, p_at, p_delays, p_options::jsonb[])::text, 'UTF8')));
    v_key     duly.idempotency_keys;
    v_bad     record;
    v_ids     uuid[];
    v_moments timestamptz[];
    v_dependents uuid[];
    v_options jsonb[];
    v_hints   text[];
    v_needs_hint boolean := false;
begin
    perform duly.must_be_ours(p_tenant);
    v_key := duly.use_key(p_tenant, p_key, duly.id_in_batch(coalesce(p_at[1], v_now + coalesce(p_delays[1], interval '0')), v_batch, 1), v_hash, v_now);
    if v_key.key is not null then
        perform duly.admit(p_tenant, 0, 0);
        v_batch := duly.batch_prefix(p_tenant, p_key, v_key.scheduled_at);
        return query
        select duly.id_in_batch(moment.at, v_batch, u.number), moment.at, true, moment.at <= v_now + p_horizon
          from unnest(p_at, p_delays) with ordinality as u(at, delay, number)
         cross join lateral (select coalesce(u.at, v_key.scheduled_at + coalesce(u.delay, interval '0')) as at) as moment
         order by u.number;
        return;
    end if;
    select u.handler, u.queue, u.at, u.delay, octet_length(u.payload) as bytes, u.priority, u.options into v_bad
      from unnest(p_handlers, p_queues, p_at, p_delays, p_payloads, p_priorities, p_options) as u(handler, queue, at, delay, payload, priority, options)
     where duly.is_name(u.handler) is not true or duly.is_name(u.queue) is not true or u.at < v_now - p_grace or u.at > v_now + interval '100 years' or u.delay < interval '0' or u.delay > interval '100 years'
        or octet_length(u.payload) > 262144 or u.priority not between 0 and 9
        or (u.options is not null and not duly.are_options(duly.without_dependencies(u.options::jsonb)))
        or u.options::jsonb->'expires_at' < to_jsonb(extract(epoch from v_now - p_grace)) limit 1;
    if found then
        perform duly.check_names(v_bad.handler, v_bad.queue);
        perform duly.check_one(v_bad.at, v_bad.delay, v_bad.bytes, v_bad.priority, duly.without_dependencies(v_bad.options::jsonb), v_now, p_grace);
    end if;
    with requested as materialized (
        select u.number, duly.id_in_batch(moment.at, v_batch, u.number) as run_id, moment.at as due_at, u.handler, u.queue, u.priority,
               u.payload::jsonb as payload, duly.numbered(u.options::jsonb) as options, octet_length(u.payload) > 1024 as stored
          from unnest(p_handlers, p_queues, p_priorities, p_at, p_delays, p_payloads, p_options) with ordinality
                   as u(handler, queue, priority, at, delay, payload, options, number)
         cross join lateral (select coalesce(u.at, v_now + coalesce(u.delay, interval '0')) as at) as moment),
    stored as (
        insert into duly.payloads (job_id, generation, body, stored_at)
        select run_id, 1, payload, v_now from requested where stored),
    later as (
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard)
        select run_id, run_id, due_at, due_at, 1, p_tenant, priority, stored, queue, handler,
               case when not stored then payload end, options, duly.shard_of(run_id)
          from requested where (due_at > v_now + p_horizon or duly.has_limits(options)) and options->'depends_on' is null),
    soon as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                payload_stored, queue, handler, payload, options)
        select run_id, run_id, due_at, due_at, 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options
          from requested where due_at <= v_now + p_horizon and not duly.has_limits(options) and options->'depends_on' is null
        returning queue, handler),
    following as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                  payload_stored, queue, handler, payload, options, waits_for, key, blocked_at)
        select run_id, run_id, due_at, due_at, 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options, 'dependency', '', v_now
          from requested where options->'depends_on' is not null)
    select array_agg(run_id order by number), array_agg(due_at order by number), array_agg(run_id) filter (where options->'depends_on' is not null),
           array_agg(options) filter (where options->'depends_on' is not null), array(select distinct array[queue, handler] from soon limit 2)
      into v_ids, v_moments, v_dependents, v_options, v_hints from requested;
    if v_hints <> '{}' then                            -- Several queues or handlers: a hint to all.
        v_needs_hint := case when array_length(v_hints, 1) = 1 then not duly.hint(v_hints[1][1], v_hints[1][2]) else not duly.hint('', '') end;
    end if;
    if v_dependents is not null then
        perform duly.add_dependencies(p_tenant, v_dependents, v_options, v_now);
    end if;
    perform duly.admit(p_tenant, 0, cardinality(p_handlers));
    return query select u.run_id, u.moment, false, v_needs_hint from unnest(v_ids, v_moments) as u(run_id, moment);
end $$;

-- Submit one-shots that differ by their payloads alone. All else is checked once, and one row is the answer: the first, whose id the others
-- follow by one. A large payload, FIFO order, a dependency or a parent concerns each: submit_many does these. For programs.
create or replace function duly.submit_alike(
    p_tenant integer, p_key text, p_handler text, p_payloads text[], p_queue text, p_priority smallint, p_at timestamptz, p_delay interval,
    p_options text, p_hash bytea, p_horizon interval default '5 seconds', p_grace interval default '60 seconds',
    out job_id uuid, out scheduled_at timestamptz, out replayed boolean, out needs_hint boolean)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_batch   text := duly.batch_prefix(p_tenant, p_key, v_now);
    v_runs    integer := cardinality(p_payloads);
    v_bytes   integer := (select max(octet_length(payload)) from unnest(p_payloads) as payload);
    v_options jsonb := p_options;
    v_key     duly.idempotency_keys;
begin
    if v_bytes > 1024 or v_options ?| array['fifo', 'depends_on', 'parent'] then
        select each.job_id, each.scheduled_at, each.replayed, each.needs_hint into job_id, scheduled_at, replayed, needs_hint
          from duly.submit_subtasks(p_tenant, p_key, array_fill(p_handler, array[v_runs]), p_payloads, array_fill(p_queue, array[v_runs]),
                                array_fill(p_priority, array[v_runs]), array_fill(p_at, array[v_runs]), array_fill(p_delay, array[v_runs]),
                                array_fill(p_options, array[v_runs]), p_hash, p_horizon) as each limit 1;
        return;
    end if;
    scheduled_at := coalesce(p_at, v_now + p_delay, v_now);
    job_id := duly.id_in_batch(scheduled_at, v_batch, 1);
    v_key := duly.use_key(p_tenant, p_key, job_id, p_hash, v_now);
    replayed := v_key.key is not null;
    needs_hint := false;
    if replayed then
        job_id := v_key.job_id;
        scheduled_at := coalesce(p_at, v_key.scheduled_at + p_delay, v_key.scheduled_at);
        needs_hint := scheduled_at <= v_now + p_horizon;
        return;
    end if;
    perform duly.check_names(p_handler, p_queue);
    perform duly.check_one(p_at, p_delay, v_bytes, p_priority, v_options, v_now, p_grace);
    if scheduled_at > v_now + p_horizon or duly.has_limits(v_options) then
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, priority, queue, handler, payload, options, shard)
        select id, id, submit_alike.scheduled_at, submit_alike.scheduled_at, 1, p_tenant, p_priority, p_queue, p_handler, payload::jsonb, v_options, duly.shard_of(id)
          from (select duly.id_in_batch(submit_alike.scheduled_at, v_batch, one.number) as id, one.payload
                  from unnest(p_payloads) with ordinality as one(payload, number) offset 0) as named;
    else
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                payload_stored, queue, handler, payload, options)
        select id, id, submit_alike.scheduled_at, submit_alike.scheduled_at, 1, p_tenant, 0, p_priority, 0, false, false, p_queue, p_handler, payload::jsonb, v_options
          from (select duly.id_in_batch(submit_alike.scheduled_at, v_batch, one.number) as id, one.payload
                  from unnest(p_payloads) with ordinality as one(payload, number) offset 0) as named;
        needs_hint := not duly.hint(p_queue, p_handler);
    end if;
    perform duly.check_presence(p_tenant);
end $$;

-- Change a one-shot that waits for its first attempt and is of a version: it is taken out and put where it belongs now, under the same id
-- and the next version. It leaves the slot it held at a concurrency key; one with dependencies keeps them. False: no such one-shot waits.
create or replace function duly.change_one_shot(
    p_tenant integer, p_run_id uuid, p_generation integer, p_handler text, p_payload text, p_queue text, p_priority smallint, p_at timestamptz,
    p_options text, p_horizon interval default '5 seconds', p_grace interval default '60 seconds')
returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop} as $$
declare
    v_now     timestamptz := duly.clock_now();
    v_due_at  timestamptz := coalesce(p_at, v_now);
    v_payload jsonb := p_payload;
    v_stored  boolean := octet_length(p_payload) > 1024;
    v_was     record;
    v_options jsonb;
begin
    perform duly.must_be_ours(p_tenant);
    with waiting as (
        delete from duly.timers where timers.run_id = p_run_id and (timers.job_id = p_run_id and timers.tenant = p_tenant
               and timers.generation = p_generation and timers.attempt = 0 and not coalesce(timers.options ? 'node', false)) is true
        returning scheduled_at, previous_scheduled_at, losses, suspect, options, null::duly.wait as waits_for, duly.holds_slot(options) as inside),
    at_concurrency_key as (
        delete from duly.blocked where blocked.run_id = p_run_id and (blocked.job_id = p_run_id and blocked.tenant = p_tenant
               and blocked.generation = p_generation and blocked.attempt = 0 and not coalesce(blocked.options ? 'node', false)) is true
        returning scheduled_at, previous_scheduled_at, losses, suspect, options, waits_for, duly.holds_slot(options) as inside),
    staged as (
        delete from duly.ready where ready.run_id = p_run_id and (ready.job_id = p_run_id and ready.tenant = p_tenant
               and ready.generation = p_generation and ready.attempt = 0 and not coalesce(ready.options ? 'node', false)) is true
        returning scheduled_at, previous_scheduled_at, losses, suspect, options, null::duly.wait as waits_for, true as inside)
    select * into v_was from (select * from waiting union all select * from at_concurrency_key union all select * from staged) as was;
    if not found then
        return false;
    end if;
    perform duly.check_names(p_handler, p_queue);
    perform duly.check_one(nullif(p_at, v_was.scheduled_at), null, octet_length(p_payload), p_priority, duly.without_dependencies(p_options::jsonb), v_now, p_grace);
    v_options := duly.numbered(p_options::jsonb);
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (p_run_id, p_generation + 1, v_payload, v_now);
        v_payload := null;
    end if;
    if v_was.waits_for = 'dependency' then
        insert into duly.blocked ({run}, waits_for, key, blocked_at)
        values (p_run_id, p_run_id, v_due_at, v_due_at, v_was.previous_scheduled_at, p_generation + 1, p_tenant, 0, p_priority, v_was.losses,
                v_was.suspect, v_stored, p_queue, p_handler, v_payload, v_options, 'dependency', '', v_now);
    elsif v_due_at > v_now + p_horizon or duly.has_limits(v_options) then
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, losses, suspect,
                                 payload_stored, queue, handler, payload, options, shard)
        values (p_run_id, p_run_id, v_due_at, v_due_at, v_was.previous_scheduled_at, p_generation + 1, p_tenant, p_priority, v_was.losses,
                v_was.suspect, v_stored, p_queue, p_handler, v_payload, v_options, duly.shard_of(p_run_id));
    else
        insert into duly.ready ({run})
        values (p_run_id, p_run_id, v_due_at, v_due_at, v_was.previous_scheduled_at, p_generation + 1, p_tenant, 0, p_priority, v_was.losses,
                v_was.suspect, v_stored, p_queue, p_handler, v_payload, v_options);
    end if;
    -- A concurrency key is locked last. One that had not entered leaves nothing behind there, but may have stood before others in FIFO order.
    if duly.has_consequence(v_was.options) then
        perform duly.leave(array[p_run_id], array[p_tenant],
                              array[case when v_was.inside then v_was.options when v_was.options ? 'fifo' then v_was.options || '{"outside": true}'
                                         else v_was.options - 'concurrency' end], null, v_now);
    end if;
    return true;
end $$;

-- Drop idempotency keys that have expired, so many at a time.
create or replace function duly.forget_keys(p_limit integer) returns void
language plpgsql {planned by index} as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    delete from duly.idempotency_keys where ctid = any (array(select ctid from duly.idempotency_keys where expires_at < v_now limit p_limit));
end $$;

-- Create one one-shot in somebody's name: the job, the quota of its tenant and the audit entry are one statement, for the engine and for a
-- session. One whose options name a parent is a subtask.
create or replace function duly.create_one_shot(
    p_tenant integer, p_key text, p_handler text, p_payload text, p_queue text, p_priority smallint, p_at timestamptz, p_delay interval,
    p_options text, p_horizon interval, p_actor_kind text, p_actor text, p_actor_name text, p_request_id text,
    out job_id uuid, out scheduled_at timestamptz, out replayed boolean, out needs_hint boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_parent uuid := p_options::jsonb->>'parent';
begin
    perform duly.must_be_ours(p_tenant);
    select submitted.job_id, submitted.scheduled_at, submitted.replayed, submitted.needs_hint into job_id, scheduled_at, replayed, needs_hint
      from duly.submit_one(p_tenant, p_key, p_handler, p_payload, p_queue, p_priority, p_at, p_delay, p_options, p_horizon) as submitted;
    perform duly.check_quotas(p_tenant, 0, case when replayed then 0 else 1 end);
    if not replayed then
        if v_parent is not null then
            perform duly.record_subtasks(p_tenant, array[v_parent], array[job_id]);
        end if;
        insert into duly.audit (tenant, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, request_id, detail)
        values (p_tenant, duly.clock_now(), p_actor_kind, p_actor, p_actor_name, 'job.created', 'job', job_id::text, p_request_id,
                jsonb_build_object('handler', p_handler, 'queue', p_queue));
    end if;
end $$;

-- Create one-shots of several callers, each with an audit entry of its own: all of them or none.
create or replace function duly.create_one_shots(
    p_tenant integer, p_key text, p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[],
    p_at timestamptz[], p_delays interval[], p_options text[], p_hash bytea, p_horizon interval,
    p_actor_kinds text[], p_actors text[], p_actor_names text[], p_request_ids text[])
returns table (job_id uuid, scheduled_at timestamptz, replayed boolean, needs_hint boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_ids      uuid[];
    v_moments  timestamptz[];
    v_replayed boolean;
    v_needs_hint boolean;
    v_parents  uuid[] := array(select (given.options::jsonb->>'parent')::uuid
                                 from unnest(p_options) with ordinality as given(options, number) order by given.number);
begin
    perform duly.must_be_ours(p_tenant);
    select array_agg(submitted.job_id order by submitted.number), array_agg(submitted.scheduled_at order by submitted.number),
           bool_or(submitted.replayed), bool_or(submitted.needs_hint)
      into v_ids, v_moments, v_replayed, v_needs_hint
      from duly.submit_many(p_tenant, p_key, p_handlers, p_payloads, p_queues, p_priorities, p_at, p_delays, p_options, p_hash, p_horizon)
           with ordinality as submitted(job_id, scheduled_at, replayed, needs_hint, number);
    if not duly.is_tenant_session() then                -- A request's submit_many has requested them.
        perform duly.check_quotas(p_tenant, 0, case when v_replayed then 0 else cardinality(v_ids) end);
    end if;
    if not v_replayed then
        if cardinality(array_remove(v_parents, null)) > 0 then
            perform duly.record_subtasks(p_tenant, v_parents, v_ids);
        end if;
        insert into duly.audit (tenant, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, request_id, detail)
        select p_tenant, duly.clock_now(), created.kind, created.actor, created.name, 'job.created', 'job', created.job_id::text, created.request_id,
               jsonb_build_object('handler', created.handler, 'queue', created.queue)
          from unnest(v_ids, p_handlers, p_queues, p_actor_kinds, p_actors, p_actor_names, p_request_ids)
                   as created(job_id, handler, queue, kind, actor, name, request_id);
    end if;
    return query select created.job_id, created.scheduled_at, v_replayed, v_needs_hint from unnest(v_ids, v_moments) as created(job_id, scheduled_at);
end $$;

grant execute on function duly.submit_many, duly.create_one_shot, duly.create_one_shots,
    duly.change_one_shot to duly_api;
