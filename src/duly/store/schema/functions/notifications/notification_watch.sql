-- The monitor of notifications: record what happened since its last pass, and what is wrong now, for every rule.
-- docs/decisions/0052-notifications-are-rows-and-deliveries-are-runs.md says why.

-- Let the monitor begin at this moment, unless it is reading for other rules already.
create or replace function duly.begin_watching(p_now timestamptz) returns void language plpgsql as $$
begin
    insert into duly.notification_cursor (cluster, ended, open, looked_at)
    select split_part(duly.cluster(), '/', 1), pg_snapshot_xmax(snapshot), array(select pg_snapshot_xip(snapshot)), p_now - interval '1 second'
      from (select pg_current_snapshot() as snapshot) as now
    on conflict (is_only) do update set cluster = excluded.cluster, ended = excluded.ended, open = excluded.open
     where not exists (select from duly.notification_rules);
end $$;

-- Return whether a filter selects what has this job's name, queue and tags. What has no name or tags is selected only by a filter that asks for none.
create or replace function duly.is_selected(p_selects jsonb, p_name text, p_queue text, p_tags jsonb) returns boolean language sql immutable parallel safe as $$
    select p_selects = '{}'
        or (coalesce(p_selects->'queue' ? p_queue, true)
            and case when p_selects ? 'name' then coalesce(p_selects->'name' ? p_name, false) else true end
            and case when p_selects ? 'name_prefix' then coalesce(starts_with(p_name, p_selects->>'name_prefix'), false) else true end
            and case when p_selects ? 'tags' then coalesce(p_tags @> (p_selects->'tags'), false) else true end
            and case when p_selects ? 'any_tags' then coalesce(p_tags ?| array(select jsonb_array_elements_text(p_selects->'any_tags')), false) else true end)
$$;

-- Make one pass for all rules, unless another process did just now: record what is new. Returns whether it made one. Without rules this is one read.
-- The cursor's row is the lock; it is moved on in the same transaction as the records are written, so a crash repeats both or neither.
create or replace function duly.watch(p_limit integer) returns boolean
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_cursor duly.notification_cursor;
    v_rule   duly.notification_rules;
    v_lost   boolean;
begin
    if not exists (select from duly.notification_rules) then
        return false;
    end if;
    select * into v_cursor from duly.notification_cursor
     where notification_cursor.looked_at <= v_now - interval '0.9 seconds' or notification_cursor.looked_at > v_now for update skip locked;
    if not found then
        return false;
    end if;
    perform duly.watch_history(v_cursor, p_limit, v_now);
    v_lost := exists (select from duly.workers where workers.until < v_now);
    for v_rule in
        select * from duly.notification_rules as rules
         where rules.events && array['late', 'absent', 'queue_age', 'paused', 'circuit_open'] order by rules.looked_at limit 100 for no key update skip locked
    loop
        if 'late' = any (v_rule.events) then
            perform duly.watch_overdue(v_rule, 'late', v_rule.late_to, v_rule.late_id, v_now - v_rule.late_after, p_limit, v_now);
        end if;
        if v_lost and 'absent' = any (v_rule.events) then
            perform duly.watch_lost(v_rule, v_now - v_rule.absent_after, p_limit, v_now);
        end if;
        if 'absent' = any (v_rule.events) then
            perform duly.watch_overdue(v_rule, 'absent', v_rule.absent_to, v_rule.absent_id, v_now - v_rule.absent_after, p_limit, v_now);
        end if;
        if v_rule.events && array['queue_age', 'paused', 'circuit_open'] then
            perform duly.watch_conditions(v_rule, v_now);
        end if;
        update duly.notification_rules set looked_at = v_now where notification_rules.tenant = v_rule.tenant and notification_rules.name = v_rule.name;
    end loop;
    return true;
end $$;

