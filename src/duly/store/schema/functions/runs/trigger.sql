-- Runs that are requested beside a schedule: by a person, or by an event from outside.
-- docs/decisions/0041-events-in-transaction-order.md says why.

-- Run a schedule's job now, beside its schedule. It obeys overlap, unless it may run beside what is active; only a run that
-- obeys is what the next occurrence is judged by. One that has a rate waits for a reservation. The key makes a repeated request one run.
create or replace function duly.trigger(p_job_id uuid, p_key text, p_payload jsonb, p_allow_overlap boolean, p_settles boolean default true)
returns table (run_id uuid, answer text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_timer   duly.timers := duly.take_next_fire(p_job_id);
    v_run_id  uuid := duly.occurrence_id(p_job_id, v_now, 'manual:' || p_key);
    v_key     text := 'trigger/' || p_job_id || '/' || p_key;
    v_hash    bytea := sha256(convert_to(concat_ws(E'\x01', p_payload, p_allow_overlap), 'UTF8'));
    v_options jsonb := duly.numbered(case when p_allow_overlap then v_timer.options - array['concurrency', 'overlap', 'fifo'] else v_timer.options end - 'rearm');
    v_stored  boolean := p_payload is null and v_timer.payload_stored;      -- A payload of its own travels with the run, whatever its size.
    v_answer  text := 'ready';
begin
    if v_timer.job_id is null then
        return query select null::uuid, 'over';
        return;
    elsif octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    insert into duly.idempotency_keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (v_timer.tenant, v_key, v_run_id, v_hash, v_now, v_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where idempotency_keys.expires_at <= v_now;
    if not found then
        if not exists (select from duly.idempotency_keys where idempotency_keys.tenant = v_timer.tenant and idempotency_keys.key = v_key and idempotency_keys.body_hash = v_hash) then
            raise exception using errcode = 'DU001', message = format('key %s was used for another run of this job', quote_literal(p_key)),
                  detail = (select idempotency_keys.job_id::text from duly.idempotency_keys where idempotency_keys.tenant = v_timer.tenant and idempotency_keys.key = v_key);
        end if;
        perform duly.put_next_fire(v_timer);
        return query select idempotency_keys.job_id, 'replayed' from duly.idempotency_keys where idempotency_keys.tenant = v_timer.tenant and idempotency_keys.key = v_key;
        return;
    end if;
    -- A fire that is due later is judged by this run when it is due, and not this run by it.
    if not p_allow_overlap and v_timer.overlap is null and exists (
           select from duly.coming_runs(p_job_id, v_timer.previous_scheduled_at, v_now) as coming where coming.due_at > v_now) then
        if not p_settles and duly.is_coming_run_held(v_timer, array[v_timer.previous_scheduled_at], v_now) then
            delete from duly.idempotency_keys where idempotency_keys.tenant = v_timer.tenant and idempotency_keys.key = v_key;
            perform duly.put_next_fire(v_timer);
            return query select null::uuid, 'held';
            return;
        end if;
        v_timer := duly.withdraw(v_timer, array[v_timer.previous_scheduled_at], v_now);
    end if;
    if not p_allow_overlap and (v_timer.overlap is null or v_timer.overlap = 'after_end') and duly.is_active(v_timer.last_run_id)
       and not (v_timer.overlap is not null and exists (
               select from duly.coming_runs(p_job_id, v_timer.previous_scheduled_at, v_now) as coming where coming.due_at > v_now)) then
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason,
                                   generation, priority, payload, payload_stored, options)
        values (v_run_id, p_job_id, v_now, v_now, v_now, v_timer.tenant, 0, 'skipped', 'skipped', v_timer.queue, v_timer.handler, 'skipped_overlap',
                nullif(v_timer.generation, 1), nullif(v_timer.priority, 5), coalesce(p_payload, v_timer.payload), nullif(v_stored, false),
                duly.options_recorded(v_options, v_timer.tenant));
        v_answer := 'skipped_overlap';
    elsif duly.must_enter(v_options) then
        insert into duly.blocked ({run}, waits_for, key, blocked_at)
        values (v_run_id, p_job_id, v_now, v_now, v_timer.previous_scheduled_at, v_timer.generation, v_timer.tenant, 0, v_timer.priority, 0,
                false, v_stored, v_timer.queue, v_timer.handler, coalesce(p_payload, v_timer.payload), v_options,
                duly.wait_kind(v_options), duly.wait_key(v_options), v_now);
        perform duly.release(array[v_timer.tenant], array[v_options], 0, null);
    else
        insert into duly.ready ({run})
        values (v_run_id, p_job_id, v_now, v_now, v_timer.previous_scheduled_at, v_timer.generation, v_timer.tenant, 0, v_timer.priority, 0,
                false, v_stored, v_timer.queue, v_timer.handler, coalesce(p_payload, v_timer.payload), v_options);
    end if;
    if v_timer.overlap = 'cancel_running' and not p_allow_overlap and v_timer.last_run_id is not null then
        perform duly.cancel(array[v_timer.last_run_id], 'a run was requested');
        perform duly.signal(array[v_timer.last_run_id], 'cancel');
    end if;
    if v_answer = 'ready' and duly.must_enter(v_options) then
        v_answer := case when exists (select from duly.blocked where blocked.run_id = v_run_id) then 'blocked'
                         when exists (select from duly.ready where ready.run_id = v_run_id) then 'ready' else 'skipped_overlap' end;
    end if;
    if v_answer <> 'skipped_overlap' and not p_allow_overlap and v_timer.overlap is distinct from 'after_end' then
        v_timer.last_run_id := v_run_id;
    end if;
    perform duly.put_next_fire(v_timer);
    if v_answer in ('ready', 'blocked') then
        perform duly.admit(v_timer.tenant, 0, 1);
    end if;
    return query select v_run_id, v_answer;
end $$;

-- Take an event: one run of each job that waits for it, and never again under the same source and id; a job that has a rate waits for its
-- reservation. A job that is being changed is waited for, and then judged by what it has become; every change of a job changes its row.
create or replace function duly.take_event(p_tenant integer, p_source text, p_id text, p_type text, p_event jsonb, p_metadata jsonb)
returns table (is_duplicate boolean, runs uuid[], queues text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp
    set lock_timeout = '2s' {planned by index, in order, unsorted} set enable_incremental_sort = off as $$
#variable_conflict use_column
declare
    c_jobs_max constant integer := 1000;
    v_now    timestamptz := duly.clock_now();
    v_digest bytea := sha256(convert_to(p_source, 'UTF8') || '\x00' || convert_to(p_id, 'UTF8'));
    v_jobs   duly.jobs[];
    v_limited  jsonb[];
    v_large  duly.jobs;
begin
    perform duly.must_be_ours(p_tenant);
    insert into duly.events (tenant, digest, runs, received_at) values (p_tenant, v_digest, '{}', v_now) on conflict do nothing;
    if not found then
        perform duly.admit(p_tenant, 0, 0);
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
    with created as (
        select listed.*, duly.numbered(listed.requested) as marked from (
        select duly.occurrence_id(job.job_id, v_now, 'event:' || encode(v_digest, 'hex')) as run_id, job.*,
               coalesce(job.payload, payloads.body, '{}') || jsonb_build_object('event', p_event) as carried,
               case when p_metadata is null then job.options else coalesce(job.options, '{}') || p_metadata end as requested
          from unnest(v_jobs) as job left join duly.payloads on payloads.job_id = job.job_id and payloads.generation = job.generation) as listed),
    waiting as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                  queue, handler, payload, options, waits_for, key, blocked_at)
        select run_id, job_id, v_now, v_now, generation, tenant, 0, priority, 0, false, false, queue, handler, carried, marked,
               duly.wait_kind(marked), duly.wait_key(marked), v_now
          from created where duly.must_enter(marked)),
    started as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                queue, handler, payload, options)
        select run_id, job_id, v_now, v_now, generation, tenant, 0, priority, 0, false, false, queue, handler, carried, marked
          from created where not duly.must_enter(marked)),
    kept as (
        update duly.events set runs = array(select run_id from created order by job_id)
         where events.tenant = p_tenant and events.digest = v_digest and exists (select from created))
    select false, array(select run_id from created order by job_id), array(select distinct queue from created);
    v_limited := array(select job.options from unnest(v_jobs) as job where duly.must_enter(job.options) order by job.job_id);
    if cardinality(v_limited) > 0 then
        perform duly.release(array_fill(p_tenant, array[cardinality(v_limited)]), v_limited, 0, null);
    end if;
    perform duly.admit(p_tenant, 0, cardinality(v_jobs));
end $$;

grant execute on function duly.trigger, duly.take_event to duly_api;
