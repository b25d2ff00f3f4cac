-- One-shots that wait for the ends of others. docs/decisions/0035-dependencies-between-one-shots.md says why.
--
-- Locks are taken in this order: rows of boxes, concurrency keys, workflows, dependencies by child, those of `dependents`. So what holds a dependency
-- waits for nothing but another one, and passes over rows that somebody else has locked.

-- Record the dependencies of runs that are submitted here. Nothing is locked: the runs they depend on may be ending meanwhile, which
-- is for a check to see.
create or replace function duly.add_dependencies(p_tenant integer, p_children uuid[], p_options jsonb[], p_now timestamptz) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_bad record;
begin
    select left((given.options->'depends_on')::text, 100) as shown into v_bad from unnest(p_options) as given(options)
     where duly.is_depends_on(given.options->'depends_on') is not true limit 1;
    if found then
        raise exception using errcode = 'DU005',
            message = format('depends_on %s is not a list of 1 to 100 jobs, each once: give pairs such as ["<job id>", "success"], or failure, or always', v_bad.shown);
    end if;
    select requested.job_id, exists (select from duly.jobs where jobs.job_id = requested.job_id and jobs.tenant = p_tenant) as is_schedule into v_bad
      from (select distinct (pair->>0)::uuid as job_id from unnest(p_options) as given(options) cross join jsonb_array_elements(given.options->'depends_on') as pair) as requested
     where coalesce((select true from duly.timers where timers.run_id = requested.job_id and timers.job_id = requested.job_id and timers.tenant = p_tenant),
                    (select true from duly.blocked where blocked.run_id = requested.job_id and blocked.job_id = requested.job_id and blocked.tenant = p_tenant),
                    (select true from duly.ready where ready.run_id = requested.job_id and ready.job_id = requested.job_id and ready.tenant = p_tenant),
                    (select true from duly.leased where leased.run_id = requested.job_id and leased.job_id = requested.job_id and leased.tenant = p_tenant),
                    (select true from duly.dead where dead.run_id = requested.job_id and dead.job_id = requested.job_id and dead.tenant = p_tenant),
                    (select true from duly.attempts where attempts.run_id = requested.job_id and attempts.job_id = requested.job_id and attempts.tenant = p_tenant limit 1)) is null
     limit 1;
    if found then
        raise exception using errcode = 'DU005', message = case when v_bad.is_schedule
            then format('depends_on names job %s, which is a schedule and has no one end; let each of its runs trigger this job with on_end, or name a one-shot', v_bad.job_id)
            else format('depends_on names job %s, of which nothing is known; name one-shots of this tenant that wait, run or are still in the history', v_bad.job_id) end;
    end if;
    insert into duly.dependents (child, tenant, waits)
    select given.child, p_tenant, jsonb_array_length(given.options->'depends_on') from unnest(p_children, p_options) as given(child, options);
    insert into duly.dependencies (parent, child, tenant, on_end)
    select (pair->>0)::uuid, given.child, p_tenant, pair->>1
      from unnest(p_children, p_options) as given(child, options) cross join jsonb_array_elements(given.options->'depends_on') as pair;
    insert into duly.dependency_checks (child, due_at) select child, p_now from unnest(p_children) as child;
end $$;

-- Record ends that somebody waits for, until the transaction's own end. One that waited itself, and was cancelled or has expired, leaves
-- its counter behind. What ends while others are released is left to maintenance: a holder of some dependencies locks no more of them.
create or replace function duly.record_ends(p_run_ids uuid[], p_became text[]) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_mode text := coalesce(current_setting('duly.dependency_ends', true), '');
begin
    if v_mode = 'opening' then
        insert into duly.dependency_checks (child, due_at)
        select distinct child, duly.clock_now() from duly.dependencies where parent = any (p_run_ids);
        return;
    end if;
    insert into duly.dependency_checks (child, due_at) select child, duly.clock_now() from duly.dependents where child = any (p_run_ids);
    insert into duly.ended_dependencies (run_id, became, is_first)
    select ended.run_id, ended.became, v_mode = '' and row_number() over () = 1
      from unnest(p_run_ids, p_became) as ended(run_id, became)
     where (select true from duly.dependencies where dependencies.parent = ended.run_id limit 1);
    if found then
        perform set_config('duly.dependency_ends', 'recorded', true);
    end if;
end $$;

-- Advance workflows from what has ended in this transaction, at its end, and after its workflows. Of very many that wait for one run, all but the
-- first are left to maintenance.
create or replace function duly.advance_dependents() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now      timestamptz := duly.clock_now();
    v_parents  uuid[];
    v_states   text[];
    v_children uuid[];
begin
    if coalesce(current_setting('duly.ending', true), '') <> '' then
        insert into duly.ended_dependencies (run_id, became, is_first) select run_id, became, true from duly.ended_dependencies limit 1;   -- Queued behind them.
        return null;
    end if;
    with taken as (delete from duly.ended_dependencies returning run_id, became)
    select array_agg(run_id), array_agg(became) into v_parents, v_states from (select distinct on (run_id) run_id, became from taken) as ended;
    perform set_config('duly.dependency_ends', 'opening', true);
    v_children := array(select distinct child from duly.dependencies where parent = any (v_parents) order by child);
    insert into duly.dependency_checks (child, due_at) select child, v_now from unnest(v_children[1001:]) as child;
    v_children := v_children[:1000];
    perform from duly.dependents where child = any (v_children) order by child for no key update;
    perform duly.count_ends(v_parents, v_states, v_children);
    perform duly.open_dependents(v_children, v_now);
    perform set_config('duly.dependency_ends', '', true);
    return null;