-- Read the ends that were not read yet, in the order of their transactions, p_limit failures and those of the last one's transaction; of successes only
-- those of jobs that are in a state of failure or absence. What is read and up to where is one statement, and so one snapshot.
create or replace function duly.watch_history(p_cursor duly.notification_cursor, p_limit integer, p_now timestamptz) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_cluster   text := split_part(duly.cluster(), '/', 1);
    v_ended     xid8;
    v_open      xid8[];
    v_job_ids   uuid[];
    v_run_ids   uuid[];
    v_succeeded boolean[];
    v_scheduled timestamptz[];
    v_finished  timestamptz[];
begin
    if v_cluster <> p_cursor.cluster or p_cursor.ended > pg_snapshot_xmax(pg_current_snapshot()) then      -- Restored elsewhere: transactions count anew.
        update duly.notification_cursor set cluster = v_cluster, ended = pg_snapshot_xmax(pg_current_snapshot()),
               open = array(select pg_snapshot_xip(pg_current_snapshot())), looked_at = p_now;
        return;
    end if;
    with failures as materialized (
        (select xid, run_id, job_id, tenant, attempt, outcome::text as outcome, became::text as became, queue, handler, scheduled_at, finished_at, reason, metadata
           from duly.attempts_failed
          where xid >= p_cursor.ended and xid < pg_snapshot_xmax(pg_current_snapshot()) and duly.is_of_this_cluster(xid, xmin)
          order by xid fetch first p_limit rows with ties)
        union all
        select xid, run_id, job_id, tenant, attempt, outcome::text, became::text, queue, handler, scheduled_at, finished_at, reason, metadata
          from duly.attempts_failed where xid = any (p_cursor.open) and duly.is_of_this_cluster(xid, xmin)),
    read as materialized (
        select case when count(*) filter (where xid >= p_cursor.ended) < p_limit then pg_snapshot_xmax(pg_current_snapshot())
                    else ((max(xid)::text::bigint + 1)::text)::xid8 end as upto from failures),
    judged as materialized (
        select rules.name as rule, rules.mode, rules.events, failures.*, jobs.name,
               case when outcome in ('failed', 'timed_out', 'lost')
                    then case when became = 'dead' and ('dead' = any (rules.events) or not 'failed' = any (rules.events)) then 'dead'
                              when 'failed' = any (rules.events) then 'failed' end
                    when became = 'expired' or reason in ('skipped_misfire', 'skipped_overlap', 'skipped_limit') then 'absent' end as event
          from failures
          join duly.notification_rules as rules on rules.tenant = failures.tenant and rules.created_at <= failures.finished_at
          left join duly.jobs on jobs.job_id = failures.job_id
         where failures.handler <> '@notification' and duly.is_selected(rules.selects, jobs.name, failures.queue, failures.metadata->'tags')),
    broken as materialized (                           -- By rule and job: what it comes to, and whether that is worse than what is known of it.
        select ended.tenant, ended.rule, ended.job_id, ended.event, ended.name, ended.first_at, ended.last_at,
               states.key is null or (states.event = 'failed' and ended.event = 'dead') as is_worse
          from (select tenant, rule, job_id, min(name) as name, min(finished_at) as first_at, max(finished_at) as last_at,
                       case when bool_or(event = 'dead') then 'dead' else 'failed' end as event
                  from judged
                 where event in ('failed', 'dead') and event = any (events) and (mode = 'on_change' or 'recovered' = any (events))
                 group by tenant, rule, job_id) as ended
          left join duly.notification_states as states
            on states.tenant = ended.tenant and states.rule = ended.rule and states.key = 'job/' || ended.job_id),
    missed as materialized (                           -- By rule and job: absences that were not noticed yet, and whether the job was absent already.
        select ended.*, states.key is null as is_new
          from (select tenant, rule, job_id, min(name) as name, min(scheduled_at) as first_at, max(scheduled_at) as last_at
                  from judged
                 where event = 'absent' and 'absent' = any (events) and job_id <> run_id and (mode = 'on_change' or 'recovered' = any (events))
                   and not exists (select from duly.notifications as known
                                    where known.tenant = judged.tenant and known.rule = judged.rule
                                      and known.key = format('absent/%s/%s', judged.job_id, date_part('epoch', judged.scheduled_at)))
                 group by tenant, rule, job_id) as ended
          left join duly.notification_states as states
            on states.tenant = ended.tenant and states.rule = ended.rule and states.key = 'absent/' || ended.job_id),
    absent as (
        insert into duly.notification_states (tenant, rule, key, event, subject, job_id, since, last_at)
        select tenant, rule, 'absent/' || job_id, 'absent', coalesce(name, job_id::text), job_id, first_at, last_at from missed
        on conflict (tenant, rule, key) do update set last_at = greatest(notification_states.last_at, excluded.last_at)),
    kept as (
        insert into duly.notification_states (tenant, rule, key, event, subject, job_id, since, last_at)
        select tenant, rule, 'job/' || job_id, event, coalesce(name, job_id::text), job_id, first_at, last_at from broken
        on conflict (tenant, rule, key) do update
           set event = case when notification_states.event = 'dead' then 'dead' else excluded.event end,
               last_at = greatest(notification_states.last_at, excluded.last_at)),
    -- On change, of the first attempt that is worse, and of the first absence.
    noticed as (
        insert into duly.notifications (tenant, rule, event, key, subject, job_id, run_id, attempt, queue, reason, happened_at, noticed_at)
        select tenant, rule, event, key, subject, job_id, run_id, attempt, queue, left(reason, 500), finished_at, p_now
          from (select judged.tenant, judged.rule, judged.event, judged.job_id, judged.run_id, judged.attempt, judged.queue, judged.reason, judged.finished_at,
                       case when judged.event = 'absent' then format('absent/%s/%s', judged.job_id, date_part('epoch', judged.scheduled_at))
                            else format('%s/%s/%s', judged.event, judged.run_id, judged.attempt) end as key,
                       coalesce(judged.name, judged.handler) as subject,
                       judged.mode <> 'on_change'
                       or (case when judged.event = 'absent' then missed.is_new else broken.is_worse and judged.event = broken.event end
                           and row_number() over (partition by judged.tenant, judged.rule, judged.job_id, judged.event order by judged.finished_at) = 1) as is_notified
                  from judged
                  left join broken on broken.tenant = judged.tenant and broken.rule = judged.rule and broken.job_id = judged.job_id
                  left join missed on missed.tenant = judged.tenant and missed.rule = judged.rule and missed.job_id = judged.job_id
                 where judged.event = any (judged.events)
                   and (judged.event <> 'absent' or judged.job_id <> judged.run_id)) as found
         where is_notified order by finished_at
        on conflict (tenant, rule, key) do nothing),
    -- The last success of each job in such a state, and the last failure, which ends an absence: the job ran.
    ran as materialized (
        select distinct on (ended.job_id, ended.is_success) ended.job_id, ended.is_success, ended.run_id, ended.finished_at,
               max(ended.scheduled_at) over (partition by ended.job_id, ended.is_success) as scheduled_at
          from (select xid, job_id, run_id, scheduled_at, finished_at, true as is_success from duly.attempts_succeeded
                 where xid >= p_cursor.ended and xid < (select upto from read) and duly.is_of_this_cluster(xid, xmin)
                union all
                select xid, job_id, run_id, scheduled_at, finished_at, true from duly.attempts_succeeded
                 where xid = any (p_cursor.open) and duly.is_of_this_cluster(xid, xmin)
                union all
                select xid, job_id, run_id, scheduled_at, finished_at, false from failures where outcome in ('failed', 'timed_out')) as ended
         where exists (select from duly.notification_states as states where states.job_id = ended.job_id and states.event <> 'paused')
            or exists (select from broken where broken.job_id = ended.job_id)
            or exists (select from missed where missed.job_id = ended.job_id)
         order by ended.job_id, ended.is_success, ended.finished_at desc)
    select (select upto from read),
           array(select xip from pg_snapshot_xip(pg_current_snapshot()) as xip where xip < (select upto from read)),
           (select array_agg(job_id) from ran), (select array_agg(run_id) from ran), (select array_agg(is_success) from ran),
           (select array_agg(scheduled_at) from ran), (select array_agg(finished_at) from ran)
      into v_ended, v_open, v_job_ids, v_run_ids, v_succeeded, v_scheduled, v_finished;
    update duly.notification_cursor set ended = v_ended, open = v_open, looked_at = p_now;
    if v_job_ids is not null then
        with over as (
            delete from duly.notification_states as states
             using unnest(v_job_ids, v_run_ids, v_succeeded, v_scheduled, v_finished) as ran(job_id, run_id, is_success, scheduled_at, finished_at)
             where states.job_id = ran.job_id
               and case states.event when 'paused' then false
                                     when 'absent' then ran.scheduled_at >= states.last_at     -- An earlier occurrence that ends now was not absent.
                                     else ran.is_success and ran.finished_at > states.last_at end
            returning states.*, ran.run_id, ran.finished_at)
        insert into duly.notifications (tenant, rule, event, key, subject, job_id, run_id, reason, happened_at, noticed_at)
        select over.tenant, over.rule, 'recovered', format('recovered/%s/%s/%s', case over.event when 'absent' then 'absent' else 'job' end, over.run_id, date_part('epoch', over.since)),
               over.subject, over.job_id, over.run_id,
               format('%s since %s', over.event, duly.moment_text(over.since)), over.finished_at, p_now
          from over join duly.notification_rules as rules on rules.tenant = over.tenant and rules.name = over.rule
         where 'recovered' = any (rules.events)
        on conflict (tenant, rule, key) do nothing;
    end if;
    perform duly.watch_job_pauses(p_cursor, v_ended, v_open, p_now);
