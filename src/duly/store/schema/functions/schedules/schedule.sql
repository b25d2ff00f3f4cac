-- Create a schedule: its definition, its next fire, and what its runs carry. docs/decisions/0016-schedules-fire-by-cohort.md says why.

-- The calendars that a schedule names, by name.
create or replace function duly.calendars_of(p_tenant integer, p_schedule jsonb) returns jsonb language sql stable as $$
    select jsonb_object_agg(calendars.name, calendars.definition) from jsonb_array_elements(p_schedule->'calendars') as use
      join duly.calendars on calendars.tenant = p_tenant and calendars.name = use->>'name'
$$;

-- A delay from 0 up to, and without, the window; the same number as domain/triggers/jitter.py gives.
create or replace function duly.jitter_delay(p_jitter text, p_job_id uuid, p_scheduled_at timestamptz, p_window integer) returns interval
language sql stable parallel safe as $$
    select case when p_jitter is null or p_window <= 0 then interval '0' else make_interval(secs => (
        select floor((('x' || encode(substr(hash, 1, 4), 'hex'))::bit(32)::bigint::numeric * 4294967296
                      + ('x' || encode(substr(hash, 5, 4), 'hex'))::bit(32)::bigint) * p_window / 18446744073709551616)
          from sha256(convert_to(p_job_id::text || case when p_jitter = 'occurrence'
                      then to_char(p_scheduled_at at time zone 'UTC', '"|"YYYY-MM-DD"T"HH24:MI:SS"Z"') else '' end, 'UTF8')) as hash)::double precision) end
$$;

-- The options that the runs of a schedule carry, beside what was requested for them.
create or replace function duly.with_overlap(p_options jsonb, p_job_id uuid, p_overlap text, p_limit integer, p_watch integer) returns jsonb
language sql immutable as $$
    select nullif(coalesce(p_options, '{}')
        || case when p_overlap in ('queue', 'buffer_one', 'cancel_running')
                then jsonb_build_object('concurrency', jsonb_build_array('overlap/' || p_job_id, 1),
                                        'overlap', jsonb_build_array(p_overlap, case when p_overlap = 'queue' then p_limit else 1 end))
                when p_overlap = 'allow' and p_limit is not null
                then jsonb_build_object('concurrency', jsonb_build_array('overlap/' || p_job_id, p_limit), 'overlap', jsonb_build_array('queue', 0))
                when p_overlap = 'after_end' then '{"rearm": true}' else '{}' end
        || case when p_watch is not null then jsonb_build_object('watch', p_watch) else '{}' end, '{}')
$$;

-- The way a next fire judges an overlap: by the last run alone, by a concurrency key, or not at all.
create or replace function duly.overlap_mark(p_overlap text, p_limit integer) returns text language sql immutable as $$
    select case when p_overlap = 'skip' then null when p_overlap in ('queue', 'buffer_one') then 'concurrency'
                when p_overlap = 'allow' and p_limit is not null then 'concurrency' else p_overlap end
$$;

-- Submit a schedule of any kind: the definition and its next fire. The moments are the caller's, who compiled the trigger; an
-- interval without an anchor starts at the next whole second of the database. p_hash is of what was requested, so that
-- the same request under the same key is known again.
create or replace function duly.submit_schedule(
    p_tenant integer, p_key text, p_hash bytea, p_job_id uuid, p_name text, p_owner text, p_source text, p_handler text, p_payload jsonb,
    p_queue text, p_priority smallint, p_options jsonb, p_schedule jsonb, p_cohort bigint, p_every integer, p_anchor timestamptz,
    p_first_at timestamptz, p_window integer, p_jitter text, p_overlap text, p_overlap_limit integer, p_max_runs integer, p_grace integer,
    p_watch integer)
