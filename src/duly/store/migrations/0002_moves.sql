-- The moves that carry a row from one box to the next, as functions: the database copies the columns, so that an older
-- process cannot drop one it does not know; and the planner settings belong to the function, not to a connection that a
-- pooler may share. A changed move is a new function with the next number; the old one stays while an older process lives.
--
-- Errors raised here carry a code of class DU, which store/refusals.py turns into the domain's own errors.

-- The only clock of the moves. A database created for tests replaces it by one that tests move.
create function duly.clock_now() returns timestamptz language sql volatile parallel safe as $$ select clock_timestamp() $$;

-- A run's name: 48 bits of its scheduled moment in milliseconds, then 74 bits of a hash (a UUID of version 8, RFC 9562).
-- One expression, stable like the parts it is made of, so that it is inlined where it is called. domain/run_id.py computes the same.
create function duly.run_id(p_scheduled_at timestamptz, p_name text) returns uuid language sql stable parallel safe as $$
    select encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
               substr(int8send((date_part('epoch', p_scheduled_at) * 1000000)::bigint / 1000), 3) || substr(sha256(convert_to(p_name, 'UTF8')), 1, 10),
               52, 0), 53, 0), 54, 0), 55, 1), 70, 0), 71, 1), 'hex')::uuid
$$;

create function duly.occurrence_id(p_job_id uuid, p_scheduled_at timestamptz, p_origin text) returns uuid
language sql stable parallel safe as $$
    select duly.run_id(p_scheduled_at, p_job_id::text || '/' || (date_part('epoch', p_scheduled_at) * 1000000)::bigint::text || '/' || p_origin)
$$;

-- Any row may stand in any shard; this spreads them evenly.
create function duly.shard_of(p_job_id uuid) returns smallint language sql immutable strict parallel safe as $$
    select (get_byte(uuid_send(p_job_id), 15) & 63)::smallint
$$;

-- Thirty seconds of age make up for one priority. Rank orders, it never gates.
create function duly.rank(p_due_at timestamptz, p_priority smallint) returns double precision
language sql stable parallel safe as $$
    select date_part('epoch', p_due_at) + 30 * p_priority
$$;

---------------------------------------------------------------------------------------------------------------- submit

-- The jobs submitted under a key are named after it and after the moment it was first used: a key that has expired and is used
-- again makes other jobs, although the first ones may still be waiting.
create function duly.batch_name(p_tenant integer, p_key text, p_at timestamptz) returns text language sql stable parallel safe as $$
    select p_tenant::text || '/' || p_key || '/' || (date_part('epoch', p_at) * 1000000)::bigint::text || '/'
$$;

-- A number of seconds up to a hundred years, or nothing.
create function duly.is_span(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) = 'number' then p_value::numeric between 0 and 3155760000 else false end
$$;