end $$;

-- Notice pauses of jobs and their ends. Both are changes of the job's definition, read in the order of their transactions from the cursor up to p_ended; a state
-- keeps that a job is paused under a rule, so that the end of an earlier pause is no recovery.
create or replace function duly.watch_job_pauses(p_cursor duly.notification_cursor, p_ended xid8, p_open xid8[], p_now timestamptz) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
begin
    with changes as materialized (
        select changes.*, rules.name as rule, rules.events, coalesce(changes.name, changes.job_id::text) as subject, 'pause/' || changes.job_id as key,
               left(jobs.pause_reason, 500) as reason, row_number() over latest = 1 as is_last,
               lag(changes.change) over so_far as change_before, lag(changes.changed_at) over so_far as changed_before
          from (select * from duly.job_changes
                 where job_changes.xid >= p_cursor.ended and job_changes.xid < p_ended and duly.is_of_this_cluster(job_changes.xid, job_changes.xmin)
                union all
                select * from duly.job_changes
                 where job_changes.xid = any (p_cursor.open) and not job_changes.xid = any (p_open)
                   and duly.is_of_this_cluster(job_changes.xid, job_changes.xmin)) as changes
          join duly.notification_rules as rules on rules.tenant = changes.tenant and 'paused' = any (rules.events) and rules.created_at <= changes.changed_at
          left join duly.jobs on jobs.job_id = changes.job_id
         where changes.change in ('paused', 'resumed', 'completed', 'cancelled') and not changes.xid = any (p_open)
           and duly.is_selected(rules.selects, changes.name, changes.queue, jobs.options->'tags')
        window so_far as (partition by rules.tenant, rules.name, changes.job_id order by changes.number),
               latest as (partition by rules.tenant, rules.name, changes.job_id order by changes.number desc)),
    begun as (
        insert into duly.notification_states (tenant, rule, key, event, subject, job_id, since, last_at)
        select tenant, rule, key, 'paused', subject, job_id, changed_at, changed_at from changes where is_last and change = 'paused'
        on conflict (tenant, rule, key) do update set since = excluded.since, last_at = excluded.last_at),
    over as (
        delete from duly.notification_states as states using changes
         where changes.is_last and changes.change <> 'paused'
           and states.tenant = changes.tenant and states.rule = changes.rule and states.key = changes.key),
    found as (
        select changes.*, 'paused' as event, reason as says from changes where change = 'paused'
        union all
        select changes.*, 'recovered', format('paused since %s', duly.moment_text(coalesce(changed_before, states.since)))
          from changes
          left join duly.notification_states as states on states.tenant = changes.tenant and states.rule = changes.rule and states.key = changes.key
         where changes.change = 'resumed' and 'recovered' = any (changes.events)
           and case when change_before is null then states.key is not null else change_before = 'paused' end)
    insert into duly.notifications (tenant, rule, event, key, subject, job_id, queue, reason, happened_at, noticed_at)
    select tenant, rule, event, format('%s/%s/%s', case event when 'paused' then 'paused' else 'resumed' end, job_id, date_part('epoch', changed_at)),
           subject, job_id, queue, says, changed_at, p_now
      from found order by number
    on conflict (tenant, rule, key) do nothing;
