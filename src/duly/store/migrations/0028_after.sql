-- `after`: one-shots that wait for the ends of others. docs/decisions/0035-after.md says why.
--
-- Locks are taken in this order: rows of boxes, gates, workflows, followings by child, rows under `&after`. So what holds a following
-- waits for nothing but another one, and passes over rows that somebody else has locked.

-- Who is told of a run's end. A row goes when that end has been counted, or with the one that waits.
create table duly.followers (
    parent       uuid        not null,                  -- the run that is waited for
    child        uuid        not null,                  -- the run that waits
    tenant       integer     not null,
    on_end       text        not null check (on_end in ('success', 'failure', 'always')),
    primary key (parent, child)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
create index followers_by_child on duly.followers (child);

-- One row for each run that waits: its mutex, and what it has yet to hear.
create table duly.followings (
    child        uuid        primary key,
    tenant       integer     not null,
    waits        integer     not null check (waits >= 0),              -- runs that have not ended
    unmet        text                                   -- why it will not run: the first that has ended, and not as was asked
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- What has ended in this transaction, until its end, as `endings` is for workflows.
create unlogged table duly.followed (
    run_id       uuid        not null,
    became       text        not null,
    is_first     boolean     not null                   -- in its transaction: it queues what sees to all of them
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Whom to look at, outside of any other transaction. No key: whoever notes one waits for nobody.
create table duly.follow_checks (
    check_id     bigint      generated always as identity primary key,
    child        uuid        not null,
    due_at       timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

------------------------------------------------------------------------------------------------------------- small rules

-- What a run follows: 1 to 100 pairs of a job's id and the end that is asked of it, each job once. domain/after.py says the same.
create function duly.is_after(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_value) <> 'array' or jsonb_array_length(p_value) not between 1 and 100 then false
                else (select bool_and(coalesce(jsonb_typeof(pair) = 'array' and jsonb_typeof(pair->0) = 'string'
                                               and pair->>0 ~ '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
                                               and pair->>1 in ('success', 'failure', 'always') and pair->2 is null, false))
                             and count(distinct pair->>0) = count(*)
                        from jsonb_array_elements(p_value) as pair) end
$$;

-- What is said besides: the one who checks the rest knows nothing of it, because nobody but a one-shot may say it.
create function duly.but_after(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options->'after' is not null then p_options - 'after' else p_options end
$$;

-- What of a run's options stays with its record: also what it followed.
create or replace function duly.marks_of(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options ?| array['tags', 'request_id', 'traceparent', 'then', 'parent', 'node', 'after']
                then jsonb_strip_nulls(jsonb_build_object('tags', p_options->'tags', 'request_id', p_options->'request_id', 'parent', p_options->'parent',
                                                          'traceparent', p_options->'traceparent', 'then', p_options->'then', 'node', p_options->'node',
                                                          'after', p_options->'after')) end
$$;

-------------------------------------------------------------------------------------------------------------- opened

-- Count ends for those that wait, whose followings are locked. An end counts once: with its row.
create function duly.count_ends_v1(p_parents uuid[], p_states text[], p_children uuid[]) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    with found as materialized (                       -- By place: whatever the tables were when this was planned, each is looked up by its key.
        select place.ctid, place.child, place.parent, place.on_end, ended.state,
               duly.holds_for(place.on_end, case ended.state when 'dead' then 'failed' else ended.state end) as holds
          from unnest(p_parents, p_states) as ended(run_id, state)
         cross join lateral (select ctid, child, parent, on_end from duly.followers where followers.parent = ended.run_id offset 0) as place
         where place.child = any (p_children)),
    gone as (delete from duly.followers where ctid = any (array(select ctid from found))),
    counted as (
        select child, count(*)::integer as ended,
               min(format('job %s is %s, and this was to run %s', parent, state,
                          case on_end when 'always' then 'after its end' else 'on its ' || on_end end)) filter (where not holds) as unmet
          from found group by child)
    update duly.followings set waits = waits - told.ended, unmet = coalesce(followings.unmet, told.unmet)
      from (select counted.ended, counted.unmet, place.ctid from counted
             cross join lateral (select ctid from duly.followings where followings.child = counted.child offset 0) as place) as told
     where followings.ctid = told.ctid;
end $$;

-- Let go those that wait for nothing any more, whose followings are locked: each goes on, or is skipped. One whose row somebody else
-- has locked is looked at again.
create function duly.open_followers_v1(p_children uuid[], p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_gone uuid[] := '{}';
    v_one  duly.followings;
begin
    v_gone := array(select child from duly.followings where child = any (p_children) and waits = 0 and unmet is null);
    if v_gone <> '{}' then
        v_gone := duly.release_nodes_v1(v_gone, p_now);
    end if;
    for v_one in select * from duly.followings where child = any (p_children) and waits = 0 and unmet is not null order by child loop
        v_gone := v_gone || duly.end_nodes_v1(array[v_one.child], 'skipped', v_one.unmet, p_now);
    end loop;
    delete from duly.followings where child = any (v_gone);
    insert into duly.follow_checks (child, due_at)
    select child, p_now + interval '0.5 seconds' from duly.followings where child = any (p_children) and waits = 0;
end $$;

------------------------------------------------------------------------------------------------------------ what is noted

-- Note ends that somebody waits for, until the transaction's own end. One that waited itself, and was cancelled or has expired, leaves
-- its counter behind. What ends while others are let go is left to maintenance: who holds some followings asks for no more of them.
create function duly.note_ends_v1(p_run_ids uuid[], p_became text[]) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_mode text := coalesce(current_setting('duly.following', true), '');
begin
    if v_mode = 'opening' then
        insert into duly.follow_checks (child, due_at)
        select distinct child, duly.clock_now() from duly.followers where parent = any (p_run_ids);
        return;
    end if;
    insert into duly.follow_checks (child, due_at) select child, duly.clock_now() from duly.followings where child = any (p_run_ids);
    insert into duly.followed (run_id, became, is_first)
    select ended.run_id, ended.became, v_mode = '' and row_number() over () = 1
      from unnest(p_run_ids, p_became) as ended(run_id, became)
     where (select true from duly.followers where followers.parent = ended.run_id limit 1);
    if found then
        perform set_config('duly.following', 'noted', true);
    end if;
end $$;

-- The record of an end tells, as for workflows; but whoever is followed does not know it. So every statement that records anything
-- asks, first of all, whether anybody waits for anything: by the index, whose first page says so. No settings in its head.
create function duly.note_followed_v1() returns trigger language plpgsql as $$
begin
    perform from duly.followers order by parent limit 1;
    if found then
        perform duly.note_ends_v1(array_agg(run_id), array_agg(became::text)) from ended
          where outcome <> 'fenced' and became in ('succeeded', 'dead', 'cancelled', 'expired', 'skipped') having count(*) > 0;
    end if;
    return null;
end $$;
create trigger attempts_followed after insert on duly.attempts referencing new table as ended for each statement execute function duly.note_followed_v1();

-- Go on from what has ended in this transaction, at its end, and after its workflows. Of very many that wait for one run, all but the
-- first are left to maintenance.
create function duly.follow_on_v1() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now      timestamptz := duly.clock_now();
    v_parents  uuid[];
    v_states   text[];
    v_children uuid[];
begin
    if coalesce(current_setting('duly.ending', true), '') <> '' then
        insert into duly.followed (run_id, became, is_first) select run_id, became, true from duly.followed limit 1;   -- Queued behind them.
        return null;
    end if;
    with taken as (delete from duly.followed returning run_id, became)
    select array_agg(run_id), array_agg(became) into v_parents, v_states from (select distinct on (run_id) run_id, became from taken) as ended;
    perform set_config('duly.following', 'opening', true);
    v_children := array(select distinct child from duly.followers where parent = any (v_parents) order by child);
    insert into duly.follow_checks (child, due_at) select child, v_now from unnest(v_children[1001:]) as child;
    v_children := v_children[:1000];
    perform from duly.followings where child = any (v_children) order by child for no key update;
    perform duly.count_ends_v1(v_parents, v_states, v_children);
    perform duly.open_followers_v1(v_children, v_now);
    perform set_config('duly.following', '', true);
    return null;
end $$;

-- It is queued once for each transaction, by the first note.
create constraint trigger followed_seen_to after insert on duly.followed deferrable initially deferred
   for each row when (new.is_first) execute function duly.follow_on_v1();

------------------------------------------------------------------------------------------------------------------ checks

-- Look at runs that wait, so many at a time: at what was submitted while the runs it follows were on their way to their ends, at what
-- follows one that was skipped, at what was locked, and at what waits no more. How many were looked at.
--
-- Those who follow are known to all from the submit's commit on. A run that stands in a box then, and that nobody is moving, will
-- tell of its end; one that is in no box has ended; one that somebody is moving is looked at again.
create function duly.check_followers_v1(p_limit integer) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now      timestamptz := duly.clock_now();
    v_looks    integer;
    v_children uuid[];
    v_parents  uuid[];
    v_states   text[];
    v_moving   uuid[];
    v_gone     uuid[];
begin
    with taken as (
        delete from duly.follow_checks where check_id = any (array(
            select check_id from duly.follow_checks where due_at <= v_now order by check_id limit p_limit for update skip locked))
        returning child)
    select count(*), array_agg(distinct child) into v_looks, v_children from taken;
    if v_looks = 0 then
        return 0;
    end if;
    perform set_config('duly.following', 'opening', true);
    perform from duly.followings where child = any (v_children) order by child for no key update;
    v_gone := array(select child from unnest(v_children) as child
                     where (select true from duly.blocked where blocked.run_id = child and blocked.gate = '&after') is null);
    delete from duly.followings where child = any (v_gone);
    delete from duly.followers where child = any (v_gone);
    with asked as materialized (select distinct parent from duly.followers where child = any (v_children)),
    placed as materialized (                           -- One statement, one snapshot: a run stands in one box of it at most.
        select parent,
               coalesce((select true from duly.timers where timers.run_id = parent), (select true from duly.blocked where blocked.run_id = parent),
                        (select true from duly.ready where ready.run_id = parent), (select true from duly.leased where leased.run_id = parent), false) as is_live,
               coalesce((select true from duly.timers where timers.run_id = parent for key share skip locked),
                        (select true from duly.blocked where blocked.run_id = parent for key share skip locked),
                        (select true from duly.ready where ready.run_id = parent for key share skip locked),
                        (select true from duly.leased where leased.run_id = parent for key share skip locked), false) as is_free
          from asked),
    looked as (
        select parent, is_live, is_free,
               case when not is_live then coalesce(
                   (select 'dead' from duly.dead where dead.run_id = parent),
                   (select became::text from duly.attempts where attempts.run_id = parent and outcome <> 'fenced'
                       and became in ('succeeded', 'dead', 'cancelled', 'expired', 'skipped') order by finished_at desc limit 1), 'forgotten') end as state
          from placed)
    select array_agg(parent) filter (where not is_live), array_agg(state) filter (where not is_live), array_agg(parent) filter (where is_live and not is_free)
      into v_parents, v_states, v_moving from looked;
    if v_moving is not null then
        insert into duly.follow_checks (child, due_at)
        select distinct child, v_now + interval '0.1 seconds' from duly.followers where parent = any (v_moving) and child = any (v_children);
    end if;
    if v_parents is not null then
        perform duly.count_ends_v1(v_parents, v_states, v_children);
    end if;
    perform duly.open_followers_v1(v_children, v_now);
    perform set_config('duly.following', '', true);
    return v_looks;
end $$;

------------------------------------------------------------------------------------------------------------------ submit

-- Note what runs follow that are submitted here, under `&after`. Nothing is locked: those they follow may be ending meanwhile, which
-- is for a check to see.
create function duly.follow_v1(p_tenant integer, p_children uuid[], p_options jsonb[], p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_bad record;
begin
    select left((given.options->'after')::text, 100) as shown into v_bad from unnest(p_options) as given(options)
     where duly.is_after(given.options->'after') is not true limit 1;
    if found then
        raise exception using errcode = 'DU005',
            message = format('after %s is not a list of 1 to 100 jobs, each once: give pairs such as ["<job id>", "success"], or failure, or always', v_bad.shown);
    end if;
    select asked.job_id, exists (select from duly.jobs where jobs.job_id = asked.job_id and jobs.tenant = p_tenant) as is_schedule into v_bad
      from (select distinct (pair->>0)::uuid as job_id from unnest(p_options) as given(options) cross join jsonb_array_elements(given.options->'after') as pair) as asked
     where coalesce((select true from duly.timers where timers.run_id = asked.job_id and timers.job_id = asked.job_id and timers.tenant = p_tenant),
                    (select true from duly.blocked where blocked.run_id = asked.job_id and blocked.job_id = asked.job_id and blocked.tenant = p_tenant),
                    (select true from duly.ready where ready.run_id = asked.job_id and ready.job_id = asked.job_id and ready.tenant = p_tenant),
                    (select true from duly.leased where leased.run_id = asked.job_id and leased.job_id = asked.job_id and leased.tenant = p_tenant),
                    (select true from duly.dead where dead.run_id = asked.job_id and dead.job_id = asked.job_id and dead.tenant = p_tenant),
                    (select true from duly.attempts where attempts.run_id = asked.job_id and attempts.job_id = asked.job_id and attempts.tenant = p_tenant limit 1)) is null
     limit 1;
    if found then
        raise exception using errcode = 'DU005', message = case when v_bad.is_schedule
            then format('after names job %s, which is a schedule and has no one end; let each of its runs trigger this job with on_done, or name a one-shot', v_bad.job_id)
            else format('after names job %s, of which nothing is known; name one-shots of this tenant that wait, run or are still in the history', v_bad.job_id) end;
    end if;
    insert into duly.followings (child, tenant, waits)
    select given.child, p_tenant, jsonb_array_length(given.options->'after') from unnest(p_children, p_options) as given(child, options);
    insert into duly.followers (parent, child, tenant, on_end)
    select (pair->>0)::uuid, given.child, p_tenant, pair->>1
      from unnest(p_children, p_options) as given(child, options) cross join jsonb_array_elements(given.options->'after') as pair;
    insert into duly.follow_checks (child, due_at) select child, p_now from unnest(p_children) as child;
end $$;

-- Submit, as before; a run of a line gets its number here, in a batch in the order of its lines; and what follows others stands under
-- `&after`.
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
        perform duly.check_one(p_at, p_delay, octet_length(p_payload), p_priority, duly.but_after(v_options), v_now, p_grace);
    end if;
    v_options := duly.numbered(v_options);
    if v_stored then
        insert into duly.payloads (job_id, generation, body, stored_at) values (v_run_id, 1, v_payload, v_now);
        v_payload := null;
    end if;
    if v_options->'after' is not null then
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                  payload_stored, queue, handler, payload, options, gate, blocked_at)
        values (v_run_id, v_run_id, v_due_at, v_due_at, 1, p_tenant, 0, p_priority, 0, false, v_stored, p_queue, p_handler, v_payload, v_options,
                '&after', v_now);
        perform duly.follow_v1(p_tenant, array[v_run_id], array[v_options], v_now);
    elsif v_due_at > v_now + p_horizon or duly.is_gated(v_options) then
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

create or replace function duly.submit_v1(
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
    v_followers uuid[];
    v_options jsonb[];
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
        or (u.options is not null and not duly.are_options(duly.but_after(u.options::jsonb))) limit 1;
    if found then
        perform duly.check_one(v_bad.at, v_bad.delay, v_bad.bytes, v_bad.priority, duly.but_after(v_bad.options::jsonb), v_now, p_grace);
    end if;
    with asked as materialized (
        select u.number, duly.run_id(moment.at, v_name || u.number::text) as run_id, moment.at as due_at, u.handler, u.queue, u.priority,
               u.payload::jsonb as payload, duly.numbered(u.options::jsonb) as options, octet_length(u.payload) > 1024 as stored
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
          from asked where (due_at > v_now + p_horizon or duly.is_gated(options)) and options->'after' is null),
    soon as (
        insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                payload_stored, queue, handler, payload, options, rank)
        select run_id, run_id, due_at, due_at, 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options, duly.rank(due_at, priority)
          from asked where due_at <= v_now + p_horizon and not duly.is_gated(options) and options->'after' is null),
    following as (
        insert into duly.blocked (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                                  payload_stored, queue, handler, payload, options, gate, blocked_at)
        select run_id, run_id, due_at, due_at, 1, p_tenant, 0, priority, 0, false, stored, queue, handler,
               case when not stored then payload end, options, '&after', v_now
          from asked where options->'after' is not null)
    select array_agg(run_id order by number), array_agg(due_at order by number), array_agg(run_id) filter (where options->'after' is not null),
           array_agg(options) filter (where options->'after' is not null)
      into v_ids, v_moments, v_followers, v_options from asked;
    if v_followers is not null then
        perform duly.follow_v1(p_tenant, v_followers, v_options, v_now);
    end if;
    return query select u.run_id, u.moment, false from unnest(v_ids, v_moments) as u(run_id, moment);
end $$;

--------------------------------------------------------------------------------------------------------------- the wall

alter table duly.followers enable row level security;
alter table duly.followings enable row level security;
alter table duly.followed enable row level security;
alter table duly.follow_checks enable row level security;
create policy of_its_tenant on duly.followers for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.followers to duly_api;

revoke execute on function
    duly.is_after, duly.but_after, duly.count_ends_v1, duly.open_followers_v1, duly.note_ends_v1, duly.note_followed_v1, duly.follow_on_v1,
    duly.check_followers_v1, duly.follow_v1
    from public;
