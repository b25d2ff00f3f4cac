-- Callbacks: runs that stay open until their receiver settles them, and who is told of a run's end.
-- docs/decisions/0025-callbacks.md says why.

----------------------------------------------------------------------------------------------------------- the receiver

-- The holder of leases whose run waits for its receiver. It has no row among the workers and no heartbeat: each has a deadline instead.
create function duly.receiver() returns uuid language sql immutable parallel safe as $$
    select '00000000-0000-0000-0000-000000000000'::uuid
$$;

-- What is known of such a run beside its lease. A row may outlive it until its deadline, and says nothing then.
create table duly.awaited (
    run_id       uuid        primary key,
    fence        bigint      not null,
    worker_id    uuid        not null,                  -- who sent the webhook
    started_at   timestamptz,
    deadline_at  timestamptz not null
) with (fillfactor = 50);
create index awaited_by_deadline on duly.awaited (deadline_at);

-- Await: put runs that are under way from their worker's hands into their receiver's, under the same fence and attempt. One whose
-- cancel is under way ends here.
create function duly.await_v1(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[], p_started timestamptz[], p_within interval[])
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
begin
    with taken as (
        delete from duly.leased using unnest(p_run_ids, p_fences, p_started, p_within) as held(run_id, fence, started_at, within)
         where leased.run_id = held.run_id and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true
        returning leased.*, held.started_at, held.within, duly.is_cancelling(leased.worker_id, leased.run_id, leased.fence) as cancelled),
    open as (
        insert into duly.leased (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                 suspect, payload_stored, queue, handler, payload, options, fence, worker_id, claimed_at)
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
               suspect, payload_stored, queue, handler, payload, options, fence, duly.receiver(), claimed_at
          from taken where not cancelled),
    noted as (
        insert into duly.awaited (run_id, fence, worker_id, started_at, deadline_at)
        select run_id, fence, p_worker_id, started_at, v_now + within from taken where not cancelled
        on conflict (run_id) do update set fence = excluded.fence, worker_id = excluded.worker_id, started_at = excluded.started_at,
                                           deadline_at = excluded.deadline_at),
    unneeded as (delete from duly.checkpoints using taken where checkpoints.run_id = taken.run_id and taken.cancelled),
    ended as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, reason, marks)
        select run_id, job_id, scheduled_at, due_at, started_at, v_now, fence, tenant, attempt, 'cancelled', 'cancelled',
               queue, handler, worker_id, 'cancelled', duly.marks_of(options)
          from taken where cancelled)
    select array_agg(run_id order by run_id), array_agg(fence order by run_id),
           array_agg(job_id) filter (where cancelled and duly.has_consequence(options)),
           array_agg(tenant) filter (where cancelled and duly.has_consequence(options)),
           array_agg(options) filter (where cancelled and duly.has_consequence(options))
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options from taken;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

-- Find runs whose receiver has said nothing by its deadline, the oldest first.
create function duly.overdue_v1(p_limit integer)
returns table (place tid, fence bigint, run_id uuid, job_id uuid, scheduled_at timestamptz, due_at timestamptz,
               previous_scheduled_at timestamptz, generation integer, tenant integer, attempt integer, priority smallint, losses smallint,
               suspect boolean, payload_stored boolean, queue text, handler text, payload jsonb, options jsonb,
               worker_id uuid, started_at timestamptz, deadline_at timestamptz)
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    select leased.ctid, leased.fence, leased.run_id, leased.job_id, leased.scheduled_at, leased.due_at, leased.previous_scheduled_at,
           leased.generation, leased.tenant, leased.attempt, leased.priority, leased.losses, leased.suspect, leased.payload_stored,
           leased.queue, leased.handler, leased.payload, leased.options, leased.worker_id,
           coalesce(late.started_at, greatest(leased.due_at, leased.claimed_at)), late.deadline_at
      from (select * from duly.awaited where awaited.deadline_at <= v_now order by awaited.deadline_at limit p_limit) as late
      join duly.leased on leased.run_id = late.run_id and leased.fence = late.fence and (leased.worker_id = duly.receiver()) is true;
