-- Changes of a schedule: pause, resume, skip, edit and cancel.
--
-- Each takes the next fire first. What it rests on was read before, so it names the moment it saw: `again` means that the
-- schedule has moved on meanwhile, and the caller looks anew. p_moments are those that may be staged and not due. A
-- schedule whose coming run a worker holds is `held`: nothing is changed, and the caller recalls that run first (recall.sql). Only a pause
-- settles for a run whose worker did not answer. A spent schedule, whose last occurrence is staged, is `over` unless that is taken back.
-- So is another tenant's: take_next_fire checks the owner.

-- Stop a schedule. What is staged is taken back, so that it fires after all if the schedule goes on before its moment. While p_settles is null,
-- the workers have not been asked yet, and any first attempt that one holds is out of reach: only its worker knows whether it has started.
create or replace function duly.pause(
    p_job_id uuid, p_generation integer, p_reason text, p_seen timestamptz, p_moments timestamptz[], p_settles boolean)
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    v_now   timestamptz := duly.clock_now();
    v_timer duly.timers := duly.take_next_fire(p_job_id);
    v_job   duly.jobs;
    v_left  duly.ready[];
    v_state text;
begin
    if v_timer.job_id is null then
        return 'over';
    end if;
    select jobs.state into strict v_state from duly.jobs where jobs.job_id = p_job_id;
    if v_state = 'paused' or v_timer.scheduled_at <> p_seen or v_timer.generation <> p_generation then
        perform duly.put_next_fire(v_timer);
        return case when v_state = 'paused' then 'already' else 'again' end;
    end if;
    if (p_settles is null and exists (select from duly.leased where leased.job_id = p_job_id and leased.attempt = 1))
       or (p_settles is not true and duly.is_coming_run_held(v_timer, p_moments, v_now)) then
        perform duly.put_next_fire(v_timer);
        return 'held';
    end if;
    v_timer := duly.withdraw(v_timer, p_moments, v_now);
    if v_timer.runs_left = 0 then
        perform duly.put_next_fire(v_timer);
        return 'over';
    end if;
    update duly.jobs set state = 'paused', paused_at = v_now, updated_at = v_now, pause_reason = p_reason where jobs.job_id = p_job_id returning * into v_job;
    v_timer.due_at := 'infinity';
    v_left := array(select staged from duly.lock_staged(v_timer, v_now) as staged);
    if v_left <> '{}' then                             -- Behind one that was cancelled, the next fire cannot go back to them: they are skipped.
        delete from duly.ready where ready.run_id in (select staged.run_id from unnest(v_left) as staged);
        delete from duly.blocked where blocked.run_id in (select staged.run_id from unnest(v_left) as staged);
        v_timer.runs_left := duly.runs_left_with(v_timer, cardinality(v_left));
        perform duly.record_skips(v_job, (select jsonb_agg(jsonb_build_object(
                    'reason', 'skipped_paused', 'first', staged.scheduled_at, 'last', staged.scheduled_at, 'count', 1)) from unnest(v_left) as staged), v_now);
    end if;
    perform duly.put_next_fire(v_timer);
    return 'paused';
end $$;

-- Let a schedule go on with the fire at p_next_at. If that is the one that was pending, however late it is, then it is a misfire
-- and its policy decides. Without a next moment nothing is left, and the schedule is over.
create or replace function duly.resume(
    p_job_id uuid, p_generation integer, p_seen timestamptz, p_next_at timestamptz, p_window integer, p_skips jsonb)
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    v_now   timestamptz := duly.clock_now();
    v_timer duly.timers := duly.take_next_fire(p_job_id);
    v_job   duly.jobs;
begin
    if v_timer.job_id is null then
        return 'over';
    end if;
    select * into strict v_job from duly.jobs where jobs.job_id = p_job_id;
    if v_job.state <> 'paused' or v_timer.scheduled_at <> p_seen or v_timer.generation <> p_generation then
        perform duly.put_next_fire(v_timer);
        return case when v_job.state = 'active' then 'already' else 'again' end;
    end if;
    update duly.jobs set state = case when p_next_at is null then 'completed' else 'active' end,
           paused_at = null, pause_reason = null, failures = 0, updated_at = v_now
     where jobs.job_id = p_job_id;
    perform duly.record_skips(v_job, p_skips, v_now);
    if p_next_at is null then
        return 'completed';
    end if;
    v_timer.scheduled_at := p_next_at;
    v_timer.due_at := p_next_at + duly.jitter_delay(v_timer.jitter, p_job_id, p_next_at, p_window);
    if v_timer.overlap = 'after_end' and duly.will_rearm(v_timer.last_run_id) then
        v_timer.due_at := 'infinity';                  -- Its run is under way, and arms it when it ends.
    end if;
    perform duly.put_next_fire(v_timer);
    return 'active';