end $$;

-- Return the subqueues of ready of one tenant, unroutable runs among them: each with its queue, handler and priority. The handler is null where the order
-- is by queue alone. One step of an index for each queue.
create or replace function duly.subqueues_of(p_tenant integer) returns table (queue text, handler text, priority smallint)
language plpgsql stable {planned by index, in order} as $$
#variable_conflict use_column
begin
    return query
    with recursive queues as (
        (select ready.queue from duly.ready where not ready.is_unroutable order by ready.queue limit 1)
        union all
        select (select ready.queue from duly.ready where not ready.is_unroutable and ready.queue > queues.queue order by ready.queue limit 1)
          from queues where queues.queue is not null),
    unroutable as (
        (select ready.queue, ready.handler from duly.ready where ready.is_unroutable order by ready.queue, ready.handler limit 1)
        union all
        select next.* from unroutable cross join lateral (
            select ready.queue, ready.handler from duly.ready where ready.is_unroutable and (ready.queue, ready.handler) > (unroutable.queue, unroutable.handler)
             order by ready.queue, ready.handler limit 1) as next)
    select subqueues.queue, subqueues.handler, priorities.priority::smallint
      from (select queues.queue, null::text as handler from queues where queues.queue is not null
            union all select unroutable.queue, unroutable.handler from unroutable) as subqueues
     cross join generate_series(0, 9) as priorities(priority)
     where subqueues.queue <> '@notifications';
