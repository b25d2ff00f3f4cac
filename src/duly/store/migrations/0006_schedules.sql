-- Schedules of every kind: cohorts, jitter, misfires, overlap, the backfill lane, and what people do to a schedule.
-- docs/decisions/0010-schedules.md says why. Moves with an unchanged signature are replaced in place: an older process then
-- keeps the new promises too.

alter table duly.jobs
    alter column every_seconds drop not null,
    alter column anchor_at drop not null,
    add column schedule     jsonb,                      -- as compiled: triggers in canonical form, H resolved; null: every_seconds says all
    add column cohort       bigint,                     -- jobs of one cohort fire at the same moments, for the same reasons
    add column owner        text    not null default 'api' check (owner in ('api', 'code')),
    add column source       text,                       -- of an owner 'code': the app that declares it
    add column definition   bytea,                      -- hash of what was asked for, to see whether an upsert changes anything
    add column failures     integer not null default 0, -- runs in a row that failed for good, counted where pause_on_failure asks
    add column paused_at    timestamptz,
    add column pause_reason text;
create index jobs_by_cohort on duly.jobs (cohort) where cohort is not null;
create index jobs_by_source on duly.jobs (tenant, source) where source is not null;

-- A next fire carries all that staging it needs. Null is the common case, and costs nothing.
alter table duly.timers
    drop constraint timers_check1,
    add column cohort        bigint,
    add column last_run_id   uuid,                      -- the last run made for this job: while it is active, the next one overlaps
    add column overlap       text,                      -- null: skip
    add column jitter        text,                      -- null: none; else one delay per job, or per occurrence
    add column runs_left     integer check (runs_left > 0),
    add column grace_seconds integer,                   -- null: 60
    add constraint timers_next_fires check ((run_id is null) = (every_seconds is not null or cohort is not null)),
    add constraint timers_overlap check (overlap in ('allow', 'gate', 'cancel_running', 'after_end')),
    add constraint timers_jitter check (jitter in ('job', 'occurrence'));

create table duly.calendars (
    tenant       integer     not null,
    name         text        not null,
    definition   jsonb       not null,
    updated_at   timestamptz not null,
    primary key (tenant, name)
);

-- The backfill lane: stretches of occurrences that are made again, or were missed and are made up for, at a rate.
create table duly.backfills (
    backfill_id  uuid        primary key,
    job_id       uuid        not null,
    tenant       integer     not null,
    shard        smallint    not null,
    origin       text        not null,                  -- 'schedule' for missed occurrences, else the backfill's own id
    state        text        not null default 'active' check (state in ('active', 'done', 'cancelled')),
    from_at      timestamptz not null,
    to_at        timestamptz not null,
    cursor_at    timestamptz not null,                  -- the next occurrence to be made is the first at or after this
    rate         double precision not null check (rate > 0),
    total        integer     not null,
    made         integer     not null default 0,
    due_at       timestamptz not null,                  -- nothing is made before this
    previous_scheduled_at timestamptz,                  -- the occurrence before the next one to be made
    asked_at     timestamptz not null,
    schedule     jsonb,                                 -- the rule as it was when this was asked for: an edit makes no other past
    calendars    jsonb,                                 -- and the calendars it names, as they were
    every_seconds integer,
    anchor_at    timestamptz,
    check (to_at > from_at)
) with (fillfactor = 50);
create index backfills_active on duly.backfills (shard, due_at) where state = 'active';
create index backfills_of_job on duly.backfills (job_id, asked_at, backfill_id) where state = 'active';
create index backfills_by_job on duly.backfills (job_id, asked_at);

-- The calendars that a schedule names, by name.
create function duly.calendars_of(p_tenant integer, p_schedule jsonb) returns jsonb language sql stable as $$
    select jsonb_object_agg(calendars.name, calendars.definition) from jsonb_array_elements(p_schedule->'calendars') as use
      join duly.calendars on calendars.tenant = p_tenant and calendars.name = use->>'name'
$$;

-- Runs of the lane stand a hundred priorities below what is on time, so they run when nothing younger than 50 minutes waits.
create function duly.lane_priority(p_priority smallint) returns smallint language sql immutable parallel safe as $$
    select (100 + p_priority)::smallint
$$;