end $$;

-- Leave one occurrence out: the first that is staged and has not started, else the pending one. p_skips is what calendars took just before
-- the pending one: no fire will record that.
create or replace function duly.skip_next(
    p_job_id uuid, p_generation integer, p_seen timestamptz, p_next_at timestamptz, p_window integer, p_moments timestamptz[], p_skips jsonb,
    out answer text, out moment timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    v_now     timestamptz := duly.clock_now();
    v_timer   duly.timers := duly.take_next_fire(p_job_id);
    v_job     duly.jobs;
    v_staged  duly.ready;
    v_skipped timestamptz;
    v_is_spent boolean;
begin
    answer := 'over';
    if v_timer.job_id is null then
        return;
    end if;
    select * into strict v_job from duly.jobs where jobs.job_id = p_job_id;
    if v_timer.generation <> p_generation or duly.is_coming_run_held(v_timer, p_moments, v_now) then
        answer := case when v_timer.generation <> p_generation then 'again' else 'held' end;
        perform duly.put_next_fire(v_timer);
        return;
    end if;
    v_is_spent := coalesce(v_timer.runs_left = 0, false);
    select * into v_staged from duly.lock_staged(v_timer, v_now) as staged order by staged.scheduled_at limit 1;
    if found then
        delete from duly.ready where ready.run_id = v_staged.run_id;
        delete from duly.blocked where blocked.run_id = v_staged.run_id;
        v_skipped := v_staged.scheduled_at;
        v_timer.runs_left := duly.runs_left_with(v_timer, 1);
        if v_timer.previous_scheduled_at = v_skipped then
            v_timer.previous_scheduled_at := v_staged.previous_scheduled_at;
        end if;
    elsif v_is_spent then
        perform duly.put_next_fire(v_timer);
        return;
    elsif v_timer.scheduled_at = p_seen then
        v_skipped := v_timer.scheduled_at;
        perform duly.record_skips(v_job, p_skips, v_now);
    end if;
    if v_skipped = p_seen or v_is_spent then           -- The pending one, or one of the last of a spent schedule: what follows is armed instead.
        if p_next_at is null and v_skipped < p_seen then
            v_timer.runs_left := 0;                    -- Nothing follows, and others of the last are coming.
        elsif p_next_at is null then
            update duly.jobs set state = 'completed', updated_at = v_now where jobs.job_id = p_job_id;
            v_timer.job_id := null;
        else
            v_timer.scheduled_at := p_next_at;
            v_timer.due_at := case when v_timer.due_at = 'infinity' and not v_is_spent then 'infinity'
                                   else p_next_at + duly.jitter_delay(v_timer.jitter, p_job_id, p_next_at, p_window) end;
        end if;
    end if;
    if v_skipped is not null then
        perform duly.record_skips(v_job, jsonb_build_array(jsonb_build_object(
            'reason', 'skipped_on_request', 'first', v_skipped, 'last', v_skipped, 'count', 1)), v_now);
    end if;
    perform duly.put_next_fire(v_timer) where v_timer.job_id is not null;
    answer := case when v_skipped is null then 'again' else 'skipped' end;
    moment := v_skipped;
end $$;

-- Change a schedule. What is staged and has not started is taken back, and created anew by the new definition. p_first_at is its
-- first fire; without one the timing is as it was, and so is the pending fire, save that one counted from the end of a run moves
-- by as much as its period. p_floor is the last moment that the caller knew to be beyond recall: it must not come again.
create or replace function duly.edit(
    p_job_id uuid, p_generation integer, p_hash bytea, p_name text, p_source text, p_handler text, p_payload jsonb,
    p_queue text, p_priority smallint, p_options jsonb, p_schedule jsonb, p_cohort bigint, p_every integer, p_anchor timestamptz,
    p_first_at timestamptz, p_window integer, p_jitter text, p_overlap text, p_overlap_limit integer, p_max_runs integer, p_grace integer,
    p_watch integer, p_seen timestamptz, p_moments timestamptz[], p_floor timestamptz, p_skips jsonb, p_read_at timestamptz)
returns table (answer text, floor timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_timer   duly.timers := duly.take_next_fire(p_job_id);
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
    -- Held until the end, so that a change of one of its calendars comes before us, or finds what we have created.
    select max(calendars.updated_at) into v_kept_at from (
        select updated_at from duly.calendars where tenant = v_job.tenant and name in (
            select use->>'name' from jsonb_array_elements(coalesce(p_schedule->'calendars', '[]')) as use) for share) as calendars;
    if v_job.generation <> p_generation or v_timer.scheduled_at <> p_seen or v_kept_at > p_read_at then
        perform duly.put_next_fire(v_timer);
        return query select 'again', null::timestamptz;
        return;
    elsif p_priority not between 0 and 9 then
        raise exception using errcode = 'DU005', message = format('priority %s is outside 0 (first) to 9 (last)', p_priority);
    elsif p_options is not null and not duly.are_options(p_options) then
        perform duly.refuse_options(p_options);
    elsif duly.has_limits(p_options) and duly.with_overlap(null, p_job_id, p_overlap, p_overlap_limit, null) ? 'overlap' then
        raise exception using errcode = 'DU005', message = format('overlap %s beside a concurrency key is not possible; use skip or allow', p_overlap);
    elsif octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    perform duly.check_names(p_handler, p_queue);
    if duly.is_coming_run_held(v_timer, p_moments, v_now) then
        perform duly.put_next_fire(v_timer);
        return query select 'held', null::timestamptz;
        return;
    end if;
    v_timer := duly.withdraw(v_timer, p_moments, v_now);
    if v_timer.runs_left = 0 then
        perform duly.put_next_fire(v_timer);
        return query select 'over', null::timestamptz;
        return;
    end if;
    if p_first_at is not null and v_timer.scheduled_at < least(p_seen, p_read_at) then      -- Taken back and due by now: the next look has it on record.
        perform duly.put_next_fire(v_timer);
        return query select 'again', p_floor;
        return;
    end if;
    v_floor := (select max(moment) from unnest(p_moments) as moment where moment < v_timer.scheduled_at);
    if p_first_at is not null and v_floor > coalesce(p_floor, '-infinity') then
        perform duly.put_next_fire(v_timer);        -- Runs that were taken back are pending again.
        return query select 'again', v_floor;
        return;
    end if;
    perform duly.record_skips(v_job, p_skips, v_now);
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
    perform duly.put_next_fire(v_timer);
    return query select 'edited', null::timestamptz;
end $$;

-- End a schedule through its next fire. p_skips is what it has named and not fired by then, as of the pending moment p_seen: if that
-- has moved on, nothing is done. The rest of its catch-up is on record, too. No row: there is no next fire at this moment.
create or replace function duly.cancel_schedule(p_job_id uuid, p_seen timestamptz, p_skips jsonb) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
declare
    v_now      timestamptz := duly.clock_now();
    v_job      duly.jobs;
    v_backfill duly.backfills;
begin
    delete from duly.timers where timers.job_id = p_job_id and timers.run_id is null and (timers.scheduled_at = p_seen) is true
       and duly.is_ours(timers.tenant);
    if not found then
        return;
    end if;
    update duly.jobs set state = 'cancelled', updated_at = v_now where jobs.job_id = p_job_id and jobs.state in ('active', 'paused') returning * into v_job;
    if not found then
        return;
    end if;
    perform duly.record_skips(v_job, p_skips, v_now);
    for v_backfill in update duly.backfills set state = 'cancelled' where backfills.job_id = p_job_id and backfills.state = 'active' returning * loop
        if v_backfill.origin = 'schedule' then
            perform duly.record_skips(v_job, jsonb_build_array(jsonb_build_object('reason', 'skipped_on_request', 'first', v_backfill.cursor_at,
                        'last', v_backfill.to_at - interval '1 microsecond', 'count', v_backfill.total - v_backfill.created)), v_now);
        end if;
    end loop;
    return next p_job_id;
end $$;

-- Give a pause another reason than the one it had.
create or replace function duly.give_reason(p_job_id uuid, p_before text, p_reason text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update duly.jobs set pause_reason = p_reason, updated_at = duly.clock_now()
     where jobs.job_id = p_job_id and jobs.state = 'paused' and jobs.pause_reason = p_before and duly.is_ours(jobs.tenant);
end $$;

grant execute on function duly.pause, duly.give_reason, duly.resume, duly.skip_next, duly.edit,
    duly.cancel_schedule to duly_api;