-- Options come from any language, and every worker has to read them: see domain/run.py.
create function duly.are_options(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select jsonb_typeof(p_options) = 'object' and p_options - array['retry', 'timeout_seconds', 'gate'] = '{}'
       and coalesce(jsonb_typeof(p_options->'retry'), 'object') = 'object'
       and coalesce(p_options #> '{retry,max_attempts}', '1')::text ~ '^[1-9][0-9]{0,3}$'
       and duly.is_span(p_options #> '{retry,base_seconds}') and duly.is_span(p_options #> '{retry,cap_seconds}')
       and (jsonb_typeof(p_options->'timeout_seconds') = 'null' or duly.is_span(p_options->'timeout_seconds'))
       and (p_options->'gate' is null or (jsonb_typeof(p_options #> '{gate,0}') = 'string' and p_options #> '{gate,2}' is null
                                          and (p_options #> '{gate,1}')::text ~ '^[1-9][0-9]{0,5}$') is true)
$$;

-- Refuse what cannot be kept, in a sentence.
create function duly.check_one(
    p_at timestamptz, p_delay interval, p_payload_bytes integer, p_priority smallint, p_options jsonb, p_now timestamptz, p_grace interval)
returns void language plpgsql set timezone = 'UTC' set intervalstyle = 'postgres' as $$
begin
    if p_at < p_now - p_grace then
        raise exception using errcode = 'DU002', message = format('at %s is past', p_at), detail = to_json(p_now)#>>'{}';
    elsif p_delay < interval '0' then
        raise exception using errcode = 'DU003', message = format('delay %s is negative', p_delay);
    elsif p_at > p_now + interval '100 years' or p_delay > interval '100 years' then
        raise exception using errcode = 'DU006', message = format('%s is more than a hundred years ahead', coalesce(p_at::text, 'delay ' || p_delay));
    elsif p_payload_bytes > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', p_payload_bytes);
    elsif p_priority not between 0 and 9 then
        raise exception using errcode = 'DU005', message = format('priority %s is outside 0 (first) to 9 (last)', p_priority);
    elsif p_options is not null and not duly.are_options(p_options) then
        raise exception using errcode = 'DU005', message = format('options %s are none we know', p_options);
    end if;
end $$;

-- Submit one one-shot: what submit_v1 does for many, without the arrays, which cost more than the job.
create function duly.submit_one_v1(
    p_tenant integer, p_key text, p_handler text, p_payload text, p_queue text, p_priority smallint, p_at timestamptz, p_delay interval,
    p_options text, p_horizon interval default '5 seconds', p_grace interval default '60 seconds')
returns table (job_id uuid, scheduled_at timestamptz, replayed boolean)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_due_at  timestamptz := coalesce(p_at, v_now + coalesce(p_delay, interval '0'));
    v_run_id  uuid := duly.run_id(v_due_at, duly.batch_name(p_tenant, p_key, v_now) || '1');
    v_payload jsonb := p_payload;
    v_options jsonb := p_options;
    v_stored  boolean := octet_length(p_payload) > 1024;
    v_hash    bytea := sha256(convert_to(concat_ws(E'\x01', p_handler, v_payload, p_queue, p_priority,
                                                  coalesce((date_part('epoch', p_at) * 1000000)::bigint, 0),
                                                  coalesce((date_part('epoch', p_delay) * 1000000)::bigint, -1), v_options), 'UTF8'));
    v_key     duly.keys;
begin
    insert into duly.keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (p_tenant, p_key, v_run_id, v_hash, v_now, v_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where keys.expires_at <= v_now;
    if not found then
        select * into strict v_key from duly.keys where tenant = p_tenant and key = p_key;
        if v_key.body_hash <> v_hash then
            raise exception using errcode = 'DU001', message = format('key %s was used for another job', quote_literal(p_key)), detail = v_key.job_id::text;
        end if;
        return query select v_key.job_id, coalesce(p_at, v_key.scheduled_at + coalesce(p_delay, interval '0')), true;
        return;
    end if;
    if coalesce(p_handler, '') = '' or coalesce(p_queue, '') = '' then
        raise exception using errcode = 'DU005', message = 'a job needs the name of a handler and of a queue';
    end if;
    perform duly.check_one(p_at, p_delay, octet_length(p_payload), p_priority, v_options, v_now, p_grace);
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (v_run_id, 1, v_payload, v_now);
        v_payload := null;
    end if;
    if v_due_at > v_now + p_horizon or duly.is_gated(v_options) then
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard)
        values (v_run_id, v_run_id, v_due_at, v_due_at, 1, p_tenant, p_priority, v_stored, p_queue, p_handler, v_payload, v_options,
                duly.shard_of(v_run_id));
    else
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                payload_stored, queue, handler, payload, options, rank)
        values (v_run_id, v_run_id, v_due_at, v_due_at, 1, p_tenant, 0, p_priority, 0, false, v_stored, p_queue, p_handler, v_payload, v_options,
                duly.rank(v_due_at, p_priority));
    end if;
    return query select v_run_id, v_due_at, false;
end $$;

-- Submit one-shots. They only insert: what is due within the horizon goes straight to ready, the rest to timers.
-- p_key names the whole batch: asked again with the same key, it answers with the same ids and inserts nothing. The settings
-- keep the hash of a body from depending on the caller's session.
create function duly.submit_v1(
    p_tenant integer, p_key text, p_handlers text[], p_payloads text[], p_queues text[], p_priorities smallint[],
    p_at timestamptz[], p_delays interval[], p_options text[], p_hash bytea default null,
    p_horizon interval default '5 seconds', p_grace interval default '60 seconds')
returns table (job_id uuid, scheduled_at timestamptz, replayed boolean)
language plpgsql set lock_timeout = '2s' set timezone = 'UTC' set intervalstyle = 'postgres' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_name    text := duly.batch_name(p_tenant, p_key, v_now);
    v_hash    bytea := coalesce(p_hash, sha256(convert_to(
        jsonb_build_array(p_handlers, p_payloads::jsonb[], p_queues, p_priorities, p_at, p_delays, p_options::jsonb[])::text, 'UTF8')));
    v_key     duly.keys;
    v_bad     record;
    v_ids     uuid[];
    v_moments timestamptz[];
begin
    insert into duly.keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (p_tenant, p_key, duly.run_id(coalesce(p_at[1], v_now + coalesce(p_delays[1], interval '0')), v_name || '1'),
            v_hash, v_now, v_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where keys.expires_at <= v_now;
    if not found then
        select * into strict v_key from duly.keys where tenant = p_tenant and key = p_key;
        if v_key.body_hash <> v_hash then
            raise exception using errcode = 'DU001', message = format('key %s was used for another job', quote_literal(p_key)), detail = v_key.job_id::text;
        end if;
        v_name := duly.batch_name(p_tenant, p_key, v_key.scheduled_at);
        return query
        select duly.run_id(moment.at, v_name || u.number::text), moment.at, true
          from unnest(p_at, p_delays) with ordinality as u(at, delay, number)
         cross join lateral (select coalesce(u.at, v_key.scheduled_at + coalesce(u.delay, interval '0')) as at) as moment
         order by u.number;
        return;
    end if;
    select u.at, u.delay, octet_length(u.payload) as bytes, u.priority, u.options into v_bad
      from unnest(p_at, p_delays, p_payloads, p_priorities, p_options) as u(at, delay, payload, priority, options)
     where u.at < v_now - p_grace or u.at > v_now + interval '100 years' or u.delay < interval '0' or u.delay > interval '100 years'
        or octet_length(u.payload) > 262144 or u.priority not between 0 and 9
        or (u.options is not null and not duly.are_options(u.options::jsonb)) limit 1;
    if found then
        perform duly.check_one(v_bad.at, v_bad.delay, v_bad.bytes, v_bad.priority, v_bad.options::jsonb, v_now, p_grace);
    end if;
    with asked as materialized (
        select u.number, duly.run_id(moment.at, v_name || u.number::text) as run_id, moment.at as due_at, u.handler, u.queue, u.priority,
               u.payload::jsonb as payload, u.options::jsonb as options, octet_length(u.payload) > 1024 as stored
          from unnest(p_handlers, p_queues, p_priorities, p_at, p_delays, p_payloads, p_options) with ordinality
                   as u(handler, queue, priority, at, delay, payload, options, number)
         cross join lateral (select coalesce(u.at, v_now + coalesce(u.delay, interval '0')) as at) as moment),
    stored as (
        insert into duly.payloads (job_id, generation, body, stored_at)
        select run_id, 1, payload, v_now from asked where stored),
    later as (
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard)
        select run_id, run_id, due_at, due_at, 1, p_tenant, priority, stored, queue, handler,
               case when not stored then payload end, options, duly.shard_of(run_id)
          from asked where due_at > v_now + p_horizon or duly.is_gated(options)),
    soon as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                payload_stored, queue, handler, payload, options, rank)
        select run_id, run_id, due_at, due_at, 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options, duly.rank(due_at, priority)
          from asked where due_at <= v_now + p_horizon and not duly.is_gated(options))
    select array_agg(run_id order by number), array_agg(due_at order by number) into v_ids, v_moments from asked;
    return query select u.run_id, u.moment, false from unnest(v_ids, v_moments) as u(run_id, moment);
end $$;

-- Submit a schedule: the definition and its next-fire timer, of which there is exactly one.
create function duly.submit_schedule_v1(
    p_tenant integer, p_key text, p_name text, p_handler text, p_payload jsonb, p_queue text, p_priority smallint,
    p_every interval, p_anchor timestamptz, p_options jsonb)
returns table (job_id uuid, scheduled_at timestamptz, replayed boolean)
language plpgsql set lock_timeout = '2s' set timezone = 'UTC' set intervalstyle = 'postgres' as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_hash   bytea := sha256(convert_to(jsonb_build_array(p_name, p_handler, p_payload, p_queue, p_priority, p_every, p_anchor, p_options)::text, 'UTF8'));
    v_key    duly.keys;
    v_every  bigint := date_part('epoch', p_every)::bigint;
    v_anchor timestamptz := coalesce(p_anchor, to_timestamp(ceil(date_part('epoch', v_now))));
    v_first  timestamptz := v_anchor;
    v_job_id uuid;
    v_stored boolean := pg_column_size(p_payload) > 1024;
begin
    if v_every not between 1 and 2147483647 then
        raise exception using errcode = 'DU006', message = format('every %s is outside 1 second to 68 years', p_every);
    elsif p_priority not between 0 and 9 then
        raise exception using errcode = 'DU005', message = format('priority %s is outside 0 (first) to 9 (last)', p_priority);
    end if;
    if v_anchor < v_now then                           -- Occurrences before the job was created never exist.
        v_first := v_anchor + make_interval(secs => ceil(date_part('epoch', v_now - v_anchor) / v_every) * v_every);
    end if;
    v_job_id := duly.run_id(v_now, duly.batch_name(p_tenant, p_key, v_now) || '0');
    insert into duly.keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (p_tenant, p_key, v_job_id, v_hash, v_first, v_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where keys.expires_at <= v_now;
    if not found then
        select * into strict v_key from duly.keys where tenant = p_tenant and key = p_key;
        if v_key.body_hash <> v_hash then
            raise exception using errcode = 'DU001', message = format('key %s was used for another job', quote_literal(p_key)), detail = v_key.job_id::text;
        end if;
        return query select v_key.job_id, v_key.scheduled_at, true;
        return;
    end if;
    if octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    elsif p_options is not null and not duly.are_options(p_options) then
        raise exception using errcode = 'DU005', message = format('options %s are none we know', p_options);
    end if;
    insert into duly.jobs (job_id, tenant, name, queue, handler, priority, every_seconds, anchor_at, payload, payload_stored, options, created_at, updated_at)
    values (v_job_id, p_tenant, p_name, p_queue, p_handler, p_priority, v_every, v_anchor,
            case when not v_stored then p_payload end, v_stored, p_options, v_now, v_now);
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (v_job_id, 1, p_payload, v_now);
    end if;
    insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, priority, payload_stored, queue, handler, payload, options, shard, every_seconds)
    values (v_job_id, v_first, v_first, 1, p_tenant, p_priority, v_stored, p_queue, p_handler, case when not v_stored then p_payload end, p_options,
            duly.shard_of(v_job_id), v_every);
    return query select v_job_id, v_first, false;
end $$;

-- For any language, inside the caller's own transaction: select duly.submit('send_report', '{"customer": 7}').
create function duly.submit(
    handler text, payload jsonb default '{}', queue text default 'default', priority integer default 5,
    at timestamptz default null, delay interval default null, key text default null, options jsonb default null, tenant integer default 1)
returns uuid language sql as $$
    select job_id from duly.submit_one_v1(tenant, coalesce(key, gen_random_uuid()::text), handler, payload::text, queue, priority::smallint,
                                          at, delay, options::text)
$$;

--------------------------------------------------------------------------------------------------------------- release

-- A gated run carries {"gate": [name, places]} in its options.
create function duly.is_gated(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ? 'gate', false)
$$;

-- Release: let runs in. With p_left = 1 the given runs have left their gates, with 0 they have come to them; then the oldest
-- waiting ones enter while there are places. Called by every move that takes a run out of ready or leased, or puts one into
-- blocked, as the last thing it does: gates are locked in one order, and whoever locks a gate last sees what the one before has
-- done, so that nobody waits at a gate with a free place. A count that was wrong must not hold up what leaves.
create function duly.release_v1(p_tenants integer[], p_options jsonb[], p_left integer) returns integer
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_gate     record;
    v_free     integer;
    v_moved    integer;
    v_released integer := 0;
begin
    for v_gate in select u.tenant, u.options->'gate'->>0 as gate, max((u.options->'gate'->>1)::integer) as places, count(*) * p_left as left_gate
                    from unnest(p_tenants, p_options) as u(tenant, options) group by 1, 2 order by 1, 2 loop
        insert into duly.gates (tenant, gate, places) values (v_gate.tenant, v_gate.gate, v_gate.places)
        on conflict (tenant, gate) do update set places = excluded.places, active = greatest(gates.active - v_gate.left_gate, 0)
        returning gates.places - gates.active into v_free;
        with taken as (
            delete from duly.blocked where run_id = any (array(
                select run_id from duly.blocked where blocked.tenant = v_gate.tenant and blocked.gate = v_gate.gate
                 order by due_at, run_id limit greatest(v_free, 0) for update skip locked))
            returning *)
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, duly.rank(due_at, priority)
          from taken
        on conflict do nothing;
        get diagnostics v_moved = row_count;
        update duly.gates set active = active + v_moved where tenant = v_gate.tenant and gate = v_gate.gate and v_moved > 0;
        delete from duly.gates where tenant = v_gate.tenant and gate = v_gate.gate and active = 0;
        v_released := v_released + v_moved;
    end loop;
    return v_released;
end $$;

----------------------------------------------------------------------------------------------------------------- stage

-- Move what falls due within the horizon out of timers: runs into ready; for a next fire, its occurrence into ready and the
-- following fire into timers, in the same statement. A next fire carries the definition: whoever changes a job takes its timer
-- out first, so the two cannot differ, and no other row has to be read. Only shards held by p_holder at the epoch it knows are touched.
-- A fire noticed more than p_grace late is a misfire: one run for the latest missed moment, one record for the others.
create function duly.stage_v1(p_holder uuid, p_shards smallint[], p_epochs bigint[], p_horizon interval, p_per_shard integer, p_grace interval)
returns table (staged integer, next_due_at timestamptz, read_at timestamptz)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
    v_now    timestamptz := duly.clock_now();
    v_held    smallint[];
    v_staged  integer;
    v_tenants integer[];
    v_options jsonb[];
begin
    v_held := array(select shards.shard from unnest(p_shards, p_epochs) as held(shard, epoch)
                      join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder
                     where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now));
    with due as (
        delete from duly.timers where ctid = any (array(
            select t.ctid from unnest(v_held) as held(shard) cross join lateral (
                select ctid from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon
                   and (timers.due_at <= v_now or not duly.is_gated(timers.options))     -- A place is taken when due, not ahead.
                 order by due_at limit p_per_shard for update skip locked) as t))
        returning *),
    fires as (
        select due.job_id, due.tenant, due.shard, due.every_seconds, due.previous_scheduled_at, due.scheduled_at as first_missed_at,
               due.scheduled_at + make_interval(secs => missed.count * due.every_seconds::double precision) as scheduled_at, missed.count as missed,
               due.generation, due.priority, due.payload_stored, due.queue, due.handler, due.payload, due.options
          from due cross join lateral (
               select case when due.due_at < v_now - p_grace
                           then floor(date_part('epoch', v_now - due.scheduled_at) / due.every_seconds) else 0 end as count) as missed
         where due.run_id is null),
    next_fires as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard, every_seconds)
        select job_id, next_at, next_at, scheduled_at, generation, tenant, priority, payload_stored, queue, handler, payload, options, shard, every_seconds
          from (select fires.*, scheduled_at + make_interval(secs => every_seconds) as next_at from fires) as f),
    skipped as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
        select duly.occurrence_id(job_id, first_missed_at, 'schedule'), job_id, first_missed_at, first_missed_at, v_now, tenant, 0,
               'skipped', 'skipped', queue, handler, 'skipped_misfire',
               jsonb_build_object('first', first_missed_at, 'last', scheduled_at - make_interval(secs => every_seconds), 'count', missed)
          from fires where missed > 0),
    staging as (
        select duly.occurrence_id(job_id, scheduled_at, 'schedule') as run_id, job_id, scheduled_at, scheduled_at as due_at, previous_scheduled_at,
               generation, tenant, 0 as attempt, priority, 0::smallint as losses, false as suspect, payload_stored, queue, handler,
               payload, options
          from fires
        union all
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
               payload_stored, queue, handler, payload, options
          from due where run_id is not null),
    staged as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select staging.*, duly.rank(due_at, priority) from staging where not duly.is_gated(options)
        on conflict (run_id) do nothing
        returning run_id),
    at_gate as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select staging.*, options->'gate'->>0, v_now from staging where duly.is_gated(options)
        on conflict (run_id) do nothing
        returning run_id, tenant, options),
    losers as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'ready', queue, handler, 'skipped_duplicate'
          from staging where (select count(*) from staged) + (select count(*) from at_gate) < (select count(*) from staging)
           and run_id not in (select staged.run_id from staged union all select at_gate.run_id from at_gate))
    select (select count(*) from due), array_agg(tenant), array_agg(options) into v_staged, v_tenants, v_options from at_gate;
    perform duly.release_v1(v_tenants, v_options, 0) where v_tenants is not null;
    return query
    select v_staged, (select min(t.due_at) from unnest(v_held) as held(shard) cross join lateral (
                          select due_at from duly.timers where timers.shard = held.shard order by due_at limit 1) as t), v_now;
