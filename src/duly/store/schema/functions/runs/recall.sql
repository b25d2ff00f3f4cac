-- Recall: take back runs that a worker holds ahead of their moment. docs/decisions/0012-runs-held-ahead-can-be-recalled.md says why.

-- Return whether a request may know the state of a worker's run: workers belong to all tenants, runs to one.
create or replace function duly.is_our_lease(p_run_id uuid) returns boolean language sql stable as $$
    select not duly.is_tenant_session() or exists (select from duly.leased where leased.run_id = p_run_id and duly.is_ours(leased.tenant))
$$;

-- Return whether a run that a worker holds has not started: nothing starts before it is due, and of the due ones the worker names those it has
-- not started (docs/decisions/0012-runs-held-ahead-can-be-recalled.md).
create or replace function duly.is_unstarted(p_run_id uuid, p_worker_id uuid, p_due_at timestamptz, p_now timestamptz) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select p_due_at > p_now or exists (select from duly.workers where workers.worker_id = p_worker_id and p_run_id = any (workers.unstarted))
       and duly.is_our_lease(p_run_id)
$$;

-- Return whether a run that a worker holds may still start, as far as is known without its answer. Only of a stalled worker the runs that have started
-- are known: its heartbeat names all others.
create or replace function duly.may_start(p_run_id uuid, p_worker_id uuid, p_due_at timestamptz) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select not exists (select from duly.workers where workers.worker_id = p_worker_id and p_due_at <= workers.stalled_at
                          and p_run_id <> all (workers.unstarted)) or not duly.is_our_lease(p_run_id)
$$;

-- The state of a held run, for people: `running` from its start.
create or replace function duly.held_state(p_run_id uuid, p_worker_id uuid, p_due_at timestamptz) returns text
language sql stable as $$
    select case when duly.is_unstarted(p_run_id, p_worker_id, p_due_at, duly.clock_now()) then 'ready' else 'running' end
$$;

-- The coming runs of a schedule, the latest first: staged and not started. Each run names the occurrence before it, so the walk starts at the
-- last one staged and ends at the first that has started, has left, or has made an attempt.
create or replace function duly.coming_runs(p_job_id uuid, p_last_at timestamptz, p_now timestamptz)
returns table (run_id uuid, scheduled_at timestamptz, due_at timestamptz, worker_id uuid, fence bigint)
language plpgsql stable {planned by index, in order} as $$
#variable_conflict use_column
declare
    v_moment timestamptz := p_last_at;
    v_run_id uuid;
begin
    for step in 1 .. 64 loop
        exit when v_moment is null;
        v_run_id := duly.occurrence_id(p_job_id, v_moment, 'schedule');
        select found.scheduled_at, found.due_at, found.worker_id, found.fence, found.previous
          into scheduled_at, due_at, worker_id, fence, v_moment
          from (select ready.scheduled_at, ready.due_at, null::uuid as worker_id, null::bigint as fence, ready.previous_scheduled_at as previous
                  from duly.ready where ready.run_id = v_run_id and ready.attempt = 0 and not coalesce(ready.options ?| array['concurrency', 'rate'], false)
                union all
                select leased.scheduled_at, leased.due_at, leased.worker_id, leased.fence, leased.previous_scheduled_at
                  from duly.leased where leased.run_id = v_run_id and leased.attempt = 1
                   and duly.is_unstarted(leased.run_id, leased.worker_id, leased.due_at, p_now)
                union all
                select blocked.scheduled_at, blocked.due_at, null, null, blocked.previous_scheduled_at
                  from duly.blocked where blocked.run_id = v_run_id and blocked.attempt = 0 and blocked.waits_for = 'recall') as found;
        exit when not found;
        run_id := v_run_id;
        return next;
    end loop;
end $$;

-- When a schedule fires next: its first coming run, else its pending fire; nothing while it is paused.
create or replace function duly.next_run_at(p_timer duly.timers, p_now timestamptz) returns timestamptz
language plpgsql stable as $$
declare
    v_first timestamptz;
begin
    if (p_timer).previous_scheduled_at is not null then
        select min(coming.scheduled_at) into v_first from duly.coming_runs((p_timer).job_id, (p_timer).previous_scheduled_at, p_now) as coming
         where (p_timer).due_at < 'infinity' or (p_timer).runs_left = 0 or coming.due_at > p_now;     -- Of a paused one, what is due goes on by itself.
    end if;
    return coalesce(v_first, case when (p_timer).due_at < 'infinity' then (p_timer).scheduled_at end);
end $$;