-- When a job was made: the first 48 bits of its id, as of any run.
create function duly.made_at(p_job_id uuid) returns timestamptz language sql stable parallel safe as $$
    select to_timestamp(('x' || translate(left(p_job_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0)
$$;

-- A delay from 0 up to, and without, the window; the same number as domain/triggers/jitter.py gives.
create function duly.jitter_delay(p_jitter text, p_job_id uuid, p_scheduled_at timestamptz, p_window integer) returns interval
language sql stable parallel safe as $$
    select case when p_jitter is null or p_window <= 0 then interval '0' else make_interval(secs => (
        select floor((('x' || encode(substr(hash, 1, 4), 'hex'))::bit(32)::bigint::numeric * 4294967296
                      + ('x' || encode(substr(hash, 5, 4), 'hex'))::bit(32)::bigint) * p_window / 18446744073709551616)
          from sha256(convert_to(p_job_id::text || case when p_jitter = 'occurrence'
                      then to_char(p_scheduled_at at time zone 'UTC', '"|"YYYY-MM-DD"T"HH24:MI:SS"Z"') else '' end, 'UTF8')) as hash)::double precision) end
$$;

-- Whether something follows from the end of a run besides its record: it leaves a gate, arms the next fire, or is counted.
create function duly.has_consequence(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ?| array['gate', 'rearm', 'watch'], false)
$$;

-- A gated run that comes back for its retry holds its place already, where the gate is the overlap of a job with itself.
create function duly.is_held(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ? 'held', false)
$$;

create function duly.must_enter(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(p_options ? 'gate' and not p_options ? 'held', false)
$$;

---------------------------------------------------------------------------------------------- the next fire as a mutex

-- Take a schedule's next fire out of timers. It is the job's mutex: whoever changes a job holds it until the end of the
-- transaction, and puts it back. While somebody else has it, it is waited for; nothing comes when the schedule has ended.
create function duly.take_next_fire_v1(p_job_id uuid) returns duly.timers
language plpgsql set enable_seqscan = off set jit = off as $$
declare
    v_timer duly.timers;
begin
    for i in 1 .. 1000 loop
        delete from duly.timers where timers.job_id = p_job_id and timers.run_id is null returning * into v_timer;
        exit when found;
        perform from duly.jobs where jobs.job_id = p_job_id and jobs.state in ('active', 'paused');
        exit when not found;
    end loop;
    return v_timer;
end $$;

create function duly.put_next_fire_v1(p_timer duly.timers) returns void language sql as $$
    insert into duly.timers select (p_timer).*
$$;

-- Whether a run is under way: waiting, in a worker's hands, or between two attempts.
create function duly.is_active(p_run_id uuid) returns boolean
language plpgsql stable set enable_seqscan = off set jit = off as $$
begin
    return exists (select from duly.ready where ready.run_id = p_run_id) or exists (select from duly.leased where leased.run_id = p_run_id)
        or exists (select from duly.blocked where blocked.run_id = p_run_id) or exists (select from duly.timers where timers.run_id = p_run_id);
end $$;

-- Whether the end of a run under way will arm the next fire of its schedule.
create function duly.will_rearm(p_run_id uuid) returns boolean
language plpgsql stable set enable_seqscan = off set jit = off as $$
begin
    return exists (select from duly.ready where ready.run_id = p_run_id and ready.options ? 'rearm')
        or exists (select from duly.leased where leased.run_id = p_run_id and leased.options ? 'rearm')
        or exists (select from duly.blocked where blocked.run_id = p_run_id and blocked.options ? 'rearm')
        or exists (select from duly.timers where timers.run_id = p_run_id and timers.options ? 'rearm');
end $$;

-- The runs of the given moments that are staged and can be taken back: not due, never tried, in nobody's hands. They are locked,
-- so that no claim takes them. A run at a gate is none of them: it is staged when it is due.
create function duly.lock_staged_v1(p_job_id uuid, p_moments timestamptz[], p_now timestamptz) returns setof duly.ready
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    select ready.* from duly.ready
     where run_id = any (array(select duly.occurrence_id(p_job_id, moment, 'schedule') from unnest(p_moments) as moment))
       and attempt = 0 and due_at > p_now and not duly.is_gated(options)
     order by scheduled_at for update;
end $$;

-- Take back what a schedule has staged, of the given moments those after the last one that cannot be taken back: it is in a
-- worker's hands, is due, or was left out. The next fire then stands as if they had not been staged.
create function duly.withdraw_v1(p_timer duly.timers, p_moments timestamptz[], p_now timestamptz) returns duly.timers
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_staged duly.ready[] := array(select staged from duly.lock_staged_v1(p_timer.job_id, p_moments, p_now) as staged);
    v_floor  timestamptz := (select max(moment) from unnest(p_moments) as moment where moment not in (select scheduled_at from unnest(v_staged)));
    v_first  duly.ready;
    v_count  integer;
begin
    select * into v_first from unnest(v_staged) where scheduled_at > coalesce(v_floor, '-infinity') order by scheduled_at limit 1;
    if not found then
        return p_timer;
    end if;
    delete from duly.ready where run_id in (select run_id from unnest(v_staged) where scheduled_at >= v_first.scheduled_at);
    get diagnostics v_count = row_count;
    p_timer.scheduled_at := v_first.scheduled_at;
    p_timer.due_at := v_first.due_at;
    p_timer.previous_scheduled_at := v_first.previous_scheduled_at;
    p_timer.runs_left := p_timer.runs_left + v_count;
    return p_timer;
end $$;

-- Record a stretch of occurrences that do not run, as {reason, first, last, count}.
create function duly.record_skips_v1(p_job duly.jobs, p_skips jsonb, p_now timestamptz) returns void language sql as $$
    insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
    select duly.occurrence_id((p_job).job_id, first, 'schedule'), (p_job).job_id, first, first, p_now, (p_job).tenant, 0, 'skipped', 'skipped',
           (p_job).queue, (p_job).handler, reason, jsonb_build_object('first', first, 'last', last, 'count', count)
      from jsonb_to_recordset(coalesce(p_skips, '[]')) as skip(reason text, first timestamptz, last timestamptz, count bigint)
$$;

--------------------------------------------------------------------------------------------------------- leaving a run

-- Release, as before; and besides: where a run may wait only in limited company, those beyond the limit are dropped, with
-- a record: the newest of a queue, the older of a buffer of one.
create or replace function duly.release_v1(p_tenants integer[], p_options jsonb[], p_left integer) returns integer
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_gate     record;
    v_free     integer;
    v_moved    integer;
    v_released integer := 0;
begin
    for v_gate in select u.tenant, u.options->'gate'->>0 as gate, max((u.options->'gate'->>1)::integer) as places, count(*) * p_left as left_gate,
                         max(u.options->'overlap'->>0) as policy, max((u.options->'overlap'->>1)::integer) as waiting_max
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
        if v_gate.waiting_max is not null then
            with dropped as (
                delete from duly.blocked where run_id = any (array(
                    select run_id from duly.blocked where blocked.tenant = v_gate.tenant and blocked.gate = v_gate.gate
                     order by case when v_gate.policy = 'queue' then due_at end, case when v_gate.policy <> 'queue' then due_at end desc, run_id
                    offset v_gate.waiting_max for update skip locked))
                returning *)
            insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
            select run_id, job_id, scheduled_at, due_at, duly.clock_now(), tenant, attempt, 'skipped', 'skipped', queue, handler, 'skipped_overlap'
              from dropped;
        end if;
        v_released := v_released + v_moved;
    end loop;
    return v_released;
end $$;

-- Arm the next fire of a schedule that counts from the end of its last run. A paused one stays where it is.
create function duly.rearm_v1(p_job_id uuid, p_ended_at timestamptz) returns void
language plpgsql as $$
declare
    v_timer duly.timers := duly.take_next_fire_v1(p_job_id);
    v_job   duly.jobs;
begin
    if v_timer.job_id is null or v_timer.overlap is distinct from 'after_end' then
        perform duly.put_next_fire_v1(v_timer) where v_timer.job_id is not null;
        return;
    end if;
    select * into strict v_job from duly.jobs where jobs.job_id = p_job_id;
    v_timer.scheduled_at := p_ended_at + make_interval(secs => v_timer.every_seconds);
    if v_timer.scheduled_at >= (v_job.schedule->>'end')::timestamptz then
        update duly.jobs set state = 'completed', updated_at = p_ended_at where jobs.job_id = p_job_id;
        return;
    elsif v_job.state = 'active' then
        v_timer.due_at := v_timer.scheduled_at;
    end if;
    perform duly.put_next_fire_v1(v_timer);
end $$;

-- Count a run that failed for good, and pause its schedule after so many in a row.
create function duly.count_failure_v1(p_job_id uuid, p_failures_max integer, p_now timestamptz) returns void
language plpgsql as $$
declare
    v_timer    duly.timers := duly.take_next_fire_v1(p_job_id);
    v_failures integer;
begin
    if v_timer.job_id is null then
        return;
    end if;
    update duly.jobs set failures = jobs.failures + 1 where jobs.job_id = p_job_id returning jobs.failures into v_failures;
    if v_failures >= p_failures_max then
        update duly.jobs set state = 'paused', paused_at = p_now, updated_at = p_now, pause_reason = format('%s runs in a row failed', v_failures)
         where jobs.job_id = p_job_id and jobs.state = 'active';
        v_timer.due_at := 'infinity';
    end if;
    perform duly.put_next_fire_v1(v_timer);
end $$;

-- What follows from the end of runs, besides their record. Next fires are taken before gates, as everywhere. Without p_became
-- they were cancelled.
create function duly.leave_v1(p_job_ids uuid[], p_tenants integer[], p_options jsonb[], p_became text[], p_now timestamptz) returns void
language plpgsql as $$
declare
    v_run record;
begin
    for v_run in select u.job_id, u.options, u.became from unnest(p_job_ids, p_options, p_became) as u(job_id, options, became)
                  where u.options ?| array['rearm', 'watch'] and u.became is distinct from 'retrying' order by u.job_id loop
        if v_run.options ? 'rearm' then
            perform duly.rearm_v1(v_run.job_id, p_now);
        end if;
        if v_run.options ? 'watch' and v_run.became = 'dead' then
            perform duly.count_failure_v1(v_run.job_id, (v_run.options->>'watch')::integer, p_now);
        elsif v_run.options ? 'watch' and v_run.became = 'succeeded' then
            update duly.jobs set failures = 0 where jobs.job_id = v_run.job_id and jobs.failures > 0;
        end if;
    end loop;
    perform duly.release_v1(array_agg(u.tenant), array_agg(u.options), 1)
       from unnest(p_tenants, p_options) as u(tenant, options) where duly.is_gated(u.options) having count(*) > 0;
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
                                   queue, handler, worker_id, reason, result, detail)
        select run_id, job_id, scheduled_at, was_due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
               queue, handler, worker_id, reason, result, detail
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
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt - 1, 'cancelled', 'cancelled', queue, handler, 'cancelled'
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
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'cancelled', 'cancelled', queue, handler, p_reason from gone),
    leaving as (                                       -- One that had not entered its gate leaves nothing behind there.
        select job_id, tenant, case when inside then options else options - 'gate' end as options from gone where duly.has_consequence(options))
    select (select array_agg(run_id) from gone), array_agg(job_id), array_agg(tenant), array_agg(options)
      into v_gone, v_job_ids, v_tenants, v_options from leaving;
    perform duly.leave_v1(v_job_ids, v_tenants, v_options, null, v_now) where v_job_ids is not null;
    return query select unnest(v_gone);
end $$;

----------------------------------------------------------------------------------------------------------------- stage

-- What the runs of a schedule carry in their options, beside what was asked for them.
create function duly.with_overlap(p_options jsonb, p_job_id uuid, p_overlap text, p_limit integer, p_watch integer) returns jsonb
language sql immutable as $$
    select nullif(coalesce(p_options, '{}')
        || case when p_overlap in ('queue', 'buffer_one', 'cancel_running')
                then jsonb_build_object('gate', jsonb_build_array('overlap/' || p_job_id, 1),
                                        'overlap', jsonb_build_array(p_overlap, case when p_overlap = 'queue' then p_limit else 1 end))
                when p_overlap = 'allow' and p_limit is not null
                then jsonb_build_object('gate', jsonb_build_array('overlap/' || p_job_id, p_limit), 'overlap', jsonb_build_array('queue', 0))
                when p_overlap = 'after_end' then '{"rearm": true}' else '{}' end
        || case when p_watch is not null then jsonb_build_object('watch', p_watch) else '{}' end, '{}')
$$;

-- How a next fire judges an overlap: by the last run alone, at a gate, or not at all.
create function duly.overlap_mark(p_overlap text, p_limit integer) returns text language sql immutable as $$
    select case when p_overlap = 'skip' then null when p_overlap in ('queue', 'buffer_one') then 'gate'
                when p_overlap = 'allow' and p_limit is not null then 'gate' else p_overlap end
$$;

-- Submit a schedule of any kind: the definition and its next fire. The moments are the caller's, who compiled the trigger; an
-- interval without an anchor starts at the next whole second of the database. p_hash is of what was asked for, so that
-- the same request under the same key is known again.
create function duly.submit_schedule_v2(
    p_tenant integer, p_key text, p_hash bytea, p_job_id uuid, p_name text, p_owner text, p_source text, p_handler text, p_payload jsonb,
    p_queue text, p_priority smallint, p_options jsonb, p_schedule jsonb, p_cohort bigint, p_every integer, p_anchor timestamptz,
    p_first_at timestamptz, p_window integer, p_jitter text, p_overlap text, p_overlap_limit integer, p_max_runs integer, p_grace integer,
    p_watch integer)
returns table (job_id uuid, scheduled_at timestamptz, replayed boolean)
language plpgsql set lock_timeout = '2s' set timezone = 'UTC' set intervalstyle = 'postgres' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_key     duly.keys;
    v_anchor  timestamptz := coalesce(p_anchor, to_timestamp(ceil(date_part('epoch', v_now))));
    v_first   timestamptz := coalesce(p_first_at, v_anchor);
    v_stored  boolean := pg_column_size(p_payload) > 1024;
    v_job_id  uuid := coalesce(p_job_id, duly.run_id(v_now, duly.batch_name(p_tenant, p_key, v_now) || '0'));
    v_options jsonb := duly.with_overlap(p_options, v_job_id, p_overlap, p_overlap_limit, p_watch);
begin
    if p_cohort is null and p_every not between 1 and 2147483647 then
        raise exception using errcode = 'DU006', message = format('every %s seconds is outside 1 second to 68 years', p_every);
    elsif p_priority not between 0 and 9 then
        raise exception using errcode = 'DU005', message = format('priority %s is outside 0 (first) to 9 (last)', p_priority);
    elsif p_options is not null and not duly.are_options(p_options) then
        raise exception using errcode = 'DU005', message = format('options %s are none we know', p_options);
    elsif duly.is_gated(p_options) and v_options->'overlap' is not null then
        raise exception using errcode = 'DU005', message = format('overlap %s beside a concurrency key is not possible; use skip or allow', p_overlap);
    elsif octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    if p_cohort is null and p_overlap <> 'after_end' and v_first < v_now then      -- Occurrences before the job was created never exist.
        v_first := v_first + make_interval(secs => ceil(date_part('epoch', v_now - v_first) / p_every) * p_every);
    end if;
    insert into duly.keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (p_tenant, p_key, v_job_id, p_hash, v_first, v_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where keys.expires_at <= v_now;
    if not found then
        select * into strict v_key from duly.keys where tenant = p_tenant and key = p_key;
        if v_key.body_hash <> p_hash then
            raise exception using errcode = 'DU001', message = format('key %s was used for another job', quote_literal(p_key)), detail = v_key.job_id::text;
        end if;
        return query select v_key.job_id, v_key.scheduled_at, true;
        return;
    end if;
    insert into duly.jobs (job_id, tenant, name, owner, source, definition, queue, handler, priority, every_seconds, anchor_at, schedule, cohort,
                           payload, payload_stored, options, created_at, updated_at)
    values (v_job_id, p_tenant, p_name, p_owner, p_source, p_hash, p_queue, p_handler, p_priority, p_every,
            case when p_every is not null then v_anchor end, p_schedule, p_cohort,
            case when not v_stored then p_payload end, v_stored, p_options, v_now, v_now);
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (v_job_id, 1, p_payload, v_now);
    end if;
    insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, priority, payload_stored, queue, handler, payload, options, shard,
                             every_seconds, cohort, overlap, jitter, runs_left, grace_seconds)
    values (v_job_id, v_first, v_first + duly.jitter_delay(p_jitter, v_job_id, v_first, p_window), 1, p_tenant, p_priority, v_stored, p_queue, p_handler,
            case when not v_stored then p_payload end, v_options, duly.shard_of(v_job_id), p_every, p_cohort,
            duly.overlap_mark(p_overlap, p_overlap_limit), p_jitter, p_max_runs, p_grace);
    return query select v_job_id, v_first, false;
end $$;

-- A number for (cohort, moment, late), by which the answer to a fire is found. domain/triggers/planning.py gives the same.
create function duly.fire_key(p_cohort bigint, p_scheduled_at timestamptz, p_late boolean) returns bigint
language sql stable parallel safe as $$
    select p_cohort + 2 * (date_part('epoch', p_scheduled_at) * 1000000)::bigint + p_late::integer
$$;

create function duly.is_late(p_due_at timestamptz, p_grace integer, p_read_at timestamptz) returns boolean language sql stable parallel safe as $$
    select p_due_at < p_read_at - make_interval(secs => coalesce(p_grace, 60))
$$;

-- The fires of cohorts that fall due within the horizon, each (cohort, moment, on time or late) once. Nothing is locked: what
-- has changed by the time it is staged stays where it is.
create function duly.due_cohorts_v1(p_shards smallint[], p_horizon interval, p_per_shard integer)
returns table (cohort bigint, scheduled_at timestamptz, late boolean, read_at timestamptz)
language plpgsql set enable_seqscan = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    if not exists (select from duly.jobs where jobs.cohort is not null) then
        return;                                        -- Plain intervals only: nothing that is due has to be looked at for this.
    end if;
    return query
    select distinct due.cohort, due.scheduled_at, duly.is_late(due.due_at, due.grace_seconds, v_now), v_now
      from unnest(p_shards) as held(shard) cross join lateral (
           select timers.cohort, timers.scheduled_at, timers.due_at, timers.grace_seconds from duly.timers
            where timers.shard = held.shard and timers.due_at <= v_now + p_horizon and timers.cohort is not null
            order by due_at limit p_per_shard) as due;
end $$;

-- Stage, for schedules of every kind. As before: what falls due within the horizon leaves timers, and the next fires are armed
-- in the same statement. Besides:
-- A fire of a cohort is taken only if its answer is among the given ones, found by its key in p_keys, which ascend. The answer:
-- the moment to run or none, how many were missed, the next moment or none and the room for jitter there, what to record as
-- skipped, and what goes to the backfill lane. Lateness is judged at p_read_at, when the fires were asked for.
-- A fire under `skip` stands back while the last run of its job is active, and is judged when it is due.
create function duly.stage_v2(
    p_holder uuid, p_shards smallint[], p_epochs bigint[], p_horizon interval, p_per_shard integer, p_read_at timestamptz,
    p_keys bigint[], p_cohorts bigint[], p_run_at timestamptz[], p_missed integer[],
    p_next_at timestamptz[], p_windows integer[], p_skips jsonb[], p_catch_up jsonb[])
returns table (staged integer, next_due_at timestamptz, read_at timestamptz)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_held    smallint[];
    v_staged  integer;
    v_tenants integer[];
    v_options jsonb[];
    v_stopped uuid[];
begin
    v_held := array(select shards.shard from unnest(p_shards, p_epochs) as held(shard, epoch)
                      join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder
                     where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now));
    with due as (
        delete from duly.timers where ctid = any (array(
            select t.ctid from (select array(select unnest(p_keys)) as list offset 0) as keys cross join unnest(v_held) as held(shard) cross join lateral (
                select ctid from duly.timers where timers.shard = held.shard and timers.due_at <= v_now + p_horizon
                   and (timers.due_at <= v_now or (
                           not duly.must_enter(timers.options)                            -- A place is taken when due, not ahead.
                           and (timers.last_run_id is null or timers.overlap is not null
                                or not (exists (select from duly.ready where ready.run_id = timers.last_run_id)
                                        or exists (select from duly.leased where leased.run_id = timers.last_run_id)
                                        or exists (select from duly.blocked where blocked.run_id = timers.last_run_id)
                                        or exists (select from duly.timers as retry where retry.run_id = timers.last_run_id)))))
                   and (timers.cohort is null
                        or (p_keys[width_bucket(duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at)), keys.list)]
                                = duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at))
                            and p_cohorts[width_bucket(duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at)), keys.list)]
                                = timers.cohort))
                 order by due_at limit p_per_shard for update skip locked) as t))
        returning *),
    answered as (
        select due.*, case when cohort is not null
                           then width_bucket(duly.fire_key(cohort, scheduled_at, duly.is_late(due_at, grace_seconds, p_read_at)), keys.list) end as answer,
               overlap is null and last_run_id is not null and due_at <= v_now and (
                   exists (select from duly.ready where ready.run_id = due.last_run_id)
                   or exists (select from duly.leased where leased.run_id = due.last_run_id)
                   or exists (select from duly.blocked where blocked.run_id = due.last_run_id)
                   or exists (select from duly.timers as retry where retry.run_id = due.last_run_id)) as overlapping
          from (select array(select unnest(p_keys)) as list offset 0) as keys cross join due where due.run_id is null),
    fires as (
        select fire.*, moment.*, moment.run_at is not null and not fire.overlapping as runs,
               duly.occurrence_id(fire.job_id, coalesce(moment.run_at, fire.scheduled_at), 'schedule') as new_run_id
          from answered as fire cross join lateral (
               select case when fire.cohort is null then fire.scheduled_at + make_interval(secs => late.count * fire.every_seconds::double precision)
                           else p_run_at[fire.answer] end as run_at,
                      case when fire.cohort is not null then p_missed[fire.answer] else late.count::integer + late.is_late::integer end as missed,
                      case when fire.overlap = 'after_end' then 'infinity' when fire.cohort is null
                           then fire.scheduled_at + make_interval(secs => (late.count + 1) * fire.every_seconds::double precision)
                           else p_next_at[fire.answer] end as next_at
                 from (select is_late, case when is_late then floor(date_part('epoch', v_now - fire.scheduled_at) / fire.every_seconds) else 0 end as count
                         from (select fire.cohort is null and fire.overlap is distinct from 'after_end'
                                      and duly.is_late(fire.due_at, fire.grace_seconds, v_now) as is_late) as judged offset 0) as late
               offset 0) as moment),                   -- Computed once for each row, and not once for each use.
    next_fires as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard, every_seconds, cohort, last_run_id, overlap, jitter, runs_left, grace_seconds)
        select job_id, case when next_at = 'infinity' then scheduled_at else next_at end,
               case when jitter is null then next_at else next_at + duly.jitter_delay(jitter, job_id, next_at, p_windows[answer]) end,
               case when runs then run_at when p_catch_up[answer] is not null then (p_catch_up[answer]->>'last_at')::timestamptz
                    else previous_scheduled_at end, generation, tenant, priority, payload_stored,
               queue, handler, payload, options, shard, every_seconds, cohort, case when runs then new_run_id else last_run_id end, overlap, jitter,
               runs_left - runs::integer, grace_seconds
          from fires where next_at is not null and (runs_left is null or runs_left > runs::integer)),
    completed as (
        update duly.jobs set state = 'completed', updated_at = v_now
          from fires where jobs.job_id = fires.job_id and (fires.next_at is null or fires.runs_left = fires.runs::integer)),
    skipped as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
        select duly.occurrence_id(job_id, scheduled_at, 'schedule'), job_id, scheduled_at, scheduled_at, v_now, tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, 'skipped_misfire',
               jsonb_build_object('first', scheduled_at, 'last', run_at - make_interval(secs => every_seconds), 'count', missed - 1)
          from fires where cohort is null and missed > 1
        union all
        select duly.occurrence_id(job_id, skip.first, 'schedule'), job_id, skip.first, skip.first, v_now, tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, skip.reason, jsonb_build_object('first', skip.first, 'last', skip.last, 'count', skip.count)
          from fires cross join lateral jsonb_to_recordset(p_skips[answer]) as skip(reason text, first timestamptz, last timestamptz, count bigint)
         where p_skips[answer] is not null and (skip.reason <> 'skipped_calendar' or skip.last >= duly.made_at(job_id))
        union all
        select new_run_id, job_id, run_at, due_at, v_now, tenant, 0, 'skipped'::duly.outcome, 'skipped'::duly.state, queue, handler, 'skipped_overlap', null
          from fires where overlapping and run_at is not null),
    catching_up as (
        insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, from_at, to_at, cursor_at, rate, total, due_at,
                                    previous_scheduled_at, asked_at, schedule, calendars)
        select duly.occurrence_id(fires.job_id, catch_up.from_at, 'catch-up'), fires.job_id, fires.tenant, shard, 'schedule', catch_up.from_at,
               catch_up.to_at, catch_up.from_at, catch_up.rate, catch_up.total, v_now, previous_scheduled_at, v_now, jobs.schedule,
               duly.calendars_of(fires.tenant, jobs.schedule)
          from fires join duly.jobs on jobs.job_id = fires.job_id
         cross join lateral jsonb_to_record(p_catch_up[answer])
                                     as catch_up(from_at timestamptz, to_at timestamptz, rate double precision, total integer)
         where p_catch_up[answer] is not null
        on conflict do nothing),
    staging as (
        select new_run_id as run_id, job_id, run_at as scheduled_at, case when missed > 0 then run_at else due_at end as due_at, previous_scheduled_at,
               generation, tenant, 0 as attempt, priority, 0::smallint as losses, false as suspect, payload_stored, queue, handler,
               payload, case when missed > 0 then coalesce(options, '{}') || jsonb_build_object('missed', missed) else options end as options
          from fires where runs
        union all
        select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
               payload_stored, queue, handler, payload, options
          from due where run_id is not null),
    staged as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        select staging.*, duly.rank(due_at, priority) from staging where not duly.must_enter(options)
        on conflict (run_id) do nothing
        returning run_id),
    at_gate as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select staging.*, options->'gate'->>0, v_now from staging where duly.must_enter(options)
        on conflict (run_id) do nothing
        returning run_id, tenant, options),
    losers as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        select run_id, job_id, scheduled_at, due_at, v_now, tenant, attempt, 'skipped', 'ready', queue, handler, 'skipped_duplicate'
          from staging where (select count(*) from staged) + (select count(*) from at_gate) < (select count(*) from staging)
           and run_id not in (select staged.run_id from staged union all select at_gate.run_id from at_gate))
    select (select count(*) from due), array_agg(tenant), array_agg(options),
           (select array_agg(last_run_id) from fires where runs and overlap = 'cancel_running' and last_run_id is not null)
      into v_staged, v_tenants, v_options, v_stopped from at_gate;
    perform duly.release_v1(v_tenants, v_options, 0) where v_tenants is not null;
    if v_stopped is not null then
        perform duly.cancel_v1(v_stopped, 'the next occurrence is due');
        perform duly.signal_v1(v_stopped, 'cancel');
    end if;
    return query
    select v_staged, (select min(t.due_at) from unnest(v_held) as held(shard) cross join lateral (
                          select due_at from duly.timers where timers.shard = held.shard and due_at < 'infinity' order by due_at limit 1) as t), v_now;
