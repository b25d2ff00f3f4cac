-- Runs whose handler no live worker has are unroutable, so that no claim walks over them: docs/decisions/0022-unroutable-runs-leave-the-claim-index.md says why.

-- Mark as unroutable the runs whose handler no live worker of their queue has, where many are at the head of a subqueue: p_backlog among the first p_looks; or p_more,
-- where runs of the same kind are unroutable already. Walks from a subqueue on, over p_subqueues of them at most, looks into 20 at most, and ends with
-- the one of which it marked something. Returns how many runs it marked, and the subqueue to go on with; none when it has come to the end.
create or replace function duly.mark_unroutable(
    p_queue text, p_tenant integer, p_priority smallint, p_subqueues integer, p_backlog integer, p_more integer, p_looks integer,
    out moved integer, out queue text, out tenant integer, out priority smallint)
language plpgsql {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_left  integer := 20;
    v_head  record;
begin
    select ready.queue, ready.tenant, ready.priority, ready.handler into v_head from duly.ready
     where not ready.is_unroutable and (ready.queue, ready.tenant, ready.priority) >= (p_queue, p_tenant, p_priority)
     order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1;
    moved := 0;
    for step in 1 .. p_subqueues loop
        exit when v_head.queue is null;
        if exists (select from duly.workers where workers.until > v_now and v_head.queue = any (workers.queues)
                      and coalesce(workers.tenant, v_head.tenant) = v_head.tenant)
           and not exists (select from duly.workers where workers.until > v_now and v_head.queue = any (workers.queues)
                              and coalesce(workers.tenant, v_head.tenant) = v_head.tenant and v_head.handler = any (workers.handlers))
        then
            with known as materialized (               -- As of this very statement: who has come before it is among them.
                select workers.handlers from duly.workers where workers.until > v_now and v_head.queue = any (workers.queues)
                   and coalesce(workers.tenant, v_head.tenant) = v_head.tenant),
            front as materialized (
                select ready.ctid as tid, ready.handler from duly.ready
                 where not ready.is_unroutable and ready.queue = v_head.queue and ready.tenant = v_head.tenant and ready.priority = v_head.priority
                 order by ready.due_at limit p_looks),
            unknown as materialized (
                select front.tid from front where front.handler not in (select unnest(known.handlers) from known)),
            backlog as materialized (
                select unknown.tid from unknown where exists (select from known) and (select count(*) from unknown) >= case
                       when exists (select from duly.ready where ready.is_unroutable and ready.queue = v_head.queue and ready.handler = v_head.handler
                                       and ready.tenant = v_head.tenant) then p_more else p_backlog end)
            update duly.ready set is_unroutable = true
             where ctid = any (array(select ready.ctid from duly.ready where ready.ctid = any (array(select backlog.tid from backlog))
                                        and not ready.is_unroutable for update skip locked));
            get diagnostics moved = row_count;
            exit when moved > 0;
            v_left := v_left - 1;
        end if;
        select ready.queue, ready.tenant, ready.priority, ready.handler into v_head from duly.ready
         where not ready.is_unroutable and (ready.queue, ready.tenant, ready.priority) > (v_head.queue, v_head.tenant, v_head.priority)
         order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1;
        exit when v_left = 0;
    end loop;
    queue := v_head.queue;
    tenant := v_head.tenant;
    priority := v_head.priority;
end $$;

-- Return whether any run is unroutable, of these queues and handlers, and of this tenant where one is given. Looked up pair by pair, because not every
-- version of PostgreSQL takes two lists into one index; and first whether any run is unroutable at all, because mostly nothing does.
create or replace function duly.has_unroutable(p_queues text[], p_handlers text[], p_tenant integer) returns boolean language sql stable as $$
    select exists (select from duly.ready where ready.is_unroutable order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1)
       and exists (select from unnest(p_queues) as requested(queue) cross join unnest(p_handlers) as known(handler) cross join lateral (
                       select from duly.ready
                        where ready.is_unroutable and ready.queue = requested.queue and ready.handler = known.handler
                          and ready.tenant >= coalesce(p_tenant, 0) and ready.tenant <= coalesce(p_tenant, 2147483647)
                        order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as first)
$$;

-- Make claimable again unroutable runs of these queues, handlers and tenant, about p_limit runs: of each subqueue the oldest, and of each as many.
-- Locked runs are left for the next time. Returns how many there were.
create or replace function duly.restore_routable(p_queues text[], p_handlers text[], p_tenant integer, p_limit integer) returns integer
language plpgsql {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
declare
    c_subqueues constant integer := 256;
    v_to    integer := coalesce(p_tenant, 2147483647);
    v_back  integer;
begin
    with recursive walk as (
        select first.* from unnest(p_queues) as requested(queue) cross join unnest(p_handlers) as known(handler) cross join lateral (
            select ready.queue, ready.handler, ready.tenant, ready.priority from duly.ready
             where ready.is_unroutable and ready.queue = requested.queue and ready.handler = known.handler
               and ready.tenant >= coalesce(p_tenant, 0) and ready.tenant <= v_to
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as first
        union all
        select next.* from walk cross join lateral (
            select ready.queue, ready.handler, ready.tenant, ready.priority from duly.ready
             where ready.is_unroutable and ready.queue = walk.queue and ready.handler = walk.handler
               and (ready.tenant, ready.priority) > (walk.tenant, walk.priority) and ready.tenant <= v_to
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    subqueues as materialized (select * from walk limit c_subqueues),
    found as materialized (
        select slice.tid from subqueues cross join lateral (
            select ready.ctid as tid from duly.ready
             where ready.is_unroutable and ready.queue = subqueues.queue and ready.handler = subqueues.handler and ready.tenant = subqueues.tenant
               and ready.priority = subqueues.priority
             order by ready.due_at limit greatest(1, p_limit / (select count(*) from subqueues)) for update skip locked) as slice)
    update duly.ready set is_unroutable = false where ctid = any (array(select tid from found));
    get diagnostics v_back = row_count;
    return v_back;
end $$;

-- Make about p_limit runs claimable again whose handler some live worker has. Of its handlers it asks for those that have unroutable runs, where that
-- is not too much to be named: otherwise each kind of worker would ask in vain for all it knows.
create or replace function duly.restore_all_routable(p_limit integer) returns integer
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    c_kinds    constant integer := 1000;
    v_queues   text[];
    v_handlers text[];
    v_kinds    integer;
    v_kind     record;
    v_back     integer := 0;
begin
    with recursive walk as (
        (select ready.queue, ready.handler from duly.ready where ready.is_unroutable
          order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1)
        union all
        select next.queue, next.handler from walk cross join lateral (
            select ready.queue, ready.handler from duly.ready where ready.is_unroutable and (ready.queue, ready.handler) > (walk.queue, walk.handler)
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as next)
    select array_agg(distinct queue), array_agg(distinct handler), count(*) into v_queues, v_handlers, v_kinds
      from (select * from walk limit c_kinds) as kinds;
    for v_kind in
        select distinct
               case when v_kinds < c_kinds then array(select unnest(workers.queues) intersect select unnest(v_queues)) else workers.queues end as queues,
               case when v_kinds < c_kinds then array(select unnest(workers.handlers) intersect select unnest(v_handlers)) else workers.handlers end as handlers,
               workers.tenant
          from duly.workers
         where workers.until > duly.clock_now() and (v_kinds = c_kinds or (workers.queues && v_queues and workers.handlers && v_handlers))
    loop
        exit when v_back >= p_limit;
        v_back := v_back + duly.restore_routable(v_kind.queues, v_kind.handlers, v_kind.tenant, p_limit - v_back);
    end loop;
    return v_back;
end $$;

-- Runs that are due and that no live worker can run, by queue and handler, those that have waited longest first: how many, since when, of which
-- tenants, and whether more may be behind what was looked at. Of each of p_subqueues subqueues it looks at the first p_runs, because those that no worker takes
-- stays in front; of unroutable runs, at the first p_runs of p_subqueues kinds. A worker that is drained takes nothing.
create or replace function duly.unroutable(p_subqueues integer, p_runs integer, p_kinds integer)
returns table (queue text, handler text, runs bigint, is_more boolean, oldest_due_at timestamptz, tenants integer[], is_served boolean)
language plpgsql stable {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with recursive walk as (
        (select ready.queue, ready.tenant, ready.priority from duly.ready where not ready.is_unroutable
          order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1)
        union all
        select next.* from walk cross join lateral (
            select ready.queue, ready.tenant, ready.priority from duly.ready
             where not ready.is_unroutable and (ready.queue, ready.tenant, ready.priority) > (walk.queue, walk.tenant, walk.priority)
             order by ready.queue, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    unroutable_walk as (
        (select ready.queue, ready.handler, ready.tenant from duly.ready where ready.is_unroutable
          order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1)
        union all
        select next.* from unroutable_walk cross join lateral (
            select ready.queue, ready.handler, ready.tenant from duly.ready
             where ready.is_unroutable and (ready.queue, ready.handler, ready.tenant) > (unroutable_walk.queue, unroutable_walk.handler, unroutable_walk.tenant)
             order by ready.queue, ready.handler, ready.tenant, ready.priority, ready.due_at limit 1) as next),
    kinds as materialized (
        select walk.queue, first.handler, walk.tenant, count(*) as runs, bool_or(first.is_full) as is_more, min(first.due_at) as due_at
          from (select * from walk limit p_subqueues) as walk cross join lateral (
            select front.handler, front.due_at, count(*) over () >= p_runs as is_full from (
                select ready.handler, ready.due_at from duly.ready
                 where not ready.is_unroutable and ready.queue = walk.queue and ready.tenant = walk.tenant and ready.priority = walk.priority
                   and ready.due_at <= v_now
                 order by ready.due_at limit p_runs) as front) as first
         group by walk.queue, first.handler, walk.tenant
        union all
        select unroutable_walk.queue, unroutable_walk.handler, unroutable_walk.tenant, count(first.due_at), count(*) >= p_runs, min(first.due_at)
          from (select * from unroutable_walk limit p_subqueues) as unroutable_walk cross join lateral (
            select ready.due_at from duly.ready
             where ready.is_unroutable and ready.queue = unroutable_walk.queue and ready.handler = unroutable_walk.handler and ready.tenant = unroutable_walk.tenant
             order by ready.priority, ready.due_at limit p_runs) as first
         group by unroutable_walk.queue, unroutable_walk.handler, unroutable_walk.tenant)
    select kinds.queue, kinds.handler, sum(kinds.runs)::bigint, bool_or(kinds.is_more), min(kinds.due_at), array_agg(distinct kinds.tenant),
           bool_and(exists (select from duly.workers where workers.until > v_now and workers.draining_at is null and kinds.queue = any (workers.queues)
                               and coalesce(workers.tenant, kinds.tenant) = kinds.tenant))
      from kinds
     where not exists (select from duly.workers where workers.until > v_now and workers.draining_at is null and kinds.queue = any (workers.queues)
                          and kinds.handler = any (workers.handlers) and coalesce(workers.tenant, kinds.tenant) = kinds.tenant)
     group by kinds.queue, kinds.handler order by min(kinds.due_at), kinds.queue, kinds.handler limit p_kinds;
end $$;