end $$;

----------------------------------------------------------------------------------------------------------------- claim

-- Move up to p_limit runs, in order of rank, into the hands of a live worker; each queue gets its share, and the turn to be
-- served first goes round. The worker's row is held for key share, which does not hinder its heartbeat but makes the reaper's
-- delete wait, so that no lease can outlive the row it hangs on.
create function duly.claim_v1(p_worker_id uuid, p_queues text[], p_handlers text[], p_limit integer)
returns table (place tid, fence bigint, run_id uuid, job_id uuid, scheduled_at timestamptz, due_at timestamptz,
               previous_scheduled_at timestamptz, generation integer, tenant integer, attempt integer, priority smallint, losses smallint,
               suspect boolean, payload_stored boolean, queue text, handler text, payload jsonb, options jsonb)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_fence bigint;
    v_each  integer := ceil(p_limit::double precision / cardinality(p_queues));
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    if not exists (select from unnest(p_queues) as wanted(queue) where exists (select from duly.ready where ready.queue = wanted.queue)) then
        return;                                        -- An idle poll ends here: no fence drawn, nothing written, no commit to wait for.
    end if;
    v_fence := nextval('duly.fences');
    return query
    with taken as (
        delete from duly.ready where ctid = any (array(
            select t.ctid from (select queue from unnest(p_queues) with ordinality as asked(queue, number)
                                 order by (number + v_fence) % cardinality(p_queues)) as wanted
             cross join lateral (
                select ctid from duly.ready where ready.queue = wanted.queue and ready.handler = any (p_handlers)
                 order by rank limit v_each for update skip locked) as t
             limit p_limit))
        returning *)
    insert into duly.leased (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                             suspect, payload_stored, queue, handler, payload, options, fence, worker_id, claimed_at)
    select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt + 1, priority, losses,
           suspect, payload_stored, queue, handler, payload, options, v_fence, p_worker_id, v_now
      from taken
    returning ctid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
              suspect, payload_stored, queue, handler, payload, options;