end $$;

-- Forget deadlines that say nothing any more: their run has left its receiver's hands in a way that did not take them along.
create function duly.forget_awaited_v1(p_limit integer) returns setof uuid
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    delete from duly.awaited where awaited.run_id = any (array(
        select late.run_id from (select * from duly.awaited where awaited.deadline_at <= v_now order by awaited.deadline_at limit p_limit) as late
         where not exists (select from duly.leased where leased.run_id = late.run_id and leased.fence = late.fence)))
    returning awaited.run_id;
end $$;

-- Cancel runs that wait for their receiver: nobody else has a say, so it is done at once.
create function duly.cancel_awaited_v1(p_run_ids uuid[], p_reason text) returns setof uuid
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_gone    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with gone as (
        delete from duly.leased where leased.run_id = any (p_run_ids) and (leased.worker_id = duly.receiver()) is true returning leased.*),
    closed as (
        delete from duly.awaited using gone where awaited.run_id = gone.run_id and awaited.fence = gone.fence
        returning awaited.run_id, awaited.started_at),
    heard as (delete from duly.signals using gone where signals.worker_id = gone.worker_id and signals.run_id = gone.run_id and signals.fence = gone.fence),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, reason, marks)
        select gone.run_id, gone.job_id, gone.scheduled_at, gone.due_at, closed.started_at, v_now, gone.fence, gone.tenant, gone.attempt,
               'cancelled', 'cancelled', gone.queue, gone.handler, gone.worker_id, p_reason, duly.marks_of(gone.options)
          from gone left join closed on closed.run_id = gone.run_id)
    select array_agg(run_id), array_agg(job_id) filter (where duly.has_consequence(options)),
           array_agg(tenant) filter (where duly.has_consequence(options)), array_agg(options) filter (where duly.has_consequence(options))
      into v_gone, v_job_ids, v_tenants, v_options from gone;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_gone);
end $$;

create function duly.api_cancel_awaited_v1(p_run_ids uuid[], p_reason text) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query select * from duly.cancel_awaited_v1(duly.our_runs(p_run_ids), p_reason);
end $$;

-- As before; and a signal is stale as well when its run has gone from its worker's hands into its receiver's, who hears none.
create or replace function duly.carry_out_v1() returns table (run_id uuid, answer text)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_run_ids   uuid[];
    v_cancelled uuid[] := '{}';
    v_signalled uuid[];
begin
    with stale as (
        delete from duly.signals where ctid = any (array(
            select ctid from duly.signals
             where not exists (select from duly.leased where leased.run_id = signals.run_id and leased.fence = signals.fence
                                  and leased.worker_id = signals.worker_id and leased.worker_id <> duly.receiver())
             limit 1000 for update skip locked))
        returning run_id)
    select array_agg(distinct run_id) into v_run_ids from stale;
    if v_run_ids is null then
        return;
    end if;
    loop                                               -- A row may be on the move between two looks; it is never nowhere for long.
        v_cancelled := v_cancelled || array(select duly.cancel_v1(v_run_ids, 'cancelled'));
        v_cancelled := v_cancelled || array(select duly.cancel_awaited_v1(v_run_ids, 'cancelled'));
        v_signalled := array(select duly.signal_v1(v_run_ids, 'cancel'));
        exit when not exists (select from duly.timers where run_id = any (v_run_ids) and run_id is not null)
              and not exists (select from duly.blocked where run_id = any (v_run_ids))
              and not exists (select from duly.ready where run_id = any (v_run_ids));
    end loop;
    return query
    select u.run_id, case when u.run_id = any (v_cancelled) then 'cancelled' when u.run_id = any (v_signalled) then 'cancelling' else 'too_late' end
      from unnest(v_run_ids) as u(run_id);
