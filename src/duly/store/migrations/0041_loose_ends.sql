-- Loose ends: what was to be looked at when the clock was set back, turns that were granted before a destination
-- turned, and who of two has cancelled a workflow.

------------------------------------------------------------------------------------------------------------------ checks

-- As before. A check is noted half a second ahead at most, so one that lies further ahead is of the time before a step back of the
-- clock: it is due, for nobody knows how much of its wait has passed, and a look too early is only repeated.
create or replace function duly.check_followers_v1(p_limit integer) returns integer
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
            select check_id from duly.follow_checks where due_at <= v_now or due_at > v_now + interval '0.5 seconds'
             order by check_id limit p_limit for update skip locked))
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

----------------------------------------------------------------------------------------------------------------- errands

-- Whether an errand is due. One is noted a second ahead at most, and one that has failed as far as its tries say: what lies further
-- ahead is of the time before a step back of the clock, as a check of followers is.
create function duly.is_errand_due(p_due_at timestamptz, p_tries smallint, p_now timestamptz) returns boolean
language sql immutable parallel safe as $$
    select p_due_at <= p_now or p_due_at > p_now + least(power(2, greatest(p_tries - 1, 0)), 60) * interval '1 second'
$$;

-- As before, by that.
create or replace function duly.run_errand_v1() returns text
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now    timestamptz := duly.clock_now();
    v_errand duly.errands;
begin
    delete from duly.errands where errand_id = (
        select errand_id from duly.errands where duly.is_errand_due(due_at, tries, v_now) and what <> 'settle' order by errand_id limit 1 for update skip locked)
    returning * into v_errand;
    if not found then
        return case when duly.stop_orphans_v1() > 0 then 'done'
                    when exists (select from duly.errands where what = 'settle' and duly.is_errand_due(due_at, tries, v_now)) then 'settle' else 'none' end;
    end if;
    begin
        perform duly.do_errand_v1(v_errand, v_now);
        set constraints duly.endings_seen_to immediate;                 -- So that what follows from it fails here, and not at the commit.
        set constraints duly.endings_seen_to deferred;
    exception when others then                         -- It must not stand before all others: it comes again later, behind them.
        raise warning 'errand % of workflow % is put off: %', v_errand.what, v_errand.workflow_id, sqlerrm;
        insert into duly.errands (workflow_id, what, due_at, leaving, tries)
        values (v_errand.workflow_id, v_errand.what, v_now + least(power(2, v_errand.tries), 60) * interval '1 second', v_errand.leaving,
                least(v_errand.tries + 1, 30));
    end;
    return 'done';
end $$;

revoke execute on function duly.is_errand_due from public;

------------------------------------------------------------------------------------------------------------ destinations

-- As before. Turns that were granted ahead are in workers' hands, and stay owed: reckoned at the rate there was, or, where there was none,
-- at the one that comes, for time that passes without a rate pays for nothing. Otherwise they would be granted a second time.
create or replace function duly.turn_destination_v1(p_destination_id uuid, p_turn integer, p_state text, p_openings integer, p_wait double precision,
                                                    p_ramp_rate double precision, p_ramp_grows boolean) returns boolean
language plpgsql as $$
declare
    v_now  timestamptz := duly.clock_now();
    v_row  duly.destinations;
    v_rate double precision;
begin
    select * into v_row from duly.destinations where destination_id = p_destination_id and turn = p_turn for no key update;
    if not found then
        return false;
    end if;
    v_rate := coalesce(duly.destination_rate(v_row, v_now), least(v_row.rate_per_second, p_ramp_rate));
    update duly.destinations
       set state = p_state, turn = turn + 1, turned_at = v_now, openings = p_openings,
           wait_until = case when p_state = 'open' then v_now + make_interval(secs => p_wait) else '-infinity' end,
           asked_until = case when p_state = 'open' then asked_until else '-infinity' end,
           failures_in_a_row = 0, successes_in_a_row = 0, healthy = 0, failing = 0, healthy_before = 0, failing_before = 0, half_at = v_now,
           ramp_rate = p_ramp_rate, ramp_grows = p_ramp_grows,
           ramp_until = case when p_ramp_rate is null then '-infinity' else v_now + interval '2 seconds' end,
           tokens = least(0, case when v_rate is null then v_row.tokens else duly.destination_tokens(v_row, v_rate, v_now) end),
           counted_at = case when v_rate is null then v_row.counted_at else v_now end
     where destination_id = p_destination_id;
    return true;
end $$;

--------------------------------------------------------------------------------------------------------------- workflows

-- As cancel_workflow_v1, and who of two has done it: the one whose update found it running or paused.
create function duly.cancel_workflow_v2(p_tenant integer, p_workflow_id uuid, p_reason text, out state text, out is_new boolean)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := duly.clock_now();
begin
    is_new := false;
    state := (select flow.state from duly.workflows as flow where flow.workflow_id = p_workflow_id and flow.tenant = p_tenant);
    if state is null or state not in ('running', 'paused', 'cancelling') then
        return;
    end if;
    perform duly.stop_nodes_v1(p_workflow_id, p_reason);
    perform from duly.workflows as flow where flow.workflow_id = p_workflow_id for no key update;
    update duly.workflows as flow set state = 'cancelling', reason = p_reason where flow.workflow_id = p_workflow_id and flow.state in ('running', 'paused');
    is_new := found;
    perform duly.end_nodes_v1(array(select run_id from duly.workflow_nodes as node
                                     where node.workflow_id = p_workflow_id and node.state in ('waiting', 'ready')), 'cancelled', p_reason, v_now)
       from duly.workflows as flow where flow.workflow_id = p_workflow_id and flow.state = 'cancelling';
    perform duly.note_errand_v1(p_workflow_id, 'cancel', v_now);
    set constraints duly.endings_seen_to immediate;    -- So that the answer is what has come of it.
    set constraints duly.endings_seen_to deferred;
    state := (select flow.state from duly.workflows as flow where flow.workflow_id = p_workflow_id);
end $$;

create or replace function duly.cancel_workflow_v1(p_tenant integer, p_workflow_id uuid, p_reason text) returns text language sql as $$
    select state from duly.cancel_workflow_v2(p_tenant, p_workflow_id, p_reason)
$$;

create function duly.api_cancel_workflow_v2(p_tenant integer, p_workflow_id uuid, p_reason text, out state text, out is_new boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    select flow.state, flow.is_new into state, is_new from duly.cancel_workflow_v2(p_tenant, p_workflow_id, p_reason) as flow;
end $$;

revoke execute on function duly.cancel_workflow_v2, duly.api_cancel_workflow_v2 from public;
grant execute on function duly.api_cancel_workflow_v2 to duly_api;
