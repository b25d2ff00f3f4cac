-- Queues that have more than they can do, what is coming to them, and what was missed while everything was down.
-- docs/decisions/0032-overload-and-recovery.md says why.

-------------------------------------------------------------------------------------------------------------- overload

-- How old the oldest due run of a queue may be, where somebody has said so.
create table duly.queue_ages (
    queue        text        primary key collate "C",
    age_limit    interval    not null check (age_limit >= interval '1 second'),
    set_by       text        not null,
    set_at       timestamptz not null
);

-- How many runs of which handler a worker runs at once: by the names of targets, and under no name for functions. Empty: all alike.
alter table duly.workers add column pools jsonb not null default '{}';

alter table duly.overloads add column age_limit interval not null default interval '60 seconds';

-- Note which queues are overloaded: their oldest due run is older than its limit, or, where that is noted already, than half of
-- it. Only the head of each line is looked at, or the first of its first runs that somebody can take, where the queue is served at all:
-- what nobody knows waits for a person. What a person holds is left out, and so is the backfill lane, which is meant to wait.
-- At most about twice a second, however many do it. Returns how many stand there; null: somebody else did it just now.
create function duly.note_overloads_v1(p_default interval, p_lines integer) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    c_looks constant integer := 100;                   -- into a line whose head nobody knows
    v_now   timestamptz := duly.clock_now();