end $$;

-- An older scheduler leaves alone what it cannot answer for.
create or replace function duly.stage_v1(p_holder uuid, p_shards smallint[], p_epochs bigint[], p_horizon interval, p_per_shard integer, p_grace interval)
returns table (staged integer, next_due_at timestamptz, read_at timestamptz) language sql as $$
    select * from duly.stage_v2(p_holder, p_shards, p_epochs, p_horizon, p_per_shard, duly.clock_now(), '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')
$$;

----------------------------------------------------------------------------------------------- what people do to a schedule
-- Each takes the next fire first. What it rests on was read before, so it names the moment it saw: `again` means that the
-- schedule has moved on meanwhile, and the caller looks anew. p_moments are those that may be staged and not due.

-- Stop a schedule. What is staged is taken back, so that it fires after all if the schedule goes on before its moment.
create function duly.pause_v1(p_job_id uuid, p_generation integer, p_reason text, p_seen timestamptz, p_moments timestamptz[]) returns text
language plpgsql set lock_timeout = '2s' as $$
declare
    v_now   timestamptz := duly.clock_now();
    v_timer duly.timers := duly.take_next_fire_v1(p_job_id);
    v_state text;
begin
    if v_timer.job_id is null then
        return 'over';
    end if;
    select jobs.state into strict v_state from duly.jobs where jobs.job_id = p_job_id;
    if v_state = 'paused' or v_timer.scheduled_at <> p_seen or v_timer.generation <> p_generation then
        perform duly.put_next_fire_v1(v_timer);
        return case when v_state = 'paused' then 'already' else 'again' end;
    end if;
    v_timer := duly.withdraw_v1(v_timer, p_moments, v_now);
    update duly.jobs set state = 'paused', paused_at = v_now, updated_at = v_now, pause_reason = p_reason where jobs.job_id = p_job_id;
    v_timer.due_at := 'infinity';
    perform duly.put_next_fire_v1(v_timer);
    return 'paused';