end $$;

-- The runs and next fires of a tenant that are due after one moment and id, up to another moment, and have not started: they wait in timers or in ready. Those
-- that wait for a slot, a rate, a destination or another job wait for what was asked, and are none of them.
create or replace function duly.overdue(p_tenant integer, p_after timestamptz, p_after_id uuid, p_upto timestamptz, p_limit integer)
returns table (id uuid, run_id uuid, job_id uuid, scheduled_at timestamptz, due_at timestamptz, queue text, handler text, tags jsonb)
language plpgsql stable {planned by index, by loop, in order} as $$
#variable_conflict use_column
begin
    return query
    select coalesce(waiting.run_id, waiting.job_id), waiting.run_id, waiting.job_id, waiting.scheduled_at, waiting.due_at, waiting.queue, waiting.handler,
           waiting.options->'tags'
      from (
        select timers.* from generate_series(0, 63) as shards(shard) cross join lateral (
            select timers.run_id, timers.job_id, timers.scheduled_at, timers.due_at, timers.queue, timers.handler, timers.options from duly.timers
             where timers.shard = shards.shard::smallint and timers.due_at >= p_after and timers.due_at <= p_upto and timers.tenant = p_tenant
               and timers.priority < 100 and (timers.due_at, coalesce(timers.run_id, timers.job_id)) > (p_after, p_after_id)
             order by timers.due_at, coalesce(timers.run_id, timers.job_id) limit p_limit) as timers
        union all
        select ready.* from duly.subqueues_of(p_tenant) as subqueue cross join lateral (
            select ready.run_id, ready.job_id, ready.scheduled_at, ready.due_at, ready.queue, ready.handler, ready.options from duly.ready
             where subqueue.handler is null and not ready.is_unroutable and ready.queue = subqueue.queue and ready.tenant = p_tenant
               and ready.priority = subqueue.priority and ready.due_at >= p_after and ready.due_at <= p_upto
               and (ready.due_at, ready.run_id) > (p_after, p_after_id)
             order by ready.due_at, ready.run_id limit p_limit) as ready
        union all
        select ready.* from duly.subqueues_of(p_tenant) as subqueue cross join lateral (
            select ready.run_id, ready.job_id, ready.scheduled_at, ready.due_at, ready.queue, ready.handler, ready.options from duly.ready
             where subqueue.handler is not null and ready.is_unroutable and ready.queue = subqueue.queue and ready.handler = subqueue.handler
               and ready.tenant = p_tenant and ready.priority = subqueue.priority and ready.due_at >= p_after and ready.due_at <= p_upto
               and (ready.due_at, ready.run_id) > (p_after, p_after_id)
             order by ready.due_at, ready.run_id limit p_limit) as ready) as waiting
     order by waiting.due_at, coalesce(waiting.run_id, waiting.job_id) limit p_limit;