end $$;

-- Count ends for those that wait, whose dependencies are locked. An end counts once: with its row.
create or replace function duly.count_ends(p_parents uuid[], p_states text[], p_children uuid[]) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
begin
    with found as materialized (                       -- Row by row: whatever the tables were when this was planned, each is looked up by its key.
        select edge.ctid, edge.child, edge.parent, edge.on_end, ended.state,
               duly.holds_for(edge.on_end, case ended.state when 'dead' then 'failed' else ended.state end) as holds
          from unnest(p_parents, p_states) as ended(run_id, state)
         cross join lateral (select ctid, child, parent, on_end from duly.dependencies where dependencies.parent = ended.run_id offset 0) as edge
         where edge.child = any (p_children)),
    removed as (delete from duly.dependencies where ctid = any (array(select ctid from found))),
    counted as (
        select child, count(*)::integer as ended,
               min(format('job %s is %s, and this was to run %s', parent, state,
                          case on_end when 'always' then 'after its end' else 'on its ' || on_end end)) filter (where not holds) as unmet
          from found group by child)
    update duly.dependents set waits = waits - reported.ended, unmet = coalesce(dependents.unmet, reported.unmet)
      from (select counted.ended, counted.unmet, dependent.ctid from counted
             cross join lateral (select ctid from duly.dependents where dependents.child = counted.child offset 0) as dependent) as reported
     where dependents.ctid = reported.ctid;
end $$;

-- Release those that wait for nothing any more, whose dependencies are locked: each goes on, or is skipped. One whose row somebody else
-- has locked is looked at later.
create or replace function duly.open_dependents(p_children uuid[], p_now timestamptz) returns void
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_moved uuid[] := '{}';
    v_one  duly.dependents;
begin
    v_moved := array(select child from duly.dependents where child = any (p_children) and waits = 0 and unmet is null);
    if v_moved <> '{}' then
        v_moved := duly.release_nodes(v_moved, p_now);
    end if;
    for v_one in select * from duly.dependents where child = any (p_children) and waits = 0 and unmet is not null order by child loop
        v_moved := v_moved || duly.end_nodes(array[v_one.child], 'skipped', v_one.unmet, p_now);
    end loop;
    delete from duly.dependents where child = any (v_moved);
    insert into duly.dependency_checks (child, due_at)
    select child, p_now + interval '0.5 seconds' from duly.dependents where child = any (p_children) and waits = 0;
end $$;

-- Look at runs that wait, so many at a time: at what was submitted while its dependencies were on their way to their ends, at what
-- depends on one that was skipped, at what was locked, and at what waits no more. How many were looked at.
--
-- Dependents are visible to all from the submit's commit on. A run that is in a box then, and that no other is moving, will
-- release them at its end; one that is in no box has ended; one that somebody is moving is looked at again.
--
-- A check is recorded half a second ahead at most, so one that lies further ahead is of the time before a step back of the
-- clock: it is due, for how much of its wait has passed is unknown, and a look too early is only repeated.
create or replace function duly.check_dependents(p_limit integer) returns integer
language plpgsql {planned by index, by loop, in order} as $$
#variable_conflict use_column
declare
    v_now      timestamptz := duly.clock_now();
    v_looks    integer;
    v_children uuid[];
    v_parents  uuid[];
    v_states   text[];
    v_moving   uuid[];
    v_moved     uuid[];
begin
    with taken as (
        delete from duly.dependency_checks where check_id = any (array(
            select check_id from duly.dependency_checks where due_at <= v_now or due_at > v_now + interval '0.5 seconds'
             order by check_id limit p_limit for update skip locked))
        returning child)
    select count(*), array_agg(distinct child) into v_looks, v_children from taken;
    if v_looks = 0 then
        return 0;
    end if;
    perform set_config('duly.dependency_ends', 'opening', true);
    perform from duly.dependents where child = any (v_children) order by child for no key update;
    v_moved := array(select child from unnest(v_children) as child
                     where (select true from duly.blocked where blocked.run_id = child and blocked.waits_for = 'dependency') is null);
    delete from duly.dependents where child = any (v_moved);
    delete from duly.dependencies where child = any (v_moved);
    with requested as materialized (select distinct parent from duly.dependencies where child = any (v_children)),
    placed as materialized (                           -- One statement, one snapshot: a run is in one box of it at most.
        select parent,
               coalesce((select true from duly.timers where timers.run_id = parent), (select true from duly.blocked where blocked.run_id = parent),
                        (select true from duly.ready where ready.run_id = parent), (select true from duly.leased where leased.run_id = parent), false) as is_live,
               coalesce((select true from duly.timers where timers.run_id = parent for key share skip locked),
                        (select true from duly.blocked where blocked.run_id = parent for key share skip locked),
                        (select true from duly.ready where ready.run_id = parent for key share skip locked),
                        (select true from duly.leased where leased.run_id = parent for key share skip locked), false) as is_free
          from requested),
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
        insert into duly.dependency_checks (child, due_at)
        select distinct child, v_now + interval '0.1 seconds' from duly.dependencies where parent = any (v_moving) and child = any (v_children);
    end if;
    if v_parents is not null then
        perform duly.count_ends(v_parents, v_states, v_children);
    end if;
    perform duly.open_dependents(v_children, v_now);
    perform set_config('duly.dependency_ends', '', true);
    return v_looks;
end $$;