end $$;

-- Take out of ready what is leased already, with a record. A claim that met such a duplicate was refused by the unique key of
-- leased; it must not catch that itself, because rows it has returned by then would stay in its answer.
create function duly.drop_duplicates_v1() returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    v_tenants integer[];
    v_options jsonb[];
begin
    with losers as (
        delete from duly.ready using duly.leased where ready.run_id = leased.run_id returning ready.*),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, duly.clock_now(), tenant, attempt, 'skipped', 'running', queue, handler, 'skipped_duplicate'
          from losers)
    select array_agg(tenant), array_agg(options) into v_tenants, v_options from losers where duly.is_gated(options);
    perform duly.release_v1(v_tenants, v_options, 1) where v_tenants is not null;
end $$;

---------------------------------------------------------------------------------------------------------------- settle
-- In these, `(…) is true` keeps the planner from walking all of a worker's leases by their index for each row it looks for.

-- Record successes that have no consequence and take the runs out of their holder's hands. Returns the fences and runs that
-- were there; for a missing one nothing has changed.
create function duly.finish_v1(p_worker_id uuid, p_places tid[], p_fences bigint[], p_started timestamptz[], p_finished timestamptz[], p_results jsonb[])
returns table (run_id uuid, fence bigint)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    with done as (
        delete from duly.leased using unnest(p_places, p_fences, p_started, p_finished, p_results) as held(place, fence, started_at, finished_at, result)
         where leased.ctid = held.place and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.*, held.started_at, held.finished_at, held.result)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                               queue, handler, worker_id, result)
    select run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, 'succeeded', 'succeeded',
           queue, handler, worker_id, result
      from done
    returning attempts.run_id, attempts.fence;
