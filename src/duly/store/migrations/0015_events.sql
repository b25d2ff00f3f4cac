-- Events from outside that make runs, and when duties were last done. docs/decisions/0020-events-in-and-out.md says why.

-- Each event that was taken, by what names it: its source and its id. It does not move, so one that comes again has something to
-- collide with.
create table duly.events (
    tenant       integer     not null,
    digest       bytea       not null check (octet_length(digest) = 32),    -- of source and id, which may be long
    runs         uuid[]      not null,
    received_at  timestamptz not null,
    primary key (tenant, digest)
) with (fillfactor = 50);
create index events_by_time on duly.events (received_at);

-- A job that waits for events has its match where others have their trigger. Its next fire rests at infinity: it is the job's
-- mutex like any other, and is never due.
create index jobs_by_event on duly.jobs (tenant, (schedule->'on_event'->>'type'), job_id) where schedule ? 'on_event' and state = 'active';

-- Take an event: one run of each job that waits for it, and never again under the same source and id. A job that is being changed
-- is waited for, and then judged by what it has become; whoever changes a job changes its row.
create function duly.take_event_v1(p_tenant integer, p_source text, p_id text, p_type text, p_event jsonb, p_marks jsonb)
returns table (is_duplicate boolean, runs uuid[], queues text[])
language plpgsql set lock_timeout = '2s' set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off set jit = off as $$
#variable_conflict use_column
declare
    c_jobs_max constant integer := 1000;
    v_now    timestamptz := duly.clock_now();
    v_digest bytea := sha256(convert_to(p_source, 'UTF8') || '\x00' || convert_to(p_id, 'UTF8'));
    v_jobs   duly.jobs[];
    v_gated  jsonb[];
    v_large  duly.jobs;
begin
    insert into duly.events (tenant, digest, runs, received_at) values (p_tenant, v_digest, '{}', v_now) on conflict do nothing;
    if not found then
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
    with made as (
        select duly.occurrence_id(job.job_id, v_now, 'event:' || encode(v_digest, 'hex')) as run_id, job.*,
               coalesce(job.payload, payloads.body, '{}') || jsonb_build_object('event', p_event) as carried,
               case when p_marks is null then job.options     -- Options that say nothing are still the job's own.
                    else case when job.options = '{}' then '{"retry": {}}' else coalesce(job.options, '{}') end || p_marks end as marked
          from unnest(v_jobs) as job left join duly.payloads on payloads.job_id = job.job_id and payloads.generation = job.generation),
    waiting as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                  queue, handler, payload, options, gate, blocked_at)
        select run_id, job_id, v_now, v_now, generation, tenant, 0, priority, 0, false, false, queue, handler, carried, marked,
               marked->'gate'->>0, v_now
          from made where duly.must_enter(marked)),
    started as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                                queue, handler, payload, options, rank)
        select run_id, job_id, v_now, v_now, generation, tenant, 0, priority, 0, false, false, queue, handler, carried, marked,
               duly.rank(v_now, priority)
          from made where not duly.must_enter(marked)),
    kept as (
        update duly.events set runs = array(select run_id from made order by job_id)
         where events.tenant = p_tenant and events.digest = v_digest and exists (select from made))
    select false, array(select run_id from made order by job_id), array(select distinct queue from made);
    v_gated := array(select job.options from unnest(v_jobs) as job where duly.must_enter(job.options) order by job.job_id);
    if cardinality(v_gated) > 0 then
        perform duly.release_v1(array_fill(p_tenant, array[cardinality(v_gated)]), v_gated, 0);
    end if;
end $$;

create function duly.api_take_event_v1(p_tenant integer, p_source text, p_id text, p_type text, p_event jsonb, p_marks jsonb,
                                       out is_duplicate boolean, out runs uuid[], out queues text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    select taken.is_duplicate, taken.runs, taken.queues into is_duplicate, runs, queues
      from duly.take_event_v1(p_tenant, p_source, p_id, p_type, p_event, p_marks) as taken;
    perform duly.admit_v1(p_tenant, 0, case when is_duplicate then 0 else cardinality(runs) end);
end $$;

-- When what must be done again and again was last done, by whomever: read by those who cannot see into the process that does it.
create table duly.duties (
    name         text        primary key collate "C",
    done_at      timestamptz not null
) with (fillfactor = 50);

revoke execute on function duly.take_event_v1, duly.api_take_event_v1 from public;
grant execute on function duly.api_take_event_v1 to duly_api;
