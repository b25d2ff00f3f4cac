-- Completion callbacks of runs. docs/decisions/0033-asynchronous-webhooks-and-completion-callbacks.md says why.

-- Notify of the end of a run, from the record of it: what every way to an end writes, once. The callbacks come with the metadata and go
-- no further; the record says instead who was notified. The event is the one that listeners receive, with the job's name and the result.
create or replace function duly.completion_callbacks() returns trigger
language plpgsql {planned by index} as $$
declare
    v_callbacks  jsonb := new.metadata->'callbacks';
    v_now   timestamptz := duly.clock_now();
    v_kind  text := format('duly.run.%s.v1', new.became);
    v_notified  jsonb := '{}';
    v_event jsonb;
    v_to    jsonb;
    v_when  text;
    v_name  text;
begin
    new.metadata := nullif(new.metadata - 'callbacks', '{}');
    if new.became not in ('succeeded', 'dead', 'cancelled', 'expired') or new.outcome = 'fenced' then
        return new;                                    -- It goes on, or never was a run.
    end if;
    v_event := jsonb_build_object(
        'specversion', '1.0', 'id', format('%s/%s/%s/%s', new.run_id, new.attempt, coalesce(new.fence, 0), v_kind), 'source', '/v1/runs',
        'type', v_kind, 'subject', new.run_id, 'time', duly.moment_text(new.finished_at), 'datacontenttype', 'application/json',
        'data', jsonb_build_object(
            'run_id', new.run_id, 'job_id', new.job_id, 'name', (select jobs.name from duly.jobs where jobs.job_id = new.job_id),
            'state', new.became, 'outcome', new.outcome, 'attempt', new.attempt, 'queue', new.queue, 'handler', new.handler,
            'scheduled_at', duly.moment_text(new.scheduled_at), 'started_at', duly.moment_text(new.started_at),
            'finished_at', duly.moment_text(new.finished_at), 'reason', new.reason,
            'result', case when octet_length(new.result::text) <= 65536 then new.result end, 'result_bytes', octet_length(new.result::text)));
    foreach v_when in array array['end', 'failure'] loop
        v_to := v_callbacks->v_when;
        continue when v_to is null or (v_when = 'failure' and new.became <> 'dead');
        v_name := format('%s/%s/%s/%s/on_%s', new.run_id, new.attempt, coalesce(new.fence, 0), new.became, v_when);
        v_notified := v_notified || jsonb_build_object('on_' || v_when, case when v_to ? 'url'
            then jsonb_build_object('run_id', duly.callback_by_webhook(new.tenant, new.queue, v_name, v_to, v_event, new.metadata, v_now))
            else duly.callback_by_job(new.tenant, v_name, v_to, v_event, v_now) end);
    end loop;
    if v_notified <> '{}' then
        new.detail := case when jsonb_typeof(new.detail) = 'object' then new.detail when new.detail is null then '{}'
                           else jsonb_build_object('said', new.detail) end || jsonb_build_object('callbacks', v_notified);
    end if;
    return new;
end $$;

-- Create the webhook that notifies of the end of a run: a run of its own, without callbacks. Its id is computed from the event.
create or replace function duly.callback_by_webhook(p_tenant integer, p_queue text, p_name text, p_to jsonb, p_event jsonb, p_metadata jsonb, p_now timestamptz) returns uuid
language plpgsql as $$
declare
    v_run_id uuid := duly.run_id(p_now, p_name);
    v_stored boolean := octet_length(p_event::text) > 1024;
begin
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (v_run_id, 1, p_event, p_now) on conflict do nothing;
    end if;
    insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                            queue, handler, payload, options)
    values (v_run_id, v_run_id, p_now, p_now, 1, p_tenant, 0, 5, 0, false, v_stored, coalesce(p_to->>'queue', p_queue), '@webhook',
            case when not v_stored then p_event end,
            jsonb_build_object('target', jsonb_strip_nulls(jsonb_build_object('type', 'webhook', 'url', p_to->'url', 'sealed_url', p_to->'sealed_url')))
            || jsonb_strip_nulls(jsonb_build_object('request_id', p_metadata->'request_id', 'traceparent', p_metadata->'traceparent')))
    on conflict do nothing;
    return v_run_id;