end $$;

-- Somebody has asked this holder to give the run up: then it is not tried again.
create function duly.is_cancelling(p_worker_id uuid, p_run_id uuid, p_fence bigint) returns boolean language sql stable as $$
    select exists (select from duly.signals where worker_id = p_worker_id and run_id = p_run_id and fence = p_fence and what = 'cancel')
$$;

-- A snooze is no failure: the attempt keeps its number, but does not count against max_attempts.
create function duly.forgive_attempt(p_options jsonb) returns jsonb language sql immutable as $$
    select coalesce(p_options, '{}') || jsonb_build_object('attempts_before', coalesce((p_options->>'attempts_before')::integer, 0) + 1)
$$;

-- Record any outcomes and move each run on to what it became: back to ready or timers, into dead, or out of the boxes.
-- Rows are named by run and fence, which holds wherever they stand. A run that stands in the next box already is not lost, so
-- a duplicate there is passed over: nothing may hold up a batch.
create function duly.settle_v1(
    p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_started timestamptz[], p_finished timestamptz[], p_outcomes duly.outcome[],
    p_became duly.state[], p_delays interval[], p_losses smallint[], p_suspects boolean[], p_reasons text[], p_results jsonb[], p_details jsonb[],
    p_horizon interval default '5 seconds')
returns table (run_id uuid, fence bigint)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_run_ids uuid[];
    v_fences  bigint[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with done as (
        delete from duly.leased using unnest(p_run_ids, p_fences, p_started, p_finished, p_outcomes, p_became, p_delays, p_losses, p_suspects,
                                             p_reasons, p_results, p_details)
             as held(run_id, fence, started_at, finished_at, outcome, became, delay, losses, suspect, reason, result, detail)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.run_id, leased.job_id, leased.scheduled_at, leased.due_at as was_due_at, leased.previous_scheduled_at, leased.generation,
                  leased.tenant, leased.attempt, leased.priority, leased.payload_stored, leased.queue, leased.handler, leased.payload,
                  leased.fence, leased.worker_id, held.losses, held.suspect, held.started_at,
                  coalesce(held.finished_at, v_now) as finished_at, held.outcome, held.reason, held.result, held.detail,
                  case when held.became = 'retrying' and duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence)
                       then 'cancelled' else held.became end as became,
                  case when held.outcome = 'snoozed' then duly.forgive_attempt(leased.options) else leased.options end as options,
                  greatest(v_now + held.delay, leased.scheduled_at) as due_at),
    again as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, duly.rank(due_at, priority)
          from done where became = 'retrying' and due_at <= v_now + p_horizon and not duly.is_gated(options)
        on conflict do nothing),
    later as (
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                 suspect, payload_stored, queue, handler, payload, options, shard)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, duly.shard_of(job_id)
          from done where became = 'retrying' and (due_at > v_now + p_horizon or duly.is_gated(options))
        on conflict do nothing),
    buried as (
        insert into duly.dead (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                               suspect, payload_stored, queue, handler, payload, options, buried_at, reason, replays)
        select run_id, job_id, scheduled_at, was_due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, v_now, coalesce(reason, outcome::text),
               coalesce((options->>'replays')::integer, 0)
          from done where became = 'dead'
        on conflict do nothing),
    unneeded as (
        delete from duly.checkpoints using done where checkpoints.run_id = done.run_id and done.became not in ('retrying', 'dead')),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, reason, result, detail)
        select run_id, job_id, scheduled_at, was_due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
               queue, handler, worker_id, reason, result, detail
          from done
        returning attempts.run_id, attempts.fence)
    select (select array_agg(run_id order by run_id) from recorded), (select array_agg(fence order by run_id) from recorded),
           (select array_agg(tenant) from done where duly.is_gated(options)),
           (select array_agg(options) from done where duly.is_gated(options))
      into v_run_ids, v_fences, v_tenants, v_options;
    perform duly.release_v1(v_tenants, v_options, 1) where v_tenants is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- Put runs back that were never started. The attempt is not used up and nothing is recorded, because nothing happened; except