returns table (job_id uuid, scheduled_at timestamptz, replayed boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
    set lock_timeout = '2s' set timezone = 'UTC' set intervalstyle = 'postgres' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_key     duly.idempotency_keys;
    v_anchor  timestamptz := coalesce(p_anchor, to_timestamp(ceil(date_part('epoch', v_now))));
    v_first   timestamptz := coalesce(p_first_at, v_anchor);
    v_stored  boolean := pg_column_size(p_payload) > 1024;
    v_job_id  uuid := coalesce(p_job_id, duly.run_id(v_now, duly.batch_name(p_tenant, p_key, v_now) || '0'));
    v_options jsonb := duly.with_overlap(p_options, v_job_id, p_overlap, p_overlap_limit, p_watch);
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.check_names(p_handler, p_queue);
    if p_cohort is null and p_every not between 1 and 2147483647 then
        raise exception using errcode = 'DU006', message = format('every %s seconds is outside 1 second to 68 years', p_every);
    elsif p_priority not between 0 and 9 then
        raise exception using errcode = 'DU005', message = format('priority %s is outside 0 (first) to 9 (last)', p_priority);
    elsif p_options is not null and not duly.are_options(p_options) then
        perform duly.refuse_options(p_options);
    elsif duly.has_limits(p_options) and v_options->'overlap' is not null then
        raise exception using errcode = 'DU005', message = format('overlap %s beside a concurrency key is not possible; use skip or allow', p_overlap);
    elsif octet_length(p_payload::text) > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', octet_length(p_payload::text));
    end if;
    if p_cohort is null and p_overlap <> 'after_end' and v_first < v_now then      -- Occurrences before the job was created never exist.
        v_first := v_first + make_interval(secs => ceil(date_part('epoch', v_now - v_first) / p_every) * p_every);
    end if;
    insert into duly.idempotency_keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
    values (p_tenant, p_key, v_job_id, p_hash, v_first, v_now + interval '24 hours')
    on conflict (tenant, key) do update
       set job_id = excluded.job_id, body_hash = excluded.body_hash, scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
     where idempotency_keys.expires_at <= v_now;
    if not found then
        select * into strict v_key from duly.idempotency_keys where tenant = p_tenant and key = p_key;
        if v_key.body_hash <> p_hash then
            raise exception using errcode = 'DU001', message = format('key %s was used for another job', quote_literal(p_key)), detail = v_key.job_id::text;
        end if;
        perform duly.admit(p_tenant, 0, 0);
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
    perform duly.admit(p_tenant, 1, 0);
    return query select v_job_id, v_first, false;
end $$;

------------------------------------------------------------------------------------- what is kept beside the definition

create or replace function duly.keep_job_tags() returns trigger
language plpgsql {planned by index} as $$
begin
    delete from duly.job_tags where job_tags.job_id = new.job_id;
    insert into duly.job_tags (tenant, tag, job_id)
    select distinct new.tenant, tag, new.job_id from jsonb_array_elements_text(coalesce(new.options->'tags', '[]')) as tag;
    return null;
end $$;

-- Keep past versions of a definition, the last hundred.
create or replace function duly.keep_version() returns trigger
language plpgsql {planned by index} as $$
begin
    insert into duly.job_versions (job_id, generation, tenant, created_at, replaced_at, name, owner, source, queue, handler, priority, every_seconds,
                                   anchor_at, schedule, payload, options)
    values (old.job_id, old.generation, old.tenant,
            coalesce((select replaced_at from duly.job_versions where job_versions.job_id = old.job_id and job_versions.generation = old.generation - 1),
                     old.created_at),
            duly.clock_now(), old.name, old.owner, old.source, old.queue, old.handler, old.priority, old.every_seconds, old.anchor_at, old.schedule,
            old.payload, old.options);
    delete from duly.job_versions where job_versions.job_id = old.job_id and job_versions.generation < new.generation - 100;
    return null;
end $$;

create or replace function duly.record_created_jobs() returns trigger language plpgsql as $$
begin
    insert into duly.job_changes (tenant, job_id, generation, change, name, queue, handler, changed_at)
    select tenant, job_id, generation, 'created', name, queue, handler, duly.clock_now() from created;
    perform duly.check_presence(each.tenant) from (select distinct tenant from created) as each;
    return null;
end $$;

create or replace function duly.record_changed_job() returns trigger language plpgsql as $$
begin
    insert into duly.job_changes (tenant, job_id, generation, change, name, queue, handler, changed_at)
    values (new.tenant, new.job_id, new.generation,
            case when new.generation <> old.generation then 'edited' when new.state = 'active' then 'resumed' else new.state end,
            new.name, new.queue, new.handler, duly.clock_now());
    return null;
end $$;

-- Give the changes that a snapshot could not see yet, of some tenants, in the order of their transactions.
create or replace function duly.job_changes_since(p_seen pg_snapshot, p_tenants integer[], p_limit integer) returns setof duly.job_changes
language plpgsql stable {planned by index, in order} as $$
begin
    return query
    select * from duly.job_changes
     where job_changes.xid >= pg_snapshot_xmin(p_seen) and not pg_visible_in_snapshot(job_changes.xid, p_seen) and job_changes.tenant = any (p_tenants)
       and duly.is_of_this_cluster(job_changes.xid, job_changes.xmin)
     order by job_changes.xid, job_changes.number limit p_limit;
end $$;

grant execute on function duly.calendars_of, duly.submit_schedule to duly_api;