end $$;

-- Record that a job is to be triggered with the outcome of a run. It is not touched here: its next fire is taken before any concurrency key is
-- locked, and the end of a run may hold concurrency keys. Says what is on record of it: the job, or why it is not triggered.
create or replace function duly.callback_by_job(p_tenant integer, p_name text, p_to jsonb, p_event jsonb, p_now timestamptz) returns jsonb
language plpgsql {planned by index} as $$
declare
    v_name text := p_to->>'job';
    v_job  duly.jobs;
begin
    if v_name ~ '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' then
        select * into v_job from duly.jobs where jobs.job_id = v_name::uuid and jobs.tenant = p_tenant and jobs.state in ('active', 'paused');
    end if;
    if v_job.job_id is null then
        select * into v_job from duly.jobs where jobs.tenant = p_tenant and jobs.name = v_name and jobs.state in ('active', 'paused');
    end if;
    if v_job.job_id is null then
        return jsonb_build_object('job', v_name, 'skipped', 'no such job');
    elsif v_job.state = 'paused' then
        return jsonb_build_object('job', v_name, 'skipped', 'the job is paused');
    end if;
    insert into duly.completion_callbacks (callback_id, tenant, job_id, event, created_at) values (duly.run_id(p_now, p_name), p_tenant, v_job.job_id, p_event, p_now)
    on conflict do nothing;
    return jsonb_build_object('job', v_name, 'job_id', v_job.job_id);
end $$;

-- Trigger one job with the outcome of a run, as any job is triggered; nothing comes when it was done before. One that went, or was
-- paused, since the run ended is skipped, on record.
create or replace function duly.deliver(p_callback_id uuid) returns table (run_id uuid, answer text, queue text)
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_callback duly.completion_callbacks;
    v_job     duly.jobs;
    v_payload jsonb;
    v_skipped text;
begin
    -- Of a tenant that is leaving, it goes along.
    delete from duly.completion_callbacks
     where callback_id = p_callback_id and not exists (select from duly.absent_tenants where absent_tenants.tenant = completion_callbacks.tenant)
    returning * into v_callback;
    if not found then
        return;
    end if;
    select * into v_job from duly.jobs where jobs.job_id = v_callback.job_id;
    if v_job.job_id is null then
        return;                                        -- Jobs are not deleted; a manual delete has to deal with what refers to them.
    end if;
    v_payload := coalesce(v_job.payload, (select body from duly.payloads where payloads.job_id = v_job.job_id and payloads.generation = v_job.generation), '{}')
                 || jsonb_build_object('event', v_callback.event);
    v_skipped := case when v_job.state = 'paused' then 'skipped_paused' when v_job.state <> 'active' then 'skipped_over'
                      when octet_length(v_payload::text) > 262144 then 'skipped_too_large' end;
    if v_skipped is null then
        return query select triggered.run_id, triggered.answer, v_job.queue
                       from duly.trigger(v_job.job_id, 'callback/' || p_callback_id, v_payload, false) as triggered
                      where triggered.answer <> 'over';
        if found then
            return;
        end if;
        v_skipped := 'skipped_over';
    end if;
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason,
                               generation, priority, payload, payload_stored, options)
    values (p_callback_id, v_job.job_id, v_callback.created_at, v_callback.created_at, duly.clock_now(), v_job.tenant, 0, 'skipped', 'skipped',
            v_job.queue, v_job.handler, v_skipped, nullif(v_job.generation, 1), nullif(v_job.priority, 5),
            case when v_skipped <> 'skipped_too_large' then v_payload end, case when v_skipped = 'skipped_too_large' then false end,
            duly.options_recorded(v_job.options, v_job.tenant));
    return query select p_callback_id, v_skipped, v_job.queue;
end $$;