begin
    insert into duly.duties (name, done_at) values ('overload', v_now)
    on conflict (name) do update set done_at = excluded.done_at
     where duties.done_at < excluded.done_at - interval '0.4 seconds' or duties.done_at > excluded.done_at;
    if not found then
        return null;
    end if;
    with recursive heads as (
        (select queue, tenant, priority, due_at from duly.ready order by queue, tenant, priority, due_at limit 1)
        union all
        select next.queue, next.tenant, next.priority, next.due_at from heads cross join lateral (
            select ready.queue, ready.tenant, ready.priority, ready.due_at from duly.ready
             where (ready.queue, ready.tenant, ready.priority) > (heads.queue, heads.tenant, heads.priority)
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    oldest as (
        select head.queue, min(first.due_at) as due_at from (select * from heads limit p_lines) as head cross join lateral (
               select waiting.due_at from (
                   select ready.due_at, ready.handler from duly.ready
                    where ready.queue = head.queue and ready.tenant = head.tenant and ready.priority = head.priority
                    order by ready.due_at limit c_looks) as waiting
                where exists (select from duly.workers where workers.until > v_now and head.queue = any (workers.queues)
                                 and waiting.handler = any (workers.handlers) and coalesce(workers.tenant, head.tenant) = head.tenant)
                   or not exists (select from duly.workers where workers.until > v_now and head.queue = any (workers.queues)
                                     and coalesce(workers.tenant, head.tenant) = head.tenant)
                limit 1) as first
         where head.priority < 100 and head.due_at <= v_now
           and not exists (select from duly.holds where coalesce(holds.tenant, head.tenant) = head.tenant and coalesce(holds.queue, head.queue) = head.queue)
         group by head.queue),
    judged as (
        select oldest.queue, oldest.due_at, coalesce(queue_ages.age_limit, p_default) as age_limit from oldest
          left join duly.queue_ages on queue_ages.queue = oldest.queue)
    insert into duly.overloads (queue, oldest_due_at, noted_at, age_limit)
    select judged.queue, judged.due_at, v_now, judged.age_limit from judged
     where v_now - judged.due_at > judged.age_limit
        or (v_now - judged.due_at > judged.age_limit / 2 and exists (select from duly.overloads where overloads.queue = judged.queue))
     order by judged.queue
    on conflict (queue) do update set oldest_due_at = excluded.oldest_due_at, noted_at = excluded.noted_at, age_limit = excluded.age_limit;
    delete from duly.overloads where overloads.noted_at < v_now or overloads.noted_at > v_now;
    return (select count(*) from duly.overloads);
end $$;

--------------------------------------------------------------------------------------------------------------- what is coming

-- What falls due within the next minutes, counted by queue, minute and rhythm. Of many timers a part of the shards is read, over
-- which jobs are spread evenly, and counted for all.
create function duly.coming_v1(p_minutes integer, p_most integer)
returns table (queue text, minute integer, every_seconds integer, cohort bigint, scheduled_at timestamptz, fires bigint)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_rows   double precision := greatest((select reltuples from pg_class where oid = 'duly.timers'::regclass), 1);
    v_shards integer := greatest(1, least(64, ceil(64 * p_most / v_rows)));
begin
    return query
    select timers.queue, floor(date_part('epoch', timers.due_at - v_now) / 60)::integer, timers.every_seconds, timers.cohort,
           case when timers.run_id is null then timers.scheduled_at end, count(*) * 64 / v_shards
      from generate_series(0, v_shards - 1) as part(number)
      join duly.timers on timers.shard = (part.number * 64 / v_shards)::smallint
       and timers.due_at > v_now and timers.due_at <= v_now + make_interval(mins => p_minutes)
     group by 1, 2, 3, 4, 5;
end $$;

-------------------------------------------------------------------------------------------------------------- recovery

-- After a time in which nobody staged: what was missed is held back until a person has said what becomes of it.
create table duly.recoveries (
    recovery_id  uuid        primary key,
    state        text        not null check (state in ('open', 'approved', 'dismissing', 'done', 'dismissed')),
    down_since   timestamptz,                           -- when anybody last staged; null: catch-ups under way were taken over
    opened_at    timestamptz not null,
    decided_at   timestamptz,
    decided_by   text,
    rules        jsonb       not null default '[]',     -- what becomes of whose, where it is not left to each schedule's own policy
    rate         double precision check (rate > 0),     -- runs a second, all together
    ended_at     timestamptz,
    check ((state = 'open') = (decided_at is null) or state = 'done')
);
-- At most one that is not over.
create unique index recoveries_live on duly.recoveries ((true)) where state in ('open', 'approved', 'dismissing');
create index recoveries_by_opening on duly.recoveries (opened_at);

alter table duly.backfills add column recovery_id uuid;
create index backfills_of_recovery on duly.backfills (recovery_id, state) where recovery_id is not null;
create index backfills_held on duly.backfills (recovery_id, shard, backfill_id) where recovery_id is not null and state = 'active' and due_at = 'infinity';
create index backfills_recovering on duly.backfills (recovery_id, shard) where recovery_id is not null and state = 'active' and due_at < 'infinity';

-- What was missed waits, due never, while a recovery is open; and for a moment after a decision, for the sake of a scheduler that
-- has yet to hear of it.
create function duly.hold_missed_v1() returns trigger language plpgsql as $$
begin
    select recoveries.recovery_id into new.recovery_id from duly.recoveries
     where recoveries.state in ('open', 'approved', 'dismissing')
       and (recoveries.state = 'open' or recoveries.decided_at > duly.clock_now() - interval '10 seconds');
    if found then
        new.due_at := 'infinity';
    end if;
    return new;
end $$;
create trigger backfills_held before insert on duly.backfills for each row when (new.origin = 'schedule') execute function duly.hold_missed_v1();

-- Note that somebody stages. When nobody did for longer than p_after, a recovery opens, before anything is staged. Tells the one that
-- is not over.
create function duly.note_staging_v1(p_after interval, p_recovery_id uuid)
returns table (recovery_id uuid, state text, opened_at timestamptz, rules jsonb, rate double precision, is_new boolean)
language plpgsql set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_before timestamptz := (select done_at from duly.duties where name = 'stage');
begin
    if v_before is null then
        insert into duly.duties (name, done_at) values ('stage', v_now) on conflict do nothing;
    elsif v_before < v_now - interval '0.5 seconds' or v_before > v_now then
        -- Whoever comes second sees the note of the first.
        select done_at into v_before from duly.duties where name = 'stage' for update;
        if v_before < v_now - p_after then
            insert into duly.recoveries (recovery_id, state, down_since, opened_at) values (p_recovery_id, 'open', v_before, v_now) on conflict do nothing;
        end if;
        update duly.duties set done_at = v_now where name = 'stage';
    end if;
    return query
    select recoveries.recovery_id, recoveries.state, recoveries.opened_at, recoveries.rules, recoveries.rate, recoveries.recovery_id = p_recovery_id
      from duly.recoveries where recoveries.state in ('open', 'approved', 'dismissing');
end $$;

-- Take the missed fires of plain intervals, which staging answers by itself, out of its way: what was missed is held, and the
-- next fire armed. Those that are late within the next second go with them, so that none is staged between two looks.
create function duly.hold_late_v1(p_holder uuid, p_shards smallint[], p_epochs bigint[], p_looked_at integer) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now  timestamptz := duly.clock_now();
    v_held integer;
begin
    with ours as (
        select shards.shard from unnest(p_shards, p_epochs) as held(shard, epoch)
          join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder
         where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now)),
    late as (
        delete from duly.timers where ctid = any (array(
            select first.ctid from ours cross join lateral (
                select timers.ctid, timers.run_id, timers.cohort, timers.overlap, timers.due_at, timers.grace_seconds from duly.timers
                 where timers.shard = ours.shard and timers.due_at <= v_now order by timers.due_at limit p_looked_at for update skip locked) as first
             where first.run_id is null and first.cohort is null and first.overlap is distinct from 'after_end'
               and duly.is_late(first.due_at, first.grace_seconds, v_now + interval '1 second')))
        returning *),
    missed as (
        select late.*, late.scheduled_at + make_interval(secs => passed.count * late.every_seconds::double precision) as last_at,
               late.scheduled_at + make_interval(secs => (passed.count + 1) * late.every_seconds::double precision) as next_at, passed.count + 1 as total
          from late cross join lateral (select floor(date_part('epoch', v_now - late.scheduled_at) / late.every_seconds) as count offset 0) as passed),
    next_fires as (
        insert into duly.timers (job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, priority, payload_stored,
                                 queue, handler, payload, options, shard, every_seconds, last_run_id, overlap, runs_left, grace_seconds)
        select job_id, next_at, next_at, last_at, generation, tenant, priority, payload_stored, queue, handler, payload, options, shard,
               every_seconds, last_run_id, overlap, runs_left, grace_seconds from missed),
    held as (
        insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, from_at, to_at, cursor_at, rate, total, due_at,
                                    previous_scheduled_at, asked_at, schedule, every_seconds, anchor_at)
        select duly.occurrence_id(missed.job_id, missed.scheduled_at, 'catch-up'), missed.job_id, missed.tenant, missed.shard, 'schedule',
               missed.scheduled_at, missed.last_at + interval '1 microsecond', missed.scheduled_at, 1, missed.total, v_now,
               missed.previous_scheduled_at, v_now, jobs.schedule, jobs.every_seconds, jobs.anchor_at
          from missed join duly.jobs on jobs.job_id = missed.job_id
        on conflict do nothing)
    select count(*) into v_held from missed;
    return v_held;
