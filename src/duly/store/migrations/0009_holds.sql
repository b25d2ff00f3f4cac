-- Holds: an emergency stop that every claim reads. docs/decisions/0013-holds.md says why.

-- While a row stands here, nothing starts that it covers: everything, a queue, a tenant, or a tenant's share of a queue.
create table duly.holds (
    tenant       integer     check (tenant >= 1),       -- null: of every tenant
    queue        text        collate "C" check (queue <> ''),  -- null: of every queue
    reason       text        not null,
    held_by      text        not null,
    held_at      timestamptz not null
);
create unique index holds_by_scope on duly.holds (coalesce(tenant, 0), coalesce(queue, ''));

-- As before, but what is held stays where it is. A queue that is held whole is left out before anything is looked for in it; a
-- tenant that is held is passed over row by row.
create or replace function duly.claim_v1(p_worker_id uuid, p_queues text[], p_handlers text[], p_limit integer)
returns table (place tid, fence bigint, run_id uuid, job_id uuid, scheduled_at timestamptz, due_at timestamptz,
               previous_scheduled_at timestamptz, generation integer, tenant integer, attempt integer, priority smallint, losses smallint,
               suspect boolean, payload_stored boolean, queue text, handler text, payload jsonb, options jsonb)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_fence bigint;
    v_open  text[];
    v_each  integer;
begin
    perform from duly.workers where workers.worker_id = p_worker_id and workers.until > v_now for key share;
    if not found then
        raise exception using errcode = 'DU010', message = format('worker %s has no live lease', p_worker_id);
    end if;
    v_open := array(
        select asked.queue from unnest(p_queues) with ordinality as asked(queue, number)
         where not exists (select from duly.holds where holds.tenant is null and coalesce(holds.queue, asked.queue) = asked.queue)
         order by asked.number);
    if not exists (select from unnest(v_open) as wanted(queue) where exists (select from duly.ready where ready.queue = wanted.queue)) then
        return;                                        -- An idle poll ends here: no fence drawn, nothing written, no commit to wait for.
    end if;
    v_fence := nextval('duly.fences');
    v_each := ceil(p_limit::double precision / cardinality(v_open));
    return query
    with taken as (
        delete from duly.ready where ctid = any (array(
            select t.ctid from (select asked.queue,
                                       array(select holds.tenant from duly.holds
                                              where holds.tenant is not null and coalesce(holds.queue, asked.queue) = asked.queue) as held
                                  from unnest(v_open) with ordinality as asked(queue, number)
                                 order by (asked.number + v_fence) % cardinality(v_open)) as wanted
             cross join lateral (
                select ctid from duly.ready
                 where ready.queue = wanted.queue and ready.handler = any (p_handlers) and ready.tenant <> all (wanted.held)
                 order by rank limit v_each for update skip locked) as t
             limit p_limit))
        returning *)
    insert into duly.leased (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
                             suspect, payload_stored, queue, handler, payload, options, fence, worker_id, claimed_at)
    select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt + 1, priority, losses,
           suspect, payload_stored, queue, handler, payload, options, v_fence, p_worker_id, v_now
      from taken
    returning ctid, fence, run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,
              suspect, payload_stored, queue, handler, payload, options;
end $$;