-- Ask workers to give back what they have not started: the first attempts of these schedules' occurrences, and these runs, due or not. A
-- run with a concurrency key or a rate is never held ahead, and a worker over HTTP takes only what is due. Answers which runs were asked
-- for, and when: a later caller's moment is later, so that each can withdraw its own request alone.
create or replace function duly.recall(p_job_ids uuid[], p_run_ids uuid[]) returns table (run_id uuid, fence bigint, sent_at timestamptz)
language plpgsql {planned by index, by loop} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    return query
    with held as (
        select ahead.run_id from duly.leased as ahead where ahead.job_id = any (p_job_ids) and ahead.attempt = 1
           and ahead.run_id = duly.occurrence_id(ahead.job_id, ahead.scheduled_at, 'schedule')
        union
        select requested.run_id from unnest(p_run_ids) as requested(run_id))
    insert into duly.signals (worker_id, run_id, fence, kind, sent_at)
    select leased.worker_id, leased.run_id, leased.fence, 'recall', v_now from held join duly.leased on leased.run_id = held.run_id
     where exists (select from duly.workers where workers.worker_id = leased.worker_id and workers.tenant is null) and not coalesce(leased.options ?| array['concurrency', 'rate'], false)
       and not exists (select from duly.signals as sent where sent.worker_id = leased.worker_id and sent.run_id = leased.run_id
                          and sent.fence = leased.fence and sent.kind = 'cancel')
    on conflict (worker_id, run_id, fence, kind) do update set sent_at = greatest(excluded.sent_at, signals.sent_at + interval '1 microsecond')
    returning run_id, fence, sent_at;
end $$;

-- Which recalls have no answer yet. A worker answers by giving the run back, or by dropping the signal because it has started the run.
create or replace function duly.unanswered(p_run_ids uuid[], p_fences bigint[]) returns setof uuid
language plpgsql stable {planned by index, by loop} as $$
begin
    return query
    select leased.run_id from unnest(p_run_ids, p_fences) as requested(run_id, fence)
      join duly.leased on leased.run_id = requested.run_id and leased.fence = requested.fence
     where exists (select from duly.signals where signals.worker_id = leased.worker_id and signals.run_id = leased.run_id
                      and signals.fence = leased.fence and signals.kind = 'recall');
end $$;

-- Let recalled runs go on to ready: those that no one took, and with them the recalls of this caller that no worker answered. Without ids, all
-- that have waited for longer than p_age, because the process that recalled them has died.
create or replace function duly.put_back(p_run_ids uuid[], p_sent timestamptz[], p_age interval) returns table (run_id uuid, queue text)
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    delete from duly.signals where signals.kind = 'recall'
       and case when p_run_ids is null then signals.sent_at < v_now - p_age
                else exists (select from unnest(p_run_ids, p_sent) as ours(run_id, sent_at)
                              where ours.run_id = signals.run_id and signals.sent_at <= ours.sent_at) end;
    return query
    with waiting as (
        delete from duly.blocked where ctid = any (array(
            select ctid from duly.blocked where blocked.waits_for = 'recall'
               and case when p_run_ids is null then blocked.blocked_at < v_now - p_age else blocked.run_id = any (p_run_ids) end
             limit 1000 for update skip locked))
        returning *)
    insert into duly.ready ({run})
    select {run}
      from waiting
    on conflict do nothing
    returning run_id, queue;
end $$;

-- End schedules whose last occurrence has started or has left: until then its spent next fire is kept, so that the schedule can still be
-- paused, edited and skipped. A run that is due and held counts as started after four seconds: its worker has named it by then if it has not.
create or replace function duly.complete(p_shards smallint[], p_now timestamptz) returns void
language plpgsql as $$
declare
    v_over uuid[];
begin
    with spent as (
        delete from duly.timers where ctid = any (array(
            select last.ctid from duly.timers as last
             where last.run_id is null and last.runs_left = 0 and last.shard + 0 = any (p_shards)       -- So timers_spent alone can serve.
               and not exists (select from duly.coming_runs(last.job_id, last.previous_scheduled_at, p_now - interval '4 seconds'))
             limit 1000 for update skip locked))
        returning job_id)
    select array_agg(job_id) into v_over from spent;
    if v_over is not null then
        update duly.jobs set state = 'completed', updated_at = p_now where jobs.job_id = any (v_over) and jobs.state = 'active';
    end if;
end $$;

grant execute on function duly.is_unstarted, duly.may_start, duly.held_state, duly.coming_runs, duly.next_run_at to duly_api;
