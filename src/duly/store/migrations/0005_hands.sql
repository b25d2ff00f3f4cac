-- What passes between a worker's hands and whoever speaks for it: cancels it never heard of, and its leaving.

-- Carry out cancels whose run left its holder's hands before the holder heard of them: what waits is cancelled, what somebody
-- else holds by now is asked back. The signals are taken first. Whoever gives the run another life takes them too (replay_v1), so
-- that one of the two gets them: a cancel follows no run into a life for which it was not meant.
create function duly.carry_out_v1() returns table (run_id uuid, answer text)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    v_run_ids   uuid[];
    v_cancelled uuid[] := '{}';
    v_signalled uuid[];
begin
    with stale as (
        delete from duly.signals where ctid = any (array(
            select ctid from duly.signals
             where not exists (select from duly.leased where leased.run_id = signals.run_id and leased.fence = signals.fence)
             limit 1000 for update skip locked))
        returning run_id)
    select array_agg(distinct run_id) into v_run_ids from stale;
    if v_run_ids is null then
        return;
    end if;
    loop                                               -- A row may be on the move between two looks; it is never nowhere for long.
        v_cancelled := v_cancelled || array(select duly.cancel_v1(v_run_ids, 'cancelled'));
        v_signalled := array(select duly.signal_v1(v_run_ids, 'cancel'));
        exit when not exists (select from duly.timers where run_id = any (v_run_ids) and run_id is not null)
              and not exists (select from duly.blocked where run_id = any (v_run_ids))
              and not exists (select from duly.ready where run_id = any (v_run_ids));
    end loop;
    return query
    select u.run_id, case when u.run_id = any (v_cancelled) then 'cancelled' when u.run_id = any (v_signalled) then 'cancelling' else 'too_late' end
      from unnest(v_run_ids) as u(run_id);
end $$;

-- A worker leaves. What hangs on it and is not among the runs it still holds is a claim whose answer it never had: that was not
-- started, so it goes back unused. It has left when nothing hangs on it any more. Its row is locked first, and only then its
-- leases are read: a claim under way holds the row, so that its leases are seen, and one that comes later finds no row.
create function duly.retire_v1(p_worker_id uuid, p_held uuid[], p_fences bigint[])
returns table (has_left boolean, run_ids uuid[], fences bigint[])
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    v_run_ids uuid[];
    v_fences  bigint[];
begin
    perform from duly.workers where worker_id = p_worker_id for update;
    if not found then
        return;                                        -- The reaper was here: it sees to what is left.
    end if;
    select array_agg(leased.run_id), array_agg(leased.fence) into v_run_ids, v_fences
      from duly.leased where leased.worker_id = p_worker_id
       and not exists (select from unnest(p_held, p_fences) as held(run_id, fence) where held.run_id = leased.run_id and held.fence = leased.fence);
    perform duly.hand_back_v1(p_worker_id, v_run_ids, v_fences) where v_run_ids is not null;
    delete from duly.workers where worker_id = p_worker_id and not exists (select from duly.leased where leased.worker_id = p_worker_id);
    return query select found, coalesce(v_run_ids, '{}'), coalesce(v_fences, '{}');
end $$;