end $$;

-- Let a schedule go on with the fire at p_next_at. If that is the one that was pending, however late it is, then it is a misfire
-- and its policy decides. Without a next moment nothing is left, and the schedule is over.
create function duly.resume_v1(
    p_job_id uuid, p_generation integer, p_seen timestamptz, p_next_at timestamptz, p_window integer, p_skips jsonb)
returns text
language plpgsql set lock_timeout = '2s' as $$
declare
    v_now   timestamptz := duly.clock_now();
    v_timer duly.timers := duly.take_next_fire_v1(p_job_id);
    v_job   duly.jobs;
begin
    if v_timer.job_id is null then
        return 'over';
    end if;
    select * into strict v_job from duly.jobs where jobs.job_id = p_job_id;
    if v_job.state <> 'paused' or v_timer.scheduled_at <> p_seen or v_timer.generation <> p_generation then
        perform duly.put_next_fire_v1(v_timer);
        return case when v_job.state = 'active' then 'already' else 'again' end;
    end if;
    update duly.jobs set state = case when p_next_at is null then 'completed' else 'active' end,
           paused_at = null, pause_reason = null, failures = 0, updated_at = v_now
     where jobs.job_id = p_job_id;
    perform duly.record_skips_v1(v_job, p_skips, v_now);
    if p_next_at is null then
        return 'completed';
    end if;
    v_timer.scheduled_at := p_next_at;
    v_timer.due_at := p_next_at + duly.jitter_delay(v_timer.jitter, p_job_id, p_next_at, p_window);
    if v_timer.overlap = 'after_end' and duly.will_rearm(v_timer.last_run_id) then
        v_timer.due_at := 'infinity';                  -- Its run is under way, and arms it when it ends.
    end if;
    perform duly.put_next_fire_v1(v_timer);
    return 'active';