-- for a run that somebody has cancelled meanwhile, which ends here.
create function duly.hand_back_v1(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[])
returns table (run_id uuid, fence bigint)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_run_ids uuid[];
    v_fences  bigint[];
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
          from back where not cancelled
        on conflict do nothing),
    ended as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt - 1, 'cancelled', 'cancelled', queue, handler, 'cancelled'
          from back where cancelled)
    select array_agg(run_id), array_agg(fence), array_agg(tenant) filter (where cancelled and duly.is_gated(options)),
           array_agg(options) filter (where cancelled and duly.is_gated(options))
      into v_run_ids, v_fences, v_tenants, v_options from back;
    perform duly.release_v1(v_tenants, v_options, 1) where v_tenants is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- After an unknown commit, the answer to "was it me?". A loss recorded by the reaper under the worker's name is no outcome of it.
create function duly.already_settled_v1(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[])
returns table (run_id uuid, fence bigint)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    return query
    select attempts.run_id, attempts.fence from unnest(p_run_ids, p_fences) as asked(run_id, fence)
      join duly.attempts on attempts.run_id = asked.run_id and attempts.fence = asked.fence
     where attempts.worker_id = p_worker_id and attempts.outcome not in ('fenced', 'lost');
end $$;

-- Keep a record of outcomes that came after the lease was lost. Asked again after an unknown commit, nothing is recorded twice.
create function duly.record_fenced_v1(
    p_worker_id uuid, p_run_ids uuid[], p_job_ids uuid[], p_scheduled timestamptz[], p_due timestamptz[], p_started timestamptz[],
    p_finished timestamptz[], p_fences bigint[], p_tenants integer[], p_attempts integer[], p_queues text[], p_handlers text[], p_reasons text[])
returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became, queue,
                               handler, worker_id, reason)
    select refused.run_id, refused.job_id, refused.scheduled_at, refused.due_at, refused.started_at, coalesce(refused.finished_at, v_now),
           refused.fence, refused.tenant, refused.attempt, 'fenced', 'running', refused.queue, refused.handler, p_worker_id, refused.reason
      from unnest(p_run_ids, p_job_ids, p_scheduled, p_due, p_started, p_finished, p_fences, p_tenants, p_attempts, p_queues, p_handlers, p_reasons)
           as refused(run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, queue, handler, reason)
     where not exists (select from duly.attempts where attempts.run_id = refused.run_id and attempts.fence = refused.fence
                          and attempts.worker_id = p_worker_id and attempts.outcome = 'fenced');
end $$;

--------------------------------------------------------------------------------------------------------- cancel, replay

-- Take waiting runs out of timers, blocked and ready for good. A run in a worker's hands is not touched: see signal_v1.
create function duly.cancel_v1(p_run_ids uuid[], p_reason text) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_gone    uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with waiting as (
        delete from duly.timers where timers.run_id = any (p_run_ids) and timers.run_id is not null
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler),
    at_gate as (
        delete from duly.blocked where blocked.run_id = any (p_run_ids)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler),
    staged as (
        delete from duly.ready where ready.run_id = any (p_run_ids)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options),
    gone as (
        select * from waiting union all select * from at_gate
        union all select run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler from staged),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, p_reason from gone)
    select (select array_agg(run_id) from gone),
           (select array_agg(tenant) from staged where duly.is_gated(options)), (select array_agg(options) from staged where duly.is_gated(options))
      into v_gone, v_tenants, v_options;
    perform duly.release_v1(v_tenants, v_options, 1) where v_tenants is not null;
    return query select unnest(v_gone);
end $$;

-- Ask the holders of leased runs to stop.
create function duly.signal_v1(p_run_ids uuid[], p_what text) returns setof uuid language sql as $$
    insert into duly.signals (worker_id, run_id, fence, what, sent_at)
    select worker_id, run_id, fence, p_what, duly.clock_now() from duly.leased where run_id = any (p_run_ids)
    on conflict (worker_id, run_id, fence, what) do update set sent_at = excluded.sent_at
    returning run_id
$$;

