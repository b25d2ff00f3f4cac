-- The tail of history: the ends that a reader has not seen. docs/decisions/0041-events-in-transaction-order.md says why each is read once.
--
-- A reader's position is an end and a set of open transactions: it has seen every row whose transaction is before the end and is not in the
-- set. These return the rows that it has not seen: those from the end on, and those of the open ones that have committed. They are stable, so they
-- see what the statement around them sees, whose snapshot is the reader's next position.

-- The identity of this server's transaction ids: its cluster, and the timeline, which a failover changes. Empty where the server does not say.
create or replace function duly.cluster() returns text language plpgsql stable as $$
begin
    return format('%s/%s', (select system_identifier from pg_control_system()), left(pg_walfile_name(pg_current_wal_insert_lsn()), 8));
exception when insufficient_privilege or undefined_function or feature_not_supported then
    return '';
end $$;

-- Return whether a row was written by the transaction it names, or copied by a later one of this cluster. A row that was restored from another
-- cluster names a transaction that is yet to come here. p_xmin: of the row, modulo 2^32.
create or replace function duly.is_of_this_cluster(p_xid xid8, p_xmin xid) returns boolean language sql stable parallel safe as $$
    select (p_xmin::text::bigint - p_xid::text::bigint + 2147483648) & 4294967295 >= 2147483648
$$;

-- The newest transaction that has recorded an end; 0 before the first. It reached the disk, so a crash of the server gives neither its id nor
-- an earlier one out again.
create or replace function duly.newest_end() returns xid8
language plpgsql stable {planned by index, in order} as $$
begin
    return greatest(
        '0',
        (select xid from duly.attempts
          where xid < pg_snapshot_xmax(pg_current_snapshot()) and duly.is_of_this_cluster(xid, xmin) order by xid desc limit 1),
        (select ended_xid from duly.workflows
          where ended_xid < pg_snapshot_xmax(pg_current_snapshot()) and ended_at is not null and duly.is_of_this_cluster(ended_xid, xmin)
          order by ended_xid desc limit 1));
end $$;

-- The first transaction from p_from on that has recorded the end of an attempt; none before there is one.
create or replace function duly.first_end(p_from xid8) returns xid8
language plpgsql stable {planned by index, in order} as $$
begin
    return (select xid from duly.attempts
             where xid >= p_from and xid < pg_snapshot_xmax(pg_current_snapshot()) and duly.is_of_this_cluster(xid, xmin) order by xid limit 1);
end $$;

-- The unseen ends, p_limit of them at most, in no order.
create or replace function duly.ended_since(p_end xid8, p_open xid8[], p_limit integer) returns setof duly.attempts
language plpgsql stable {planned by index, in order, once} as $$
begin
    return query
    select * from duly.attempts
     where attempts.xid >= p_end and attempts.xid < pg_snapshot_xmax(pg_current_snapshot()) and duly.is_of_this_cluster(attempts.xid, attempts.xmin)
    union all
    select * from duly.attempts where attempts.xid = any (p_open) and duly.is_of_this_cluster(attempts.xid, attempts.xmin)
    limit p_limit;
end $$;

-- The unseen ends of workflows, p_limit of them at most, in no order.
create or replace function duly.workflows_ended_since(p_end xid8, p_open xid8[], p_limit integer) returns setof duly.workflows
language plpgsql stable {planned by index, in order} as $$
begin
    return query
    select * from duly.workflows
     where workflows.ended_xid >= p_end and workflows.ended_xid < pg_snapshot_xmax(pg_current_snapshot()) and workflows.ended_at is not null
       and duly.is_of_this_cluster(workflows.ended_xid, workflows.xmin)
    union all
    select * from duly.workflows
     where workflows.ended_xid = any (p_open) and workflows.ended_at is not null and duly.is_of_this_cluster(workflows.ended_xid, workflows.xmin)
    limit p_limit;
end $$;

-- The unseen ends before p_stop, counted by tenant and kind, with the newest transaction of each. Runs that had to wait have no start delay;
-- only a run that is over has a number of attempts.
create or replace function duly.count_ended(p_end xid8, p_stop xid8, p_open xid8[], p_delays double precision[], p_durations double precision[],
                                            p_attempts double precision[])
returns table (tenant integer, queue text, outcome text, became text, delay_bucket integer, duration_bucket integer, attempts_bucket integer, runs bigint,
               delay double precision, duration double precision, attempts bigint, newest xid8)
language plpgsql stable {planned by index, in order, once} as $$
#variable_conflict use_column
begin
    return query
    select tenant, queue, outcome::text, became::text, width_bucket(delay, p_delays), width_bucket(duration, p_durations), width_bucket(attempts, p_attempts),
           count(*), sum(delay), sum(duration), sum(attempts), max(xid)
      from (select tenant, queue, outcome, became, xid, date_part('epoch', finished_at - started_at) as duration,
                   case when metadata->'waited' is null then date_part('epoch', started_at - due_at) end as delay,
                   case when attempt > 0 and outcome <> 'fenced' and became in ('succeeded', 'dead', 'cancelled', 'expired', 'skipped') then attempt end as attempts
              from (select * from duly.attempts
                     where xid >= p_end and xid < least(p_stop, pg_snapshot_xmax(pg_current_snapshot())) and duly.is_of_this_cluster(xid, xmin)
                    union all
                    select * from duly.attempts where xid = any (p_open) and duly.is_of_this_cluster(xid, xmin)) as unseen) as ended
     group by 1, 2, 3, 4, 5, 6, 7;
end $$;
