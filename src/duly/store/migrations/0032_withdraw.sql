-- A workflow that was resumed stays resumed. While a paused one has nodes under way, an errand takes back what has come up since; it read the
-- state before it had the lock and then paused anew, so a resume that came between the two was answered and undone. Now it asks under the lock.

-- Take back once more what of a paused workflow has come up since, as long as anything of it is under way. Resumed meanwhile, it goes on.
create function duly.withdraw_nodes_v1(p_workflow_id uuid) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_state text;
begin
    perform duly.take_back_nodes_v1(p_workflow_id);        -- Before the workflow's lock: gates are locked.
    select state into v_state from duly.workflows where workflow_id = p_workflow_id for no key update;
    if v_state = 'paused' then
        perform duly.await_again_v1(p_workflow_id);
        if exists (select from duly.workflow_nodes as node where node.workflow_id = p_workflow_id and node.state = 'ready') then
            perform duly.note_errand_v1(p_workflow_id, 'withdraw', v_now + interval '0.5 seconds');
        end if;
    elsif v_state = 'running' then
        perform duly.look_v1(p_workflow_id, v_now);        -- What was just taken back is let go again.
    end if;
end $$;

create or replace function duly.do_errand_v1(p_errand duly.errands, p_now timestamptz) returns void
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_flow duly.workflows;
begin
    select * into v_flow from duly.workflows where workflow_id = p_errand.workflow_id;
    if p_errand.what = 'leave' then
        perform duly.leave_v1(array[(p_errand.leaving->>'job_id')::uuid], array[(p_errand.leaving->>'tenant')::integer],
                              array[p_errand.leaving->'options'], null, p_now);
    elsif p_errand.what = 'withdraw' and v_flow.state = 'paused' then
        perform duly.withdraw_nodes_v1(v_flow.workflow_id);
    elsif p_errand.what = 'cancel' and v_flow.state = 'cancelling' then
        perform duly.stop_nodes_v1(v_flow.workflow_id, coalesce(v_flow.reason, 'cancelled'));
        perform from duly.workflows where workflow_id = v_flow.workflow_id for no key update;
        perform duly.end_nodes_v1(array(select run_id from duly.workflow_nodes as node
                                         where node.workflow_id = v_flow.workflow_id and node.state in ('waiting', 'ready')),
                                  'cancelled', coalesce(v_flow.reason, 'cancelled'), p_now);
        perform duly.note_errand_v1(v_flow.workflow_id, 'cancel', p_now + interval '1 second');     -- Until it has ended.
    elsif p_errand.what = 'look' and v_flow.workflow_id is not null then
        perform from duly.workflows where workflow_id = v_flow.workflow_id for no key update;
        perform duly.look_v1(v_flow.workflow_id, p_now);
    end if;
end $$;

revoke execute on function duly.withdraw_nodes_v1(uuid) from public;
