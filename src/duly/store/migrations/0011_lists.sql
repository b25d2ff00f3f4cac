-- Lists, filters and tags. docs/decisions/0014-lists.md says why.

------------------------------------------------------------------------------------------------------------------ tags

-- What a run is marked with, beside what it does: tags, and who asked for it. It has no say in how a run is run.
create function duly.marks_of(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options ?| array['tags', 'request_id', 'traceparent']
                then jsonb_strip_nulls(jsonb_build_object('tags', p_options->'tags', 'request_id', p_options->'request_id',
                                                          'traceparent', p_options->'traceparent')) end
$$;

-- At most 32 tags of 1 to 200 characters each, or none.
create function duly.are_tags(p_tags jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_tags is null then true when jsonb_typeof(p_tags) <> 'array' then false
                else jsonb_array_length(p_tags) <= 32
                     and not jsonb_path_exists(p_tags, '$[*] ? (@.type() != "string")')
                     and not jsonb_path_exists(p_tags, '$[*] ? (!(@ like_regex "^.{1,200}$" flag "s"))') end
$$;

create function duly.is_mark(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) = 'string' then length(p_value #>> '{}') between 1 and 200 else false end
$$;

create or replace function duly.are_options(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select jsonb_typeof(p_options) = 'object' and p_options - array['retry', 'timeout_seconds', 'gate', 'tags', 'request_id', 'traceparent'] = '{}'
       and coalesce(jsonb_typeof(p_options->'retry'), 'object') = 'object'
       and coalesce(p_options #> '{retry,max_attempts}', '1')::text ~ '^[1-9][0-9]{0,3}$'
       and duly.is_span(p_options #> '{retry,base_seconds}') and duly.is_span(p_options #> '{retry,cap_seconds}')
       and (jsonb_typeof(p_options->'timeout_seconds') = 'null' or duly.is_span(p_options->'timeout_seconds'))
       and (p_options->'gate' is null or (jsonb_typeof(p_options #> '{gate,0}') = 'string' and p_options #> '{gate,2}' is null
                                          and (p_options #> '{gate,1}')::text ~ '^[1-9][0-9]{0,5}$') is true)
       and duly.are_tags(p_options->'tags') and duly.is_mark(p_options->'request_id') and duly.is_mark(p_options->'traceparent')
$$;

-- Who asks is not part of what is asked for: the same job under the same key is the same, whatever request brought it.
create function duly.asked_options(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options ?| array['request_id', 'traceparent'] then nullif(p_options - array['request_id', 'traceparent'], '{}') else p_options end
$$;

-- As before, but for the hash of the options.
create or replace function duly.submit_one_v2(
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
                                                  coalesce((date_part('epoch', p_delay) * 1000000)::bigint, -1),
                                                  duly.asked_options(v_options)), 'UTF8'));
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

-- The tags of schedules, so that a list by tag is read in order and no further than it goes. They follow the job's options.
create table duly.job_tags (
    tenant       integer     not null,
    tag          text        not null collate "C",
    job_id       uuid        not null,
    primary key (tenant, tag, job_id)
);
create index job_tags_by_job on duly.job_tags (job_id);

create function duly.keep_job_tags_v1() returns trigger
language plpgsql set enable_seqscan = off set jit = off as $$
begin
    delete from duly.job_tags where job_tags.job_id = new.job_id;
    insert into duly.job_tags (tenant, tag, job_id)
    select distinct new.tenant, tag, new.job_id from jsonb_array_elements_text(coalesce(new.options->'tags', '[]')) as tag;
    return null;
end $$;

create trigger jobs_tagged after insert on duly.jobs for each row when (new.options ? 'tags') execute function duly.keep_job_tags_v1();
create trigger jobs_tagged_anew after update of options on duly.jobs
   for each row when (old.options->'tags' is distinct from new.options->'tags') execute function duly.keep_job_tags_v1();

--------------------------------------------------------------------------------------------------------------- history

-- A run's options end with it; what it was marked with stays with its record.
alter table duly.attempts add column marks jsonb;

create or replace function duly.finish_v1(
    p_worker_id uuid, p_places tid[], p_fences bigint[], p_started timestamptz[], p_finished timestamptz[], p_results jsonb[])
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
                               queue, handler, worker_id, result, marks)
    select run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, 'succeeded', 'succeeded',
           queue, handler, worker_id, result, duly.marks_of(options)
      from done
    returning attempts.run_id, attempts.fence;
end $$;

create or replace function duly.settle_v1(
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
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
    v_became  text[];
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
    retrying as (                                      -- A retry is part of its run, so it keeps the place of an overlap; any other gate's it gives back.
        select done.*, case when options ? 'overlap' then options || '{"held": true}' else options end as carried from done where became = 'retrying'),
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
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                                   queue, handler, worker_id, reason, result, detail, marks)
        select run_id, job_id, scheduled_at, was_due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
               queue, handler, worker_id, reason, result, detail, duly.marks_of(options)
          from done
        returning attempts.run_id, attempts.fence),
    leaving as (
        select job_id, tenant, options, became from done
         where (became <> 'retrying' and duly.has_consequence(options)) or (duly.is_gated(options) and not options ? 'overlap'))
    select (select array_agg(run_id order by run_id) from recorded), (select array_agg(fence order by run_id) from recorded),
           array_agg(leaving.job_id), array_agg(leaving.tenant), array_agg(leaving.options), array_agg(leaving.became::text)
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options, v_became from leaving;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, v_became, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

create or replace function duly.hand_back_v1(p_worker_id uuid, p_run_ids uuid[], p_fences bigint[])
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
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt - 1, 'cancelled', 'cancelled', queue, handler, 'cancelled', duly.marks_of(options)
          from back where cancelled)
    select array_agg(run_id), array_agg(fence), array_agg(job_id) filter (where cancelled and duly.has_consequence(options)),
           array_agg(tenant) filter (where cancelled and duly.has_consequence(options)),
           array_agg(options) filter (where cancelled and duly.has_consequence(options))
      into v_run_ids, v_fences, v_job_ids, v_tenants, v_options from back;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select u.run_id, u.fence from unnest(v_run_ids, v_fences) as u(run_id, fence);
end $$;

create or replace function duly.cancel_v1(p_run_ids uuid[], p_reason text) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_gone    uuid[];
    v_job_ids uuid[];
    v_tenants integer[];
    v_options jsonb[];
begin
    with waiting as (
        delete from duly.timers where timers.run_id = any (p_run_ids) and timers.run_id is not null
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options, duly.is_held(options) as inside),
    at_gate as (
        delete from duly.blocked where blocked.run_id = any (p_run_ids)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options, false as inside),
    staged as (
        delete from duly.ready where ready.run_id = any (p_run_ids)
        returning run_id, job_id, scheduled_at, due_at, tenant, attempt, queue, handler, options, true as inside),
    gone as (
        select * from waiting union all select * from at_gate union all select * from staged),
    unneeded as (delete from duly.checkpoints using gone where checkpoints.run_id = gone.run_id),
    recorded as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, marks)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, p_reason, duly.marks_of(options)
          from gone),
    leaving as (                                       -- One that had not entered its gate leaves nothing behind there.
        select job_id, tenant, case when inside then options else options - 'gate' end as options from gone where duly.has_consequence(options))
    select (select array_agg(run_id) from gone), array_agg(job_id), array_agg(tenant), array_agg(options)
      into v_gone, v_job_ids, v_tenants, v_options from leaving;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_gone);
end $$;

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
    select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, 'discarded', duly.marks_of(options)
      from gone
    returning attempts.run_id;
end $$;

------------------------------------------------------------------------------------------------------------ keys of lists

create index jobs_by_tenant on duly.jobs (tenant, job_id);
create index jobs_by_state on duly.jobs (tenant, state, job_id);
create index jobs_by_queue on duly.jobs (tenant, queue, job_id);
create index jobs_by_handler on duly.jobs (tenant, handler, job_id);
create index jobs_by_any_name on duly.jobs (tenant, name collate "C", job_id) where name is not null;

-- A tenant's runs, in each box and in history, newest first. Leased has none: it is never large.
create index timers_of_tenant on duly.timers (tenant, run_id) where run_id is not null;
create index blocked_of_tenant on duly.blocked (tenant, run_id);
create index ready_of_tenant on duly.ready (tenant, run_id);
create index dead_of_tenant on duly.dead (tenant, run_id);
create index attempts_succeeded_of_tenant on duly.attempts_succeeded (tenant, run_id);
create index attempts_ended_of_tenant on duly.attempts_failed (tenant, run_id) where became in ('cancelled', 'expired', 'skipped');

-- A schedule's runs, likewise. A one-shot is found by its run, so it pays for none of these.
drop index duly.timers_retries;
create index timers_by_job on duly.timers (job_id, run_id) where run_id is not null and run_id <> job_id;
create index blocked_by_job on duly.blocked (job_id, run_id) where run_id <> job_id;
create index ready_by_job on duly.ready (job_id, run_id) where run_id <> job_id;
create index dead_by_job on duly.dead (job_id, run_id) where run_id <> job_id;
drop index duly.attempts_by_job;
create index attempts_succeeded_by_job on duly.attempts_succeeded (job_id, run_id) where run_id <> job_id;
create index attempts_failed_by_job on duly.attempts_failed (job_id, finished_at) where run_id <> job_id;
create index attempts_ended_by_job on duly.attempts_failed (job_id, run_id) where run_id <> job_id and became in ('cancelled', 'expired', 'skipped');

drop index duly.dead_by_time;
create index dead_by_time on duly.dead (tenant, buried_at, run_id);

-- The runs of each box, and of history those that have ended, as lists show them: all alike, so that they can be read side by side.
create view duly.listed_timers with (security_invoker = true) as
    select tenant, run_id, job_id, case when attempt > 0 then 'retrying' else 'scheduled' end as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, null::uuid as worker_id, null::bigint as fence,
           null::text as reason, null::jsonb as detail, options as marks
      from duly.timers where run_id is not null;
create view duly.listed_blocked with (security_invoker = true) as
    select tenant, run_id, job_id, 'blocked'::text as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, null::uuid as worker_id, null::bigint as fence,
           'gate ' || gate as reason, null::jsonb as detail, options as marks
      from duly.blocked;
create view duly.listed_ready with (security_invoker = true) as
    select tenant, run_id, job_id, case when attempt > 0 then 'retrying' else 'ready' end as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, null::uuid as worker_id, null::bigint as fence,
           null::text as reason, null::jsonb as detail, options as marks
      from duly.ready;
create view duly.listed_leased with (security_invoker = true) as
    select tenant, run_id, job_id, case when due_at > duly.clock_now() then 'ready' else 'running' end as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, null::timestamptz as finished_at, worker_id, fence,
           null::text as reason, null::jsonb as detail, options as marks
      from duly.leased;
create view duly.listed_dead with (security_invoker = true) as
    select tenant, run_id, job_id, 'dead'::text as state, queue, handler, priority, attempt, scheduled_at, due_at,
           null::timestamptz as started_at, buried_at as finished_at, null::uuid as worker_id, null::bigint as fence,
           reason, null::jsonb as detail, options as marks
      from duly.dead;
create view duly.listed_succeeded with (security_invoker = true) as
    select tenant, run_id, job_id, 'succeeded'::text as state, queue, handler, null::smallint as priority, attempt, scheduled_at, due_at,
           started_at, finished_at, worker_id, fence,
           reason, detail, marks
      from duly.attempts_succeeded;
create view duly.listed_ended with (security_invoker = true) as
    select tenant, run_id, job_id, became::text as state, queue, handler, null::smallint as priority, attempt, scheduled_at, due_at,
           started_at, finished_at, worker_id, fence,
           reason, detail, marks
      from duly.attempts_failed where became in ('cancelled', 'expired', 'skipped');

----------------------------------------------------------------------------------------------------------------- pages
-- A page is read in the order of its key from a position on. It ends with as many rows as were asked for, or when p_looks rows
-- were looked at, whatever the filter leaves of them: so no page takes long, however rare what is looked for. The last row
-- looked at comes along, fitting or not: the next page goes on behind it. Keys are compared as rows and the order names them
-- whole, so that no other index can serve and nothing outside the tenant is read. They have the rights of their owner, and ask whose
-- it is first: a policy would make the tenant a constant for the planner, which would take it out of the order, and then read on.

-- Recurring jobs by falling id. p_by is what leads to them: a tag, or a column that must have p_value. A beginning of names leads
-- there itself when few begin so. Texts are chosen by what was asked for, never made of it.
create function duly.page_jobs_v1(
    p_tenant integer, p_before uuid, p_from uuid, p_by text, p_value text, p_states text[], p_queues text[], p_handlers text[], p_owners text[],
    p_names text[], p_beginning text, p_tags text[], p_any_tags text[], p_created_since timestamptz, p_created_before timestamptz,
    p_next_since timestamptz, p_next_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, job_id uuid, tenant integer, name text, state text, queue text, handler text, priority smallint, generation integer,
    every_seconds integer, anchor_at timestamptz, schedule jsonb, owner text, source text, pause_reason text, paused_at timestamptz,
    removed_at timestamptz, failures integer, options jsonb, created_at timestamptz, updated_at timestamptz, next_run_at timestamptz,
    pending_at timestamptz, runs_left integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
    v_walk text;
    v_few  boolean := false;
begin
    perform duly.must_be_ours(p_tenant);
    if p_beginning is not null and p_by = 'tenant' then
        select count(*) <= p_looks into v_few from (
            select from duly.jobs where (jobs.tenant, jobs.name collate "C") >= (p_tenant, p_beginning) and jobs.name is not null
               and (jobs.tenant, jobs.name collate "C") < (p_tenant, p_beginning || U&'\+10FFFF') limit p_looks + 1) as found;
    end if;
    v_walk := case
        when v_few then 'select jobs.* from duly.jobs where jobs.name is not null
            and (jobs.tenant, jobs.name collate "C") >= ($1, $10) and (jobs.tenant, jobs.name collate "C") < ($1, $10 || U&''\+10FFFF'')
            and jobs.job_id < $3 and jobs.job_id >= $4 order by jobs.job_id desc'
        when p_by = 'tag' then 'select jobs.* from duly.job_tags as walk join duly.jobs on jobs.job_id = walk.job_id
            where (walk.tenant, walk.tag, walk.job_id) < ($1, $2, $3) and (walk.tenant, walk.tag, walk.job_id) >= ($1, $2, $4)
            order by walk.tenant desc, walk.tag desc, walk.job_id desc'
        when p_by = 'name' then 'select walk.* from duly.jobs as walk where walk.name is not null
            and (walk.tenant, walk.name collate "C", walk.job_id) < ($1, $2, $3) and (walk.tenant, walk.name collate "C", walk.job_id) >= ($1, $2, $4)
            order by walk.tenant desc, walk.name collate "C" desc, walk.job_id desc'
        when p_by in ('state', 'queue', 'handler') then format('select walk.* from duly.jobs as walk
            where (walk.tenant, walk.%1$I, walk.job_id) < ($1, $2, $3) and (walk.tenant, walk.%1$I, walk.job_id) >= ($1, $2, $4)
            order by walk.tenant desc, walk.%1$I desc, walk.job_id desc', p_by)
        else 'select walk.* from duly.jobs as walk where (walk.tenant, walk.job_id) < ($1, $3) and (walk.tenant, walk.job_id) >= ($1, $4)
            order by walk.tenant desc, walk.job_id desc' end;
    return query execute format($page$
        select page.fits, page.number, page.job_id, page.tenant, page.name, page.state, page.queue, page.handler, page.priority, page.generation,
               page.every_seconds, page.anchor_at, page.schedule, page.owner, page.source, page.pause_reason, page.paused_at, page.removed_at,
               page.failures, page.options, page.created_at, page.updated_at,
               case when timers.due_at < 'infinity' then timers.scheduled_at end, timers.scheduled_at, timers.runs_left
          from (select * from (select jobs.*, row_number() over () as number, %s as fits from (%s limit $18) as jobs) as looked
                 where looked.fits or looked.number = $18 limit $17) as page
          left join duly.timers on timers.job_id = page.job_id and timers.run_id is null
         order by page.number $page$,
        concat_ws(' and ', 'true',
            case when p_states is not null then 'jobs.state = any ($5)' end, case when p_queues is not null then 'jobs.queue = any ($6)' end,
            case when p_handlers is not null then 'jobs.handler = any ($7)' end, case when p_owners is not null then 'jobs.owner = any ($8)' end,
            case when p_names is not null then 'coalesce(jobs.name = any ($9), false)' end,
            case when p_beginning is not null then 'coalesce(starts_with(jobs.name, $10), false)' end,
            case when p_tags is not null then 'coalesce(jobs.options->''tags'' ?& $11, false)' end,
            case when p_any_tags is not null then 'coalesce(jobs.options->''tags'' ?| $12, false)' end,
            case when p_created_since is not null then 'jobs.created_at >= $13' end,
            case when p_created_before is not null then 'jobs.created_at < $14' end,
            case when p_next_since is not null or p_next_before is not null then
                'exists (select from duly.timers as fire where fire.job_id = jobs.job_id and fire.run_id is null and fire.due_at < ''infinity''
                            and fire.scheduled_at >= coalesce($15, ''-infinity'') and fire.scheduled_at < coalesce($16, ''infinity''))' end),
        v_walk)
    using p_tenant, p_value, p_before, p_from, p_states, p_queues, p_handlers, p_owners, p_names, p_beginning, p_tags, p_any_tags,
          p_created_since, p_created_before, p_next_since, p_next_before, p_limit, p_looks;
end $$;

-- Runs by falling id, wherever they stand; p_boxes are those in which a run can be as it is asked for. One statement, so one moment:
-- a run is in one box. What stands in history twice, skipped and later made up for, is told apart by the reader. The plan is made
-- once for a connection: there are many days of history to plan for.
create function duly.page_runs_v1(
    p_tenant integer, p_before uuid, p_from uuid, p_boxes text[], p_states text[], p_queues text[], p_handlers text[],
    p_job_ids uuid[], p_tags text[], p_any_tags text[], p_scheduled_since timestamptz, p_scheduled_before timestamptz, p_due_since timestamptz,
    p_due_before timestamptz, p_finished_since timestamptz, p_finished_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, state text, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz, worker_id uuid, fence bigint, reason text,
    detail jsonb, marks jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
    set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.state, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.started_at, page.finished_at, page.worker_id, page.fence, page.reason, page.detail,
           duly.marks_of(page.marks), jobs.name
      from (select * from (
                select walk.*, row_number() over () as number,
                       walk.tenant = p_tenant
                       and (p_states is null or walk.state = any (p_states)) and (p_queues is null or walk.queue = any (p_queues))
                       and (p_handlers is null or walk.handler = any (p_handlers)) and (p_job_ids is null or walk.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(walk.marks->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(walk.marks->'tags' ?| p_any_tags, false))
                       and (p_scheduled_since is null or walk.scheduled_at >= p_scheduled_since)
                       and (p_scheduled_before is null or walk.scheduled_at < p_scheduled_before)
                       and (p_due_since is null or walk.due_at >= p_due_since) and (p_due_before is null or walk.due_at < p_due_before)
                       and (p_finished_since is null or coalesce(walk.finished_at >= p_finished_since, false))
                       and (p_finished_before is null or coalesce(walk.finished_at < p_finished_before, false)) as fits
                  from (select * from (
                                   (select * from duly.listed_timers where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'timers' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_blocked where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'blocked' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_ready where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'ready' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_leased where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'leased' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_dead where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'dead' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_succeeded where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'succeeded' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_ended where (tenant, run_id) < (p_tenant, p_before) and (tenant, run_id) >= (p_tenant, p_from)
                             and 'ended' = any (p_boxes) order by tenant desc, run_id desc limit p_looks)) as boxes
                         order by tenant desc, run_id desc limit p_looks) as walk) as looked
             where looked.fits or looked.number = p_looks limit p_limit) as page
      left join duly.jobs on jobs.job_id = page.job_id and page.job_id <> page.run_id;
end $$;

-- The runs of a job, likewise. A one-shot is its only run: p_behind is the id behind it.
create function duly.page_runs_of_job_v1(
    p_tenant integer, p_before uuid, p_from uuid, p_job_id uuid, p_behind uuid, p_boxes text[], p_states text[], p_queues text[], p_handlers text[],
    p_job_ids uuid[], p_tags text[], p_any_tags text[], p_scheduled_since timestamptz, p_scheduled_before timestamptz, p_due_since timestamptz,
    p_due_before timestamptz, p_finished_since timestamptz, p_finished_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, state text, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz, worker_id uuid, fence bigint, reason text,
    detail jsonb, marks jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
    set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    if not exists (select from duly.jobs where jobs.job_id = p_job_id and jobs.tenant = p_tenant) then
        return query
        select * from duly.page_runs_v1(p_tenant, least(p_before, p_behind), greatest(p_from, p_job_id), p_boxes, p_states, p_queues, p_handlers,
                                        p_job_ids, p_tags, p_any_tags, p_scheduled_since, p_scheduled_before, p_due_since, p_due_before,
                                        p_finished_since, p_finished_before, p_limit, p_looks);
        return;
    end if;
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.state, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.started_at, page.finished_at, page.worker_id, page.fence, page.reason, page.detail,
           duly.marks_of(page.marks), jobs.name
      from (select * from (
                select walk.*, row_number() over () as number,
                       walk.tenant = p_tenant
                       and (p_states is null or walk.state = any (p_states)) and (p_queues is null or walk.queue = any (p_queues))
                       and (p_handlers is null or walk.handler = any (p_handlers)) and (p_job_ids is null or walk.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(walk.marks->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(walk.marks->'tags' ?| p_any_tags, false))
                       and (p_scheduled_since is null or walk.scheduled_at >= p_scheduled_since)
                       and (p_scheduled_before is null or walk.scheduled_at < p_scheduled_before)
                       and (p_due_since is null or walk.due_at >= p_due_since) and (p_due_before is null or walk.due_at < p_due_before)
                       and (p_finished_since is null or coalesce(walk.finished_at >= p_finished_since, false))
                       and (p_finished_before is null or coalesce(walk.finished_at < p_finished_before, false)) as fits
                  from (select * from (
                                   (select * from duly.listed_timers where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'timers' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_blocked where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'blocked' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_ready where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'ready' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_leased where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'leased' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_dead where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'dead' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_succeeded where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'succeeded' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)
                         union all (select * from duly.listed_ended where (job_id, run_id) < (p_job_id, p_before) and (job_id, run_id) >= (p_job_id, p_from) and run_id <> job_id
                             and 'ended' = any (p_boxes) order by job_id desc, run_id desc limit p_looks)) as boxes
                         order by job_id desc, run_id desc limit p_looks) as walk) as looked
             where looked.fits or looked.number = p_looks limit p_limit) as page
      left join duly.jobs on jobs.job_id = page.job_id and page.job_id <> page.run_id;
end $$;

-- Dead letters, the last buried first.
create function duly.page_dead_v1(
    p_tenant integer, p_before_at timestamptz, p_before uuid, p_since timestamptz, p_queues text[], p_handlers text[], p_reasons text[],
    p_beginning text, p_job_ids uuid[], p_tags text[], p_any_tags text[], p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, buried_at timestamptz, reason text, replays integer, marks jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
    set jit = off as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.buried_at, page.reason, page.replays, duly.marks_of(page.options), jobs.name
      from (select * from (
                select walk.*, row_number() over () as number,
                       (p_queues is null or walk.queue = any (p_queues)) and (p_handlers is null or walk.handler = any (p_handlers))
                       and (p_reasons is null or walk.reason = any (p_reasons)) and (p_beginning is null or starts_with(walk.reason, p_beginning))
                       and (p_job_ids is null or walk.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(walk.options->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(walk.options->'tags' ?| p_any_tags, false)) as fits
                  from (select * from duly.dead
                         where (tenant, buried_at, run_id) < (p_tenant, p_before_at, p_before) and (tenant, buried_at) >= (p_tenant, p_since)
                         order by tenant desc, buried_at desc, run_id desc limit p_looks) as walk) as looked
             where looked.fits or looked.number = p_looks limit p_limit) as page
      left join duly.jobs on jobs.job_id = page.job_id and page.job_id <> page.run_id;
end $$;

------------------------------------------------------------------------------------------------------------------ dead

-- Give dead runs another payload, for their replay. It travels with the run, whatever its size.
create function duly.edit_dead_v1(p_tenant integer, p_run_ids uuid[], p_payload jsonb) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    if octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    return query
    with taken as (delete from duly.dead where dead.run_id = any (p_run_ids) and (dead.tenant = p_tenant) is true returning *)
    insert into duly.dead (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                           suspect, payload_stored, queue, handler, payload, options, buried_at, reason, replays)
    select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
           suspect, false, queue, handler, p_payload, options, buried_at, reason, replays
      from taken
    returning dead.run_id;
end $$;
