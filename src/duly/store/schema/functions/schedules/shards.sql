-- Which scheduler stages which of the 64 shards.

-- Renew a scheduler's lease and settle its share of the shards. Those that live schedulers name are theirs, of the first by id where two
-- name one; those who name none share the others, the first by id one more where it does not come out even. A shard is free when its
-- holder's lease has run out, or, after a step of the clock, when it lies further ahead than a lease can. Only those whose time zone data is
-- in force, on hosts that are not drained, have a share. While no data is in force all have one.
create or replace function duly.lease_shards(p_scheduler_id uuid, p_name text, p_version text, p_lease interval, p_tzdb text, p_host text, p_shards smallint[])
returns table (shard smallint, epoch bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_tzdb  text := (select zone_data.version from duly.zone_data);
    v_live  uuid[];
    v_equal uuid[];
    v_ours  smallint[] := '{}';
    v_share integer := 0;
    v_held  integer;
begin
    insert into duly.schedulers (scheduler_id, name, version, started_at, until, tzdb, host, shards)
    values (p_scheduler_id, p_name, p_version, v_now, v_now + p_lease, p_tzdb, p_host, p_shards)
    on conflict (scheduler_id) do update set until = excluded.until;
    v_live := array(
        select scheduler_id from duly.schedulers
         where until > v_now and until <= v_now + 2 * p_lease and (v_tzdb is null or tzdb = v_tzdb)
           and not exists (select from duly.drained_hosts where drained_hosts.host = schedulers.host)
         order by scheduler_id);
    if p_scheduler_id = any (v_live) then
        select array_agg(every.shard) into v_ours
          from generate_series(0, 63) as every (shard)
         where (select scheduler_id from duly.schedulers
                 where scheduler_id = any (v_live) and every.shard = any (shards) order by scheduler_id limit 1)
               is not distinct from case when p_shards is not null then p_scheduler_id end;
        v_ours := coalesce(v_ours, '{}');
        v_share := cardinality(v_ours);
        if p_shards is null then
            v_equal := array(select scheduler_id from duly.schedulers where scheduler_id = any (v_live) and shards is null order by scheduler_id);
            v_share := v_share / cardinality(v_equal) + (array_position(v_equal, p_scheduler_id) <= v_share % cardinality(v_equal))::integer;
        end if;
    end if;
    update duly.shards set holder = null where shards.shard in (
        select shards.shard from duly.shards where holder = p_scheduler_id and shards.shard <> all (v_ours) for update skip locked);
    select count(*) into v_held from duly.shards where holder = p_scheduler_id and shards.shard = any (v_ours);
    if v_held > v_share then
        update duly.shards set holder = null where shards.shard in (
            select shards.shard from duly.shards where holder = p_scheduler_id order by shards.shard desc limit v_held - v_share for update skip locked);
    elsif v_held < v_share then
        update duly.shards set holder = p_scheduler_id, epoch = epoch + 1 where shards.shard in (
            select shards.shard from duly.shards
             where (holder is null or holder <> all (v_live)) and shards.shard = any (v_ours)
             order by shards.shard limit v_share - v_held for update skip locked);
    end if;
    return query select shards.shard, shards.epoch from duly.shards where holder = p_scheduler_id order by 1;
end $$;