end $$;

-- Return whether a job is in a state of absence under a rule: an occurrence of it did not run, and none has run since.
create or replace function duly.is_absent(p_rule duly.notification_rules, p_job_id uuid) returns boolean language sql stable as $$
    select exists (select from duly.notification_states
                    where notification_states.tenant = p_rule.tenant and notification_states.rule = p_rule.name and notification_states.key = 'absent/' || p_job_id)
$$;

-- Judge, for one rule, the runs whose limit has passed since the last pass, p_limit of them: each is judged once, when its limit passes. Late is any of them;
-- absent is an occurrence of a schedule.
create or replace function duly.watch_overdue(
    p_rule duly.notification_rules, p_event text, p_after timestamptz, p_after_id uuid, p_upto timestamptz, p_limit integer, p_now timestamptz)
returns void language plpgsql as $$
#variable_conflict use_column
declare
    v_found integer;
    v_to    timestamptz;
    v_id    uuid;
begin
    if p_upto <= p_after then
        return;
    end if;
    with waiting as materialized (
        select * from duly.overdue(p_rule.tenant, p_after, p_after_id, p_upto, p_limit)),
    found as materialized (
        select waiting.*, coalesce(jobs.name, waiting.handler) as subject,
               row_number() over (partition by waiting.job_id order by waiting.due_at, waiting.id) as number
          from waiting left join duly.jobs on jobs.job_id = waiting.job_id
         where waiting.handler <> '@notification' and (p_event = 'late' or waiting.job_id is distinct from waiting.run_id)
           and duly.is_selected(p_rule.selects, jobs.name, waiting.queue, waiting.tags)),
    noticed as (
        insert into duly.notifications (tenant, rule, event, key, subject, job_id, run_id, queue, reason, happened_at, noticed_at)
        select p_rule.tenant, p_rule.name, p_event,
               case when p_event = 'absent' then format('absent/%s/%s', found.job_id, date_part('epoch', found.scheduled_at))
                    else format('late/%s/%s', found.id, date_part('epoch', found.due_at)) end,
               found.subject, found.job_id, found.run_id, found.queue,
               case when found.run_id is null then 'no scheduler has staged it' else 'no worker has started it' end, found.due_at, p_now
          from found
         where p_event = 'late' or p_rule.mode <> 'on_change' or (found.number = 1 and not duly.is_absent(p_rule, found.job_id))
         order by found.due_at, found.id
        on conflict (tenant, rule, key) do nothing),
    absent as (
        insert into duly.notification_states (tenant, rule, key, event, subject, job_id, since, last_at)
        select p_rule.tenant, p_rule.name, 'absent/' || job_id, 'absent', min(subject), job_id, min(scheduled_at), max(scheduled_at)
          from found where p_event = 'absent' and (p_rule.mode = 'on_change' or 'recovered' = any (p_rule.events)) group by job_id
        on conflict (tenant, rule, key) do update set last_at = greatest(notification_states.last_at, excluded.last_at))
    select count(*), (array_agg(due_at order by due_at desc, id desc))[1], (array_agg(id order by due_at desc, id desc))[1] into v_found, v_to, v_id from waiting;
    if v_found < p_limit then
        v_to := p_upto;
        v_id := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    end if;
    if p_event = 'late' then
        update duly.notification_rules set late_to = v_to, late_id = v_id
         where notification_rules.tenant = p_rule.tenant and notification_rules.name = p_rule.name;
    else
        update duly.notification_rules set absent_to = v_to, absent_id = v_id
         where notification_rules.tenant = p_rule.tenant and notification_rules.name = p_rule.name;
    end if;