end $$;

-- Leave one occurrence out: the first that is staged and in nobody's hands, else the pending one.
create function duly.skip_next_v1(
    p_job_id uuid, p_generation integer, p_seen timestamptz, p_next_at timestamptz, p_window integer, p_moments timestamptz[])
returns timestamptz
language plpgsql set lock_timeout = '2s' as $$
declare
    v_now     timestamptz := duly.clock_now();
    v_timer   duly.timers := duly.take_next_fire_v1(p_job_id);
    v_job     duly.jobs;
    v_staged  duly.ready;
    v_skipped timestamptz;
begin
    if v_timer.job_id is null then
        return null;
    end if;
    select * into strict v_job from duly.jobs where jobs.job_id = p_job_id;
    if v_timer.generation <> p_generation then
        perform duly.put_next_fire_v1(v_timer);
        return '-infinity';
    end if;
    select * into v_staged from duly.lock_staged_v1(p_job_id, p_moments, v_now) limit 1;
    if found then
        delete from duly.ready where ready.run_id = v_staged.run_id;
        v_skipped := v_staged.scheduled_at;
        v_timer.runs_left := v_timer.runs_left + 1;
        if v_timer.previous_scheduled_at = v_skipped then
            v_timer.previous_scheduled_at := v_staged.previous_scheduled_at;
        end if;
    elsif v_timer.scheduled_at = p_seen then
        v_skipped := v_timer.scheduled_at;
        if p_next_at is null then
            update duly.jobs set state = 'completed', updated_at = v_now where jobs.job_id = p_job_id;
            v_timer.job_id := null;
        else
            v_timer.scheduled_at := p_next_at;
            v_timer.due_at := case when v_timer.due_at = 'infinity' then 'infinity'
                                   else p_next_at + duly.jitter_delay(v_timer.jitter, p_job_id, p_next_at, p_window) end;
        end if;
    end if;
    if v_skipped is not null then
        perform duly.record_skips_v1(v_job, jsonb_build_array(jsonb_build_object(
            'reason', 'skipped_on_request', 'first', v_skipped, 'last', v_skipped, 'count', 1)), v_now);
    end if;
    perform duly.put_next_fire_v1(v_timer) where v_timer.job_id is not null;
    return coalesce(v_skipped, '-infinity');