end $$;

------------------------------------------------------------------------------------------------------------ who is told

-- Whether this says whom to tell: of every end, of burials, or both; each a URL, or a job.
create function duly.are_told(p_then jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_then is null then true when jsonb_typeof(p_then) <> 'object' then false
                else p_then - array['done', 'dead'] = '{}' and p_then <> '{}'
                     and not jsonb_path_exists(p_then, '$.* ? (@.type() != "object")')
                     and not jsonb_path_exists(p_then, '$.* ? (!(exists(@.url ? (@.type() == "string")) || exists(@.job ? (@.type() == "string"))))')
                     and not jsonb_path_exists(p_then, '$.* ? (exists(@.url) && exists(@.job))') end
$$;

create or replace function duly.are_options(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select jsonb_typeof(p_options) = 'object'
       and p_options - array['retry', 'timeout_seconds', 'gate', 'tags', 'request_id', 'traceparent', 'target', 'then'] = '{}'
       and coalesce(jsonb_typeof(p_options->'retry'), 'object') = 'object'
       and coalesce(p_options #> '{retry,max_attempts}', '1')::text ~ '^[1-9][0-9]{0,3}$'
       and duly.is_span(p_options #> '{retry,base_seconds}') and duly.is_span(p_options #> '{retry,cap_seconds}')
       and (jsonb_typeof(p_options->'timeout_seconds') = 'null' or duly.is_span(p_options->'timeout_seconds'))
       and (p_options->'gate' is null or (jsonb_typeof(p_options #> '{gate,0}') = 'string' and p_options #> '{gate,2}' is null
                                          and (p_options #> '{gate,1}')::text ~ '^[1-9][0-9]{0,5}$') is true)
       and duly.are_tags(p_options->'tags') and duly.is_mark(p_options->'request_id') and duly.is_mark(p_options->'traceparent')
       and coalesce(jsonb_typeof(p_options->'target'), 'object') = 'object' and left(p_options #>> '{gate,0}', 1) is distinct from '@'
       and duly.are_told(p_options->'then')
$$;

-- As before, with whom to tell: what writes the record of a run's end hands it on with it.
create or replace function duly.marks_of(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options ?| array['tags', 'request_id', 'traceparent', 'then']
                then jsonb_strip_nulls(jsonb_build_object('tags', p_options->'tags', 'request_id', p_options->'request_id',
                                                          'traceparent', p_options->'traceparent', 'then', p_options->'then')) end
$$;

-- Jobs that are to be triggered with the outcome of a run. The id is the key, so that each is told once.
create table duly.tellings (
    telling_id   uuid        primary key,
    tenant       integer     not null,
    job_id       uuid        not null,
    event        jsonb       not null,
    made_at      timestamptz not null
);

create function duly.moment_text(p_at timestamptz) returns text language sql stable parallel safe as $$
    select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- Make the webhook that tells of the end of a run: a run of its own, of which nobody is told. Its id is computed from what is told.
create function duly.tell_url_v1(p_tenant integer, p_queue text, p_name text, p_to jsonb, p_event jsonb, p_marks jsonb, p_now timestamptz) returns uuid
language plpgsql as $$
declare
    v_run_id uuid := duly.run_id(p_now, p_name);
    v_stored boolean := octet_length(p_event::text) > 1024;
begin
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (v_run_id, 1, p_event, p_now) on conflict do nothing;
    end if;
    insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                            queue, handler, payload, options, rank)
    values (v_run_id, v_run_id, p_now, p_now, 1, p_tenant, 0, 5, 0, false, v_stored, coalesce(p_to->>'queue', p_queue), '@webhook',
            case when not v_stored then p_event end,
            jsonb_build_object('target', jsonb_build_object('type', 'webhook', 'url', p_to->'url'))
            || jsonb_strip_nulls(jsonb_build_object('request_id', p_marks->'request_id', 'traceparent', p_marks->'traceparent')),
            duly.rank(p_now, 5::smallint))
    on conflict do nothing;
    return v_run_id;
end $$;

-- Note that a job is to be triggered with the outcome of a run. It is not touched here: its next fire is taken before any gate is
-- locked, and whoever ends a run may hold gates. Says what is on record of it: the job, or why it is not told.
create function duly.tell_job_v1(p_tenant integer, p_name text, p_to jsonb, p_event jsonb, p_now timestamptz) returns jsonb
language plpgsql set enable_seqscan = off set jit = off as $$
declare
    v_asked text := p_to->>'job';
    v_job   duly.jobs;
begin
    if v_asked ~ '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' then
        select * into v_job from duly.jobs where jobs.job_id = v_asked::uuid and jobs.tenant = p_tenant and jobs.state in ('active', 'paused');
    end if;
    if v_job.job_id is null then
        select * into v_job from duly.jobs where jobs.tenant = p_tenant and jobs.name = v_asked and jobs.state in ('active', 'paused');
    end if;
    if v_job.job_id is null then
        return jsonb_build_object('job', v_asked, 'skipped', 'no such job');
    elsif v_job.state = 'paused' then
        return jsonb_build_object('job', v_asked, 'skipped', 'the job is paused');
    end if;
    insert into duly.tellings (telling_id, tenant, job_id, event, made_at) values (duly.run_id(p_now, p_name), p_tenant, v_job.job_id, p_event, p_now)
    on conflict do nothing;
    return jsonb_build_object('job', v_asked, 'job_id', v_job.job_id);
end $$;

-- Tell of the end of a run, from the record of it: what every way to an end writes, once. Whom to tell comes with the marks and goes
-- no further; the record says instead who was told. What is told is the event that listeners hear, with the job's name and the result.
create function duly.tell_v1() returns trigger
language plpgsql set enable_seqscan = off set jit = off as $$
declare
    v_then  jsonb := new.marks->'then';
    v_now   timestamptz := duly.clock_now();
    v_kind  text := format('duly.run.%s.v1', new.became);
    v_told  jsonb := '{}';
    v_event jsonb;
    v_to    jsonb;
    v_when  text;
    v_name  text;
begin
    new.marks := nullif(new.marks - 'then', '{}');
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
    foreach v_when in array array['done', 'dead'] loop
        v_to := v_then->v_when;
        continue when v_to is null or (v_when = 'dead' and new.became <> 'dead');
        v_name := format('%s/%s/%s/%s/on_%s', new.run_id, new.attempt, coalesce(new.fence, 0), new.became, v_when);
        v_told := v_told || jsonb_build_object('on_' || v_when, case when v_to ? 'url'
            then jsonb_build_object('run_id', duly.tell_url_v1(new.tenant, new.queue, v_name, v_to, v_event, new.marks, v_now))
            else duly.tell_job_v1(new.tenant, v_name, v_to, v_event, v_now) end);
    end loop;
    if v_told <> '{}' then
        new.detail := case when jsonb_typeof(new.detail) = 'object' then new.detail when new.detail is null then '{}'
                           else jsonb_build_object('said', new.detail) end || jsonb_build_object('told', v_told);
    end if;
    return new;
end $$;

create trigger attempts_told before insert on duly.attempts for each row when (new.marks ? 'then') execute function duly.tell_v1();

-- Trigger one job with the outcome of a run, as any job is triggered; nothing comes when it was done before. One that went, or was
-- paused, since the run ended is skipped, on record.
create function duly.deliver_v1(p_telling_id uuid) returns table (run_id uuid, answer text, queue text)
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_telling duly.tellings;
    v_job     duly.jobs;
    v_payload jsonb;
    v_skipped text;
begin
    delete from duly.tellings where telling_id = p_telling_id returning * into v_telling;
    if not found then
        return;
    end if;
    select * into v_job from duly.jobs where jobs.job_id = v_telling.job_id;
    if v_job.job_id is null then
        return;                                        -- Jobs are not deleted; whoever did it has seen to what hangs on it.
    end if;
    v_payload := coalesce(v_job.payload, (select body from duly.payloads where payloads.job_id = v_job.job_id and payloads.generation = v_job.generation), '{}')
                 || jsonb_build_object('event', v_telling.event);
    v_skipped := case when v_job.state = 'paused' then 'skipped_paused' when v_job.state <> 'active' then 'skipped_over'
                      when octet_length(v_payload::text) > 262144 then 'skipped_too_large' end;
    if v_skipped is null then
        return query select triggered.run_id, triggered.answer, v_job.queue
                       from duly.trigger_v1(v_job.job_id, 'callback/' || p_telling_id, v_payload, false) as triggered
                      where triggered.answer <> 'over';
        if found then
            return;
        end if;
        v_skipped := 'skipped_over';
    end if;
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
    values (p_telling_id, v_job.job_id, v_telling.made_at, v_telling.made_at, duly.clock_now(), v_job.tenant, 0, 'skipped', 'skipped',
            v_job.queue, v_job.handler, v_skipped);
    return query select p_telling_id, v_skipped, v_job.queue;
end $$;

-- As before; and whom to tell is told.
create or replace function duly.void_overstayed_v1(p_stop interval) returns setof uuid
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_gone    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with overstayed as (
        select leased.run_id, leased.fence, signals.worker_id from duly.signals
          join duly.leased on leased.run_id = signals.run_id and leased.fence = signals.fence and leased.worker_id = signals.worker_id
         where signals.what = 'cancel' and signals.sent_at <= v_now - p_stop and leased.options->'overlap'->>0 = 'cancel_running'
           and exists (select from duly.blocked where blocked.tenant = leased.tenant and blocked.gate = leased.options->'gate'->>0)
         limit 1000),
    gone as (
        delete from duly.leased using overstayed
         where leased.run_id = overstayed.run_id and leased.fence = overstayed.fence and (leased.worker_id = overstayed.worker_id) is true
        returning leased.*),
    heard as (delete from duly.signals using gone where signals.worker_id = gone.worker_id and signals.run_id = gone.run_id and signals.fence = gone.fence),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became, queue, handler, worker_id,
                                   reason, marks)
        select run_id, job_id, scheduled_at, due_at, v_now, fence, tenant, attempt, 'lost', 'cancelled', queue, handler, worker_id,
               'did not stop in time, and the next run takes its place', duly.marks_of(options)
          from gone)
    select array_agg(run_id), array_agg(job_id), array_agg(tenant), array_agg(options) into v_gone, v_job_ids, v_tenants, v_options from gone;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_gone);
end $$;

-- As before; and nobody is told: the burial was, and a person has dealt with it.
create or replace function duly.discard_v1(p_run_ids uuid[]) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with gone as (delete from duly.dead where dead.run_id = any (p_run_ids) returning *),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id)
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
    select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, 'discarded', duly.marks_of(options - 'then')
      from gone
    returning attempts.run_id;
end $$;

-------------------------------------------------------------------------------------------------------------- the wall

alter table duly.awaited enable row level security;
alter table duly.tellings enable row level security;
create policy of_its_run on duly.awaited for select to duly_api using (duly.owns(run_id));
grant select on duly.awaited to duly_api;

revoke execute on function duly.receiver, duly.await_v1, duly.overdue_v1, duly.forget_awaited_v1, duly.cancel_awaited_v1, duly.api_cancel_awaited_v1, duly.are_told, duly.moment_text,
    duly.tell_url_v1, duly.tell_job_v1, duly.tell_v1, duly.deliver_v1 from public;
grant execute on function duly.api_cancel_awaited_v1 to duly_api;
