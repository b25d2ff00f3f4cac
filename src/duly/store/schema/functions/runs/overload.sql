-- Tenants that have more in a queue than it can do, and what is coming to them. docs/decisions/0027-load-shedding-and-recovery.md says why.

-- Record which tenants are overloaded in which queue: their oldest due run there is older than the queue's limit, or, where that is recorded
-- already, than half of it. A tenant's backlog does not slow another's runs, because claims share
-- out between tenants. Only the head of each subqueue is looked at, or the first of its first runs that a worker can take, where the queue is served at all:
-- runs without a worker for their handler wait for an operator. Unroutable runs count where no worker serves their queue. Paused scopes are left out, and so is
-- the backfill lane, which is meant to wait.
-- At most about twice a second, however many do it. Returns how many are recorded; null: another did it just now.
create or replace function duly.record_overloads(p_default interval, p_subqueues integer) returns integer
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    c_looks constant integer := 100;                   -- into a subqueue whose head is unroutable
    v_now   timestamptz := duly.clock_now();
begin
    insert into duly.maintenance_tasks (name, done_at) values ('overload', v_now)
    on conflict (name) do update set done_at = excluded.done_at
     where maintenance_tasks.done_at < excluded.done_at - interval '0.4 seconds' or maintenance_tasks.done_at > excluded.done_at;
    if not found then
        return null;
    end if;
    with recursive heads as (
        (select queue, tenant, priority, due_at from duly.ready where not is_unroutable order by queue, tenant, priority, due_at limit 1)
        union all
        select next.queue, next.tenant, next.priority, next.due_at from heads cross join lateral (
            select ready.queue, ready.tenant, ready.priority, ready.due_at from duly.ready
             where not ready.is_unroutable and (ready.queue, ready.tenant, ready.priority) > (heads.queue, heads.tenant, heads.priority)
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    unroutable_heads as (
        (select queue, handler, tenant, priority, due_at from duly.ready where is_unroutable order by queue, handler, tenant, priority, due_at limit 1)
        union all
        select next.queue, next.handler, next.tenant, next.priority, next.due_at from unroutable_heads cross join lateral (
            select ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at from duly.ready
             where ready.is_unroutable and (ready.queue, ready.handler, ready.tenant, ready.priority) > (unroutable_heads.queue, unroutable_heads.handler, unroutable_heads.tenant, unroutable_heads.priority)
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    oldest as (
        select each.tenant, each.queue, min(each.due_at) as due_at from (
            select head.tenant, head.queue, first.due_at from (select * from heads limit p_subqueues) as head cross join lateral (
                   select waiting.due_at from (
                       select ready.due_at, ready.handler from duly.ready
                        where not ready.is_unroutable and ready.queue = head.queue and ready.tenant = head.tenant and ready.priority = head.priority
                        order by ready.due_at limit c_looks) as waiting
                    where exists (select from duly.workers where workers.until > v_now and head.queue = any (workers.queues)
                                     and waiting.handler = any (workers.handlers) and coalesce(workers.tenant, head.tenant) = head.tenant)
                       or not exists (select from duly.workers where workers.until > v_now and head.queue = any (workers.queues)
                                         and coalesce(workers.tenant, head.tenant) = head.tenant)
                    limit 1) as first
             where head.priority < 100 and head.due_at <= v_now
               and not exists (select from duly.pauses where coalesce(pauses.tenant, head.tenant) = head.tenant and coalesce(pauses.queue, head.queue) = head.queue)
            union all                                  -- Where no worker serves the queue any more, unroutable runs wait like all the rest.
            select head.tenant, head.queue, head.due_at from (select * from unroutable_heads limit p_subqueues) as head
             where head.priority < 100 and head.due_at <= v_now
               and not exists (select from duly.workers where workers.until > v_now and head.queue = any (workers.queues)
                                  and coalesce(workers.tenant, head.tenant) = head.tenant)
               and not exists (select from duly.pauses where coalesce(pauses.tenant, head.tenant) = head.tenant and coalesce(pauses.queue, head.queue) = head.queue)) as each
         group by each.tenant, each.queue),
    judged as (
        select oldest.tenant, oldest.queue, oldest.due_at, coalesce(queue_ages.age_limit, p_default) as age_limit from oldest
          left join duly.queue_ages on queue_ages.queue = oldest.queue)
    insert into duly.overloads (tenant, queue, oldest_due_at, recorded_at, age_limit)
    select judged.tenant, judged.queue, judged.due_at, v_now, judged.age_limit from judged
     where v_now - judged.due_at > judged.age_limit
        or (v_now - judged.due_at > judged.age_limit / 2 and exists (select from duly.overloads where overloads.tenant = judged.tenant and overloads.queue = judged.queue))
     order by judged.tenant, judged.queue
    on conflict (tenant, queue) do update set oldest_due_at = excluded.oldest_due_at, recorded_at = excluded.recorded_at, age_limit = excluded.age_limit;
    delete from duly.overloads where overloads.recorded_at < v_now or overloads.recorded_at > v_now;
    return (select count(*) from duly.overloads);
end $$;

-- Count the fires due within the next minutes, by queue, minute and rhythm, with one of their tenants. Of many timers a part of the shards is read, over
-- which jobs are spread evenly, and counted for all.
create or replace function duly.upcoming(p_minutes integer, p_most integer)
returns table (queue text, minute integer, every_seconds integer, cohort bigint, scheduled_at timestamptz, fires bigint,
               tenant integer)
language plpgsql stable {planned by index, in order} as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_rows   double precision := greatest((select reltuples from pg_class where oid = 'duly.timers'::regclass), 1);
    v_shards integer := greatest(1, least(64, ceil(64 * p_most / v_rows)));
begin
    return query
    select timers.queue, floor(date_part('epoch', timers.due_at - v_now) / 60)::integer, timers.every_seconds, timers.cohort,
           case when timers.run_id is null then timers.scheduled_at end, count(*) * 64 / v_shards,
           min(timers.tenant)
      from generate_series(0, v_shards - 1) as part(number)
      join duly.timers on timers.shard = (part.number * 64 / v_shards)::smallint
       and timers.due_at > v_now and timers.due_at <= v_now + make_interval(mins => p_minutes)
     group by 1, 2, 3, 4, 5;
end $$;