end $$;

-- Change a schedule. What is staged and in nobody's hands is taken back, and made anew by the new definition. p_first_at is its
-- first fire; without one the timing is as it was, and so is the pending fire, save that one counted from the end of a run moves
-- by as much as its period. p_floor is the last moment that the caller knew to be beyond recall: it must not come again.
create function duly.edit_v1(
    p_job_id uuid, p_generation integer, p_hash bytea, p_name text, p_source text, p_handler text, p_payload jsonb,
    p_queue text, p_priority smallint, p_options jsonb, p_schedule jsonb, p_cohort bigint, p_every integer, p_anchor timestamptz,
    p_first_at timestamptz, p_window integer, p_jitter text, p_overlap text, p_overlap_limit integer, p_max_runs integer, p_grace integer,
    p_watch integer, p_seen timestamptz, p_moments timestamptz[], p_floor timestamptz, p_skips jsonb, p_read_at timestamptz)
returns table (answer text, floor timestamptz)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_timer   duly.timers := duly.take_next_fire_v1(p_job_id);
    v_job     duly.jobs;
    v_floor   timestamptz;
    v_kept_at timestamptz;
    v_stored  boolean := pg_column_size(p_payload) > 1024;
begin
    if v_timer.job_id is null then
        return query select 'over', null::timestamptz;
        return;
    end if;
    select * into strict v_job from duly.jobs where jobs.job_id = p_job_id;
    -- Held until the end, so that whoever changes one of its calendars comes before us, or finds what we have made.
    select max(calendars.updated_at) into v_kept_at from (
        select updated_at from duly.calendars where tenant = v_job.tenant and name in (
            select use->>'name' from jsonb_array_elements(coalesce(p_schedule->'calendars', '[]')) as use) for share) as calendars;
    if v_job.generation <> p_generation or v_timer.scheduled_at <> p_seen or v_kept_at > p_read_at then
        perform duly.put_next_fire_v1(v_timer);
        return query select 'again', null::timestamptz;
        return;
    elsif p_priority not between 0 and 9 then
        raise exception using errcode = 'DU005', message = format('priority %s is outside 0 (first) to 9 (last)', p_priority);
    elsif p_options is not null and not duly.are_options(p_options) then
        raise exception using errcode = 'DU005', message = format('options %s are none we know', p_options);
    elsif duly.is_gated(p_options) and duly.with_overlap(null, p_job_id, p_overlap, p_overlap_limit, null) ? 'overlap' then
        raise exception using errcode = 'DU005', message = format('overlap %s beside a concurrency key is not possible; use skip or allow', p_overlap);
    elsif octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    v_timer := duly.withdraw_v1(v_timer, p_moments, v_now);
    v_floor := (select max(moment) from unnest(p_moments) as moment where moment < v_timer.scheduled_at);
    if p_first_at is not null and v_floor > coalesce(p_floor, '-infinity') then
        perform duly.put_next_fire_v1(v_timer);        -- What was taken back is pending again.
        return query select 'again', v_floor;
        return;
    end if;
    perform duly.record_skips_v1(v_job, p_skips, v_now);
    update duly.jobs set generation = generation + 1, definition = p_hash, name = p_name, source = coalesce(p_source, source), handler = p_handler,
           queue = p_queue, priority = p_priority, options = p_options, schedule = p_schedule, cohort = p_cohort, every_seconds = p_every,
           anchor_at = case when p_every is not null then coalesce(p_anchor, p_first_at, anchor_at) end,
           payload = case when not v_stored then p_payload end, payload_stored = v_stored, updated_at = v_now
     where jobs.job_id = p_job_id returning * into v_job;
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (p_job_id, v_job.generation, p_payload, v_now);
    end if;
    if p_first_at is not null then
        v_timer.scheduled_at := p_first_at;
        v_timer.due_at := p_first_at + duly.jitter_delay(p_jitter, p_job_id, p_first_at, p_window);
    elsif p_overlap = 'after_end' and v_timer.previous_scheduled_at is not null and not duly.will_rearm(v_timer.last_run_id) then
        v_timer.scheduled_at := v_timer.scheduled_at + make_interval(secs => p_every - v_timer.every_seconds);
        v_timer.due_at := v_timer.scheduled_at;
    end if;
    if v_job.state = 'paused' or (p_overlap = 'after_end' and duly.will_rearm(v_timer.last_run_id)) then
        v_timer.due_at := 'infinity';
    end if;
    v_timer.generation := v_job.generation;
    v_timer.priority := p_priority;
    v_timer.payload_stored := v_stored;
    v_timer.queue := p_queue;
    v_timer.handler := p_handler;
    v_timer.payload := v_job.payload;
    v_timer.options := duly.with_overlap(p_options, p_job_id, p_overlap, p_overlap_limit, p_watch);
    v_timer.every_seconds := p_every;
    v_timer.cohort := p_cohort;
    v_timer.overlap := duly.overlap_mark(p_overlap, p_overlap_limit);
    v_timer.jitter := p_jitter;
    v_timer.runs_left := p_max_runs;
    v_timer.grace_seconds := p_grace;
    perform duly.put_next_fire_v1(v_timer);
    return query select 'edited', null::timestamptz;