end $$;

-- Say what becomes of what is held: the stretch to be made and how many that are, none of it where the count is 0, and what is left out.
create function duly.decide_missed_v1(
    p_recovery_id uuid, p_backfill_ids uuid[], p_from timestamptz[], p_to timestamptz[], p_totals integer[], p_skips jsonb[])
returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_decided integer;
begin
    with decided as (
        update duly.backfills set from_at = coalesce(new.from_at, backfills.from_at), cursor_at = coalesce(new.from_at, backfills.from_at),
               to_at = coalesce(new.to_at, backfills.to_at), total = new.total, due_at = v_now,
               state = case when new.total = 0 then 'done' else backfills.state end
          from unnest(p_backfill_ids, p_from, p_to, p_totals, p_skips) as new(backfill_id, from_at, to_at, total, skips)
         where backfills.backfill_id = new.backfill_id and backfills.recovery_id = p_recovery_id
           and backfills.state = 'active' and backfills.due_at = 'infinity'
        returning backfills.job_id, new.skips),
    skipped as (
        insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became, queue, handler, reason, detail)
        select duly.occurrence_id(jobs.job_id, skip.first, 'schedule'), jobs.job_id, skip.first, skip.first, v_now, jobs.tenant, 0,
               'skipped'::duly.outcome, 'skipped'::duly.state, jobs.queue, jobs.handler, skip.reason,
               jsonb_build_object('first', skip.first, 'last', skip.last, 'count', skip.count)
          from decided join duly.jobs on jobs.job_id = decided.job_id
         cross join lateral jsonb_to_recordset(decided.skips) as skip(reason text, first timestamptz, last timestamptz, count bigint))
    select count(*) into v_decided from decided;
    return v_decided;
end $$;

-- Take the catch-ups under way over into a recovery, to change their rate or to stop them. Null: there are none, or one is not over.
create function duly.take_over_catch_ups_v1(p_recovery_id uuid, p_by text, p_limit integer) returns uuid
language plpgsql set enable_seqscan = off set jit = off as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    if not exists (select from duly.backfills where backfills.state = 'active' and backfills.origin = 'schedule' and backfills.recovery_id is null) then
        return null;
    end if;
    insert into duly.recoveries (recovery_id, state, opened_at, decided_at, decided_by)
    values (p_recovery_id, 'approved', v_now, v_now, p_by) on conflict do nothing;
    if not found then
        return null;
    end if;
    update duly.backfills set recovery_id = p_recovery_id where backfills.backfill_id in (
        select backfills.backfill_id from duly.backfills
         where backfills.state = 'active' and backfills.origin = 'schedule' and backfills.recovery_id is null limit p_limit);
    return p_recovery_id;
end $$;

revoke execute on function duly.note_overloads_v1, duly.coming_v1, duly.hold_missed_v1, duly.note_staging_v1, duly.hold_late_v1,
    duly.decide_missed_v1, duly.take_over_catch_ups_v1 from public;