-- Give dead runs another set of attempts. Their numbers go on; the run keeps its id. A gated one goes by its timer, as ever.
create function duly.replay_v1(p_run_ids uuid[]) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with risen as (
        delete from duly.dead where dead.run_id = any (p_run_ids)
        returning run_id, job_id, scheduled_at, greatest(v_now, scheduled_at) as due_at, previous_scheduled_at, generation, tenant, attempt, priority,
                  0::smallint as losses, false as suspect, payload_stored, queue, handler, payload,
                  coalesce(options, '{}') || jsonb_build_object('replays', replays + 1, 'attempts_before', attempt) as options),
    bygones as (                                       -- A cancel that came too late for the run's former life is not for this one.
        delete from duly.signals using risen where signals.run_id = risen.run_id),
    by_timer as (
        insert into duly.timers (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                 suspect, payload_stored, queue, handler, payload, options, shard)
        select risen.*, duly.shard_of(job_id) from risen where duly.is_gated(options)
        on conflict do nothing returning run_id),
    at_once as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select risen.*, duly.rank(due_at, priority) from risen where not duly.is_gated(options)
        on conflict do nothing returning run_id)
    select run_id from by_timer union all select run_id from at_once;
end $$;

-- Give dead runs up for good, with a record.
create function duly.discard_v1(p_run_ids uuid[]) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with gone as (delete from duly.dead where dead.run_id = any (p_run_ids) returning *),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
    select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, 'discarded' from gone
    returning attempts.run_id;
end $$;

--------------------------------------------------------------------------------------------------------- shards, leases

-- Renew a scheduler's lease and settle its fair share of the shards: those who live share all 64, the first by id one more where
-- it does not come out even. A shard is free when its holder's lease has run out, or, after a step of the clock, when it lies
-- further ahead than a lease can.
create function duly.hold_shards_v1(p_scheduler_id uuid, p_name text, p_version text, p_lease interval)
returns table (shard smallint, epoch bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_live  uuid[];
    v_held  integer;
    v_share integer;
begin
    insert into duly.schedulers (scheduler_id, name, version, started_at, until)
    values (p_scheduler_id, p_name, p_version, v_now, v_now + p_lease)
    on conflict (scheduler_id) do update set until = excluded.until;
    v_live := array(select scheduler_id from duly.schedulers where until > v_now and until <= v_now + 2 * p_lease order by scheduler_id);
    v_share := 64 / cardinality(v_live) + (array_position(v_live, p_scheduler_id) <= 64 % cardinality(v_live))::integer;
    select count(*) into v_held from duly.shards where holder = p_scheduler_id;
    if v_held > v_share then
        update duly.shards set holder = null where shards.shard in (
            select shards.shard from duly.shards where holder = p_scheduler_id order by shards.shard desc limit v_held - v_share for update skip locked);
    elsif v_held < v_share then
        update duly.shards set holder = p_scheduler_id, epoch = epoch + 1 where shards.shard in (
            select shards.shard from duly.shards
             where holder is null or holder <> all (v_live)
             order by shards.shard limit v_share - v_held for update skip locked);
    end if;
    return query select shards.shard, shards.epoch from duly.shards where holder = p_scheduler_id order by 1;
end $$;

-- Make the day partitions of history from p_from on, where they are missing; what waits in the default partition for its day
-- goes along. One that does not get its lock in time is left for the next call: behind a lock we wait for, every settle waits.
create function duly.make_partitions_v1(p_from date, p_days integer) returns integer
language plpgsql set lock_timeout = '200ms' as $$
declare
    v_made   integer := 0;
    v_day    date;
    v_parent text;
    v_moment text;
    v_name   text;
begin
    for v_day, v_parent, v_moment in
        select p_from + i, parent, moment from generate_series(0, p_days - 1) as i
         cross join (values ('attempts_succeeded', 'finished_at'), ('attempts_failed', 'finished_at'), ('logs', 'logged_at')) as kept(parent, moment)
    loop
        v_name := v_parent || to_char(v_day, '_YYYYMMDD');
        continue when to_regclass(format('duly.%I', v_name)) is not null;
        begin
            execute format('lock table duly.%I in access exclusive mode', v_parent || '_default');
            execute format('create table duly.%I (like duly.%I including all)', v_name, v_parent);
            execute format('with strays as (delete from duly.%1$I where %2$I >= %3$L and %2$I < %4$L returning *) insert into duly.%5$I select * from strays',
                           v_parent || '_default', v_moment, v_day::text || ' 00:00+00', (v_day + 1)::text || ' 00:00+00', v_name);
            execute format('alter table duly.%I attach partition duly.%I for values from (%L) to (%L)',
                           v_parent, v_name, v_day::text || ' 00:00+00', (v_day + 1)::text || ' 00:00+00');
            v_made := v_made + 1;
        exception when lock_not_available or duplicate_table then
            continue;
        end;
    end loop;
    return v_made;
end $$;

-- Drop one day of history, whole. False: somebody is reading it, so it is left for the next call.
create function duly.drop_partition_v1(p_name text) returns boolean
language plpgsql set lock_timeout = '200ms' as $$
begin
    execute format('drop table if exists duly.%I', p_name);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- Drop idempotency keys that have expired, so many at a time.
create function duly.forget_keys_v1(p_limit integer) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    delete from duly.keys where ctid = any (array(select ctid from duly.keys where expires_at < v_now limit p_limit));
end $$;