end $$;

-- Run a schedule's job now, beside its schedule. It obeys overlap, unless told to run beside what is active; only a run that
-- obeys is what the next occurrence is judged by. The key makes a repeated request one run.
create function duly.trigger_v1(p_job_id uuid, p_key text, p_payload jsonb, p_beside boolean) returns table (run_id uuid, answer text)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_timer   duly.timers := duly.take_next_fire_v1(p_job_id);
    v_run_id  uuid := duly.occurrence_id(p_job_id, v_now, 'manual:' || p_key);
    v_key     text := 'trigger/' || p_job_id || '/' || p_key;
    v_hash    bytea := sha256(convert_to(concat_ws(E'\x01', p_payload, p_beside), 'UTF8'));
    v_options jsonb := case when p_beside then v_timer.options - array['gate', 'overlap'] else v_timer.options end - 'rearm';
    v_stored  boolean := p_payload is null and v_timer.payload_stored;      -- A payload of its own travels with the run, whatever its size.
    v_answer  text := 'ready';
begin
    if v_timer.job_id is null then
        return query select null::uuid, 'over';
        return;
    elsif octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    insert into duly.keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (v_timer.tenant, v_key, v_run_id, v_hash, v_now, v_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where keys.expires_at <= v_now;
    if not found then
        if not exists (select from duly.keys where keys.tenant = v_timer.tenant and keys.key = v_key and keys.body_hash = v_hash) then
            raise exception using errcode = 'DU001', message = format('key %s was used for another run of this job', quote_literal(p_key)),
                  detail = (select keys.job_id::text from duly.keys where keys.tenant = v_timer.tenant and keys.key = v_key);
        end if;
        perform duly.put_next_fire_v1(v_timer);
        return query select keys.job_id, 'replayed' from duly.keys where keys.tenant = v_timer.tenant and keys.key = v_key;
        return;
    end if;
    if not p_beside and (v_timer.overlap is null or v_timer.overlap = 'after_end') and duly.is_active(v_timer.last_run_id) then
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason)
        values (v_run_id, p_job_id, v_now, v_now, v_now, v_timer.tenant, 0, 'skipped', 'skipped', v_timer.queue, v_timer.handler, 'skipped_overlap');
        v_answer := 'skipped_overlap';
    elsif duly.must_enter(v_options) then
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        values (v_run_id, p_job_id, v_now, v_now, v_timer.previous_scheduled_at, v_timer.generation, v_timer.tenant, 0, v_timer.priority, 0,
                false, v_stored, v_timer.queue, v_timer.handler, coalesce(p_payload, v_timer.payload), v_options,
                v_options->'gate'->>0, v_now);
        perform duly.release_v1(array[v_timer.tenant], array[v_options], 0);
    else
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                suspect, payload_stored, queue, handler, payload, options, rank)
        values (v_run_id, p_job_id, v_now, v_now, v_timer.previous_scheduled_at, v_timer.generation, v_timer.tenant, 0, v_timer.priority, 0,
                false, v_stored, v_timer.queue, v_timer.handler, coalesce(p_payload, v_timer.payload), v_options, duly.rank(v_now, v_timer.priority));
    end if;
    if v_timer.overlap = 'cancel_running' and not p_beside and v_timer.last_run_id is not null then
        perform duly.cancel_v1(array[v_timer.last_run_id], 'a run was asked for');
        perform duly.signal_v1(array[v_timer.last_run_id], 'cancel');
    end if;
    if v_answer = 'ready' and duly.must_enter(v_options) then
        v_answer := case when exists (select from duly.blocked where blocked.run_id = v_run_id) then 'blocked'
                         when exists (select from duly.ready where ready.run_id = v_run_id) then 'ready' else 'skipped_overlap' end;
    end if;
    if v_answer <> 'skipped_overlap' and not p_beside and v_timer.overlap is distinct from 'after_end' then
        v_timer.last_run_id := v_run_id;
    end if;
    perform duly.put_next_fire_v1(v_timer);
    return query select v_run_id, v_answer;
end $$;

-- Arm next fires anew after a calendar or the time zone data have changed. One that has moved on meanwhile is not among the answers.
create function duly.retime_v1(
    p_job_ids uuid[], p_generations integer[], p_seen timestamptz[], p_cohorts bigint[], p_next_at timestamptz[], p_windows integer[])