end $$;

-- Notice, for one rule, p_limit occurrences that were due by p_upto, and that a worker holds whose lease had run out by then: nobody has taken them back.
-- A scheduler does so within seconds, so there are such runs only while none lives, and they are no more than workers hold.
create or replace function duly.watch_lost(p_rule duly.notification_rules, p_upto timestamptz, p_limit integer, p_now timestamptz)
returns void language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
begin
    with held as (
        select leased.*, coalesce(jobs.name, leased.handler) as subject, format('absent/%s/%s', leased.job_id, date_part('epoch', leased.scheduled_at)) as key,
               row_number() over (partition by leased.job_id order by leased.due_at, leased.run_id) as number
          from duly.workers
          join duly.leased on leased.worker_id = workers.worker_id
          left join duly.jobs on jobs.job_id = leased.job_id
         where workers.until <= p_upto and leased.due_at <= p_upto and leased.tenant = p_rule.tenant and leased.job_id <> leased.run_id
           and duly.is_selected(p_rule.selects, jobs.name, leased.queue, leased.options->'tags')),
    found as materialized (
        select * from held
         where not exists (select from duly.notifications as known
                            where known.tenant = p_rule.tenant and known.rule = p_rule.name and known.key = held.key)
           and (p_rule.mode <> 'on_change' or (held.number = 1 and not duly.is_absent(p_rule, held.job_id)))
         limit p_limit),
    absent as (
        insert into duly.notification_states (tenant, rule, key, event, subject, job_id, since, last_at)
        select p_rule.tenant, p_rule.name, 'absent/' || job_id, 'absent', min(subject), job_id, min(scheduled_at), max(scheduled_at)
          from found where p_rule.mode = 'on_change' or 'recovered' = any (p_rule.events) group by job_id
        on conflict (tenant, rule, key) do update set last_at = greatest(notification_states.last_at, excluded.last_at))
    insert into duly.notifications (tenant, rule, event, key, subject, job_id, run_id, queue, reason, happened_at, noticed_at)
    select p_rule.tenant, p_rule.name, 'absent', found.key, found.subject, found.job_id, found.run_id, found.queue,
           'its worker is lost, and no scheduler has taken it back', found.due_at, p_now
      from found
    on conflict (tenant, rule, key) do nothing;
end $$;

