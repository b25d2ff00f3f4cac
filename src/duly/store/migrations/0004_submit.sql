-- Submit one one-shot, as submit_one_v1 does, with the same hash of a body and the same names: a key used by an older process
-- is known to a newer one. It costs less: what is wrong is found with plain comparisons, and only that, or what has options, goes
-- to check_one, which says it in a sentence and has settings that cost on every call.
create function duly.submit_one_v2(
    p_tenant integer, p_key text, p_handler text, p_payload text, p_queue text, p_priority smallint, p_at timestamptz, p_delay interval,
    p_options text, p_horizon interval default '5 seconds', p_grace interval default '60 seconds',
    out job_id uuid, out scheduled_at timestamptz, out replayed boolean)
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
        job_id := v_key.job_id;
        scheduled_at := coalesce(p_at, v_key.scheduled_at + coalesce(p_delay, interval '0'));
        replayed := true;
        return;
    end if;
    if coalesce(p_handler, '') = '' or coalesce(p_queue, '') = '' then
        raise exception using errcode = 'DU005', message = 'a job needs the name of a handler and of a queue';
    end if;
    if p_at < v_now - p_grace or p_at > v_now + interval '100 years' or p_delay < interval '0' or p_delay > interval '100 years'
       or octet_length(p_payload) > 262144 or p_priority not between 0 and 9 or v_options is not null then
        perform duly.check_one(p_at, p_delay, octet_length(p_payload), p_priority, v_options, v_now, p_grace);
    end if;
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
    job_id := v_run_id;
    scheduled_at := v_due_at;
    replayed := false;
end $$;

-- For any language, inside the caller's own transaction: select duly.submit('send_report', '{"customer": 7}').
create or replace function duly.submit(
    handler text, payload jsonb default '{}', queue text default 'default', priority integer default 5,
    at timestamptz default null, delay interval default null, key text default null, options jsonb default null, tenant integer default 1)
returns uuid language sql as $$
    select job_id from duly.submit_one_v2(tenant, coalesce(key, gen_random_uuid()::text), handler, payload::text, queue, priority::smallint,
                                          at, delay, options::text)
$$;