returns setof uuid
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    with taken as (
        delete from duly.timers using unnest(p_job_ids, p_generations, p_seen, p_cohorts, p_next_at, p_windows)
                                   as new(job_id, generation, seen, cohort, next_at, room)
         where timers.job_id = new.job_id and timers.run_id is null and (timers.scheduled_at = new.seen and timers.generation = new.generation) is true
        returning timers.*, new.cohort as new_cohort, new.next_at, new.room),
    put as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored, queue, handler,
                                 payload, options, shard, every_seconds, cohort, last_run_id, overlap, jitter, runs_left, grace_seconds)
        select job_id, next_at, case when due_at = 'infinity' then 'infinity' else next_at + duly.jitter_delay(jitter, job_id, next_at, room) end,
               previous_scheduled_at, generation, tenant, priority, payload_stored, queue, handler,
               payload, options, shard, every_seconds, new_cohort, last_run_id, overlap, jitter, runs_left, grace_seconds
          from taken where next_at is not null)
    update duly.jobs set cohort = taken.new_cohort, updated_at = duly.clock_now(), state = case when taken.next_at is null then 'completed' else jobs.state end
      from taken where jobs.job_id = taken.job_id
    returning jobs.job_id;
end $$;

---------------------------------------------------------------------------------------------------------- backfill lane

-- Make the next occurrences of backfills, under one gate for each job, so that they wait for each other; a job with a concurrency
-- key of its own keeps that. p_seen guards the cursor: a backfill that somebody else has moved on is passed over. Without a new
-- cursor it is done.
create function duly.backfill_v1(
    p_backfill_ids uuid[], p_seen timestamptz[], p_cursors timestamptz[], p_due timestamptz[], p_counts integer[],
    p_run_backfills uuid[], p_moments timestamptz[])
returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_tenants integer[];
    v_options jsonb[];
begin
    with moved as (
        update duly.backfills set cursor_at = coalesce(new.cursor_at, backfills.to_at), due_at = new.due_at, made = backfills.made + new.count,
               state = case when new.cursor_at is null then 'done' else backfills.state end,
               previous_scheduled_at = coalesce((select max(moment) from unnest(p_run_backfills, p_moments) as run(backfill_id, moment)
                                                  where run.backfill_id = new.backfill_id), backfills.previous_scheduled_at)
          from unnest(p_backfill_ids, p_seen, p_cursors, p_due, p_counts) as new(backfill_id, seen, cursor_at, due_at, count)
          join duly.backfills as before on before.backfill_id = new.backfill_id
         where backfills.backfill_id = new.backfill_id and backfills.cursor_at = new.seen and backfills.state = 'active'
        returning backfills.*, before.previous_scheduled_at as previous_at),
    runs as (
        select duly.occurrence_id(jobs.job_id, run.moment, moved.origin) as run_id, jobs.job_id, run.moment as scheduled_at, v_now as due_at,
               coalesce(lag(run.moment) over (partition by moved.backfill_id order by run.moment), moved.previous_at) as previous_scheduled_at,
               jobs.generation, jobs.tenant, 0 as attempt, duly.lane_priority(jobs.priority) as priority, 0::smallint as losses, false as suspect,
               jobs.payload_stored, jobs.queue, jobs.handler, jobs.payload,
               jsonb_build_object('gate', jsonb_build_array('catch-up/' || jobs.job_id, 1)) || coalesce(jobs.options, '{}') as options
          from unnest(p_run_backfills, p_moments) as run(backfill_id, moment)
          join moved on moved.backfill_id = run.backfill_id join duly.jobs on jobs.job_id = moved.job_id),
    waiting as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                                  suspect, payload_stored, queue, handler, payload, options, gate, blocked_at)
        select runs.*, options->'gate'->>0, v_now from runs
        on conflict do nothing
        returning tenant, options)
    select array_agg(tenant), array_agg(options) into v_tenants, v_options from waiting;
    perform duly.release_v1(v_tenants, v_options, 0) where v_tenants is not null;
    return coalesce(cardinality(v_tenants), 0);
end $$;

-- Ask for the occurrences of a stretch to be made. The schedule is not moved. p_previous is the occurrence before the first.
create function duly.submit_backfill_v1(
    p_backfill_id uuid, p_job_id uuid, p_from timestamptz, p_to timestamptz, p_rate double precision, p_total integer, p_previous timestamptz)
returns boolean language plpgsql as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, from_at, to_at, cursor_at, rate, total, due_at, asked_at,
                                previous_scheduled_at, schedule, calendars, every_seconds, anchor_at)
    select p_backfill_id, jobs.job_id, jobs.tenant, duly.shard_of(jobs.job_id), p_backfill_id::text, p_from, p_to, p_from, p_rate, p_total, v_now, v_now,
           p_previous, jobs.schedule, duly.calendars_of(jobs.tenant, jobs.schedule), jobs.every_seconds, jobs.anchor_at
      from duly.jobs where jobs.job_id = p_job_id and jobs.state in ('active', 'paused')
    on conflict do nothing;
    return exists (select from duly.backfills where backfills.backfill_id = p_backfill_id);
end $$;

-- Stop a backfill: nothing more is made, and what was made and is in nobody's hands is cancelled.
create function duly.cancel_backfill_v1(p_backfill_id uuid) returns integer
language plpgsql as $$
declare
    v_backfill duly.backfills;
    v_gone     integer;
begin
    select * into v_backfill from duly.backfills where backfills.backfill_id = p_backfill_id for update;
    if not found or v_backfill.state = 'cancelled' then
        return null;
    end if;
    update duly.backfills set state = 'cancelled' where backfills.backfill_id = p_backfill_id;
    if v_backfill.state = 'active' and v_backfill.origin = 'schedule' then         -- Missed, and not to be made up for: that is on record.
        perform duly.record_skips_v1(jobs, jsonb_build_array(jsonb_build_object('reason', 'skipped_on_request', 'first', v_backfill.cursor_at,
                    'last', v_backfill.to_at - interval '1 microsecond', 'count', v_backfill.total - v_backfill.made)), duly.clock_now())
           from duly.jobs where jobs.job_id = v_backfill.job_id;
    end if;
    select count(*) into v_gone from duly.cancel_v1(array(
        select waiting.run_id from (
            select blocked.run_id, blocked.job_id, blocked.scheduled_at from duly.blocked
            union all select ready.run_id, ready.job_id, ready.scheduled_at from duly.ready
            union all select timers.run_id, timers.job_id, timers.scheduled_at from duly.timers where timers.run_id is not null) as waiting
         where waiting.job_id = v_backfill.job_id and waiting.scheduled_at >= v_backfill.from_at and waiting.scheduled_at < v_backfill.to_at
           and waiting.run_id = duly.occurrence_id(v_backfill.job_id, waiting.scheduled_at, v_backfill.origin)), 'the backfill was cancelled');
    if v_backfill.state = 'done' and v_gone = 0 then
        update duly.backfills set state = 'done' where backfills.backfill_id = p_backfill_id;
        return null;                                   -- All of it had begun.
    end if;
    return v_gone;
end $$;