-- Compare, for one rule, what is wrong now with what was: backlogs, pauses, open circuits. What begins is noticed, and what ends is a recovery.
create or replace function duly.watch_conditions(p_rule duly.notification_rules, p_now timestamptz) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
begin
    with wrong as materialized (
        select 'queue_age' as event, 'queue/' || oldest.queue as key, oldest.queue as subject, oldest.queue, oldest.due_at as since,
               format('its oldest run has been due since %s', duly.moment_text(oldest.due_at)) as reason
          from (select subqueue.queue, min(first.due_at) as due_at from duly.subqueues_of(p_rule.tenant) as subqueue cross join lateral (
                    (select ready.due_at from duly.ready
                      where subqueue.handler is null and not ready.is_unroutable and ready.queue = subqueue.queue and ready.tenant = p_rule.tenant
                        and ready.priority = subqueue.priority
                      order by ready.due_at limit 1)
                    union all
                    (select ready.due_at from duly.ready
                      where subqueue.handler is not null and ready.is_unroutable and ready.queue = subqueue.queue and ready.handler = subqueue.handler
                        and ready.tenant = p_rule.tenant and ready.priority = subqueue.priority
                      order by ready.due_at limit 1)) as first
                 group by subqueue.queue) as oldest
         where 'queue_age' = any (p_rule.events) and oldest.due_at < p_now - p_rule.queue_age and duly.is_selected(p_rule.selects, null, oldest.queue, null)
        union all
        select 'paused', format('pause/%s/%s', coalesce(pauses.tenant, 0), coalesce(pauses.queue, '')),
               case when pauses.queue is not null then 'queue ' || pauses.queue when pauses.tenant is not null then 'the tenant' else 'everything' end,
               pauses.queue, pauses.paused_at, pauses.reason
          from duly.pauses
         where 'paused' = any (p_rule.events) and coalesce(pauses.tenant, p_rule.tenant) = p_rule.tenant
           and (pauses.queue is null or duly.is_selected(p_rule.selects - array['name', 'name_prefix', 'tags', 'any_tags'], null, pauses.queue, null))
        union all
        select 'circuit_open', 'circuit/' || destinations.origin, destinations.origin, null, destinations.state_changed_at,
               format('%s failures in a row', destinations.failures_in_a_row)
          from duly.destinations
         where 'circuit_open' = any (p_rule.events) and destinations.state <> 'closed' and destinations.tenant = p_rule.tenant),
    begun as (
        insert into duly.notification_states (tenant, rule, key, event, subject, since, last_at)
        select p_rule.tenant, p_rule.name, wrong.key, wrong.event, wrong.subject, wrong.since, p_now from wrong
        on conflict (tenant, rule, key) do nothing
        returning key),
    over as (
        delete from duly.notification_states as states
         where states.tenant = p_rule.tenant and states.rule = p_rule.name and states.job_id is null and not exists (select from wrong where wrong.key = states.key)
        returning states.*)
    insert into duly.notifications (tenant, rule, event, key, subject, queue, reason, happened_at, noticed_at)
    select p_rule.tenant, p_rule.name, wrong.event, format('%s/%s', wrong.key, date_part('epoch', p_now)), wrong.subject, wrong.queue, left(wrong.reason, 500), wrong.since, p_now
      from wrong join begun on begun.key = wrong.key
    union all
    select p_rule.tenant, p_rule.name, 'recovered', format('recovered/%s/%s', over.key, date_part('epoch', p_now)), over.subject, null,
           format('%s since %s', over.event, duly.moment_text(over.since)), p_now, p_now
      from over where 'recovered' = any (p_rule.events)
    on conflict (tenant, rule, key) do nothing;
end $$;

-- Carry the notifications of a rule from one number up to another in deliveries, one for each of its channels. False: another process has done so.
create or replace function duly.send_notifications(p_tenant integer, p_rule text, p_after bigint, p_upto bigint, p_count integer) returns boolean
language plpgsql {planned by index} as $$
#variable_conflict use_column
declare
    v_now      timestamptz := duly.clock_now();
    v_channels text[];
begin
    update duly.notification_rules set sent_to = p_upto, sent_at = v_now
     where notification_rules.tenant = p_tenant and notification_rules.name = p_rule and notification_rules.sent_to = p_after
    returning notification_rules.channels into v_channels;
    if not found then
        return false;
    end if;
    perform duly.put_delivery(p_tenant, p_rule, channel, duly.run_id(v_now, format('notification/%s/%s/%s/%s', p_tenant, p_rule, channel, p_upto)),
                              p_after, p_upto, p_count, v_now)
       from unnest(v_channels) as channel;
    return true;
end $$;
