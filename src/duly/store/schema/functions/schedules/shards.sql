-- Which scheduler stages which of the 64 shards.

-- Renew a scheduler's lease and settle its fair share of the shards: those who live share all 64, the first by id one more where
-- it does not come out even. A shard is free when its holder's lease has run out, or, after a step of the clock, when it lies
-- further ahead than a lease can. Only those whose time zone data is in force have a share. While nothing is in force all have
-- one.
create or replace function duly.lease_shards(p_scheduler_id uuid, p_name text, p_version text, p_lease interval, p_tzdb text)
returns table (shard smallint, epoch bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now   timestamptz := duly.clock_now();
    v_tzdb  text := (select zone_data.version from duly.zone_data);
    v_live  uuid[];
    v_held  integer;
    v_share integer := 0;
begin
    insert into duly.schedulers (scheduler_id, name, version, started_at, until, tzdb)
    values (p_scheduler_id, p_name, p_version, v_now, v_now + p_lease, p_tzdb)
    on conflict (scheduler_id) do update set until = excluded.until;
    v_live := array(
        select scheduler_id from duly.schedulers
         where until > v_now and until <= v_now + 2 * p_lease and (v_tzdb is null or tzdb = v_tzdb)
         order by scheduler_id);
    if p_scheduler_id = any (v_live) then
        v_share := 64 / cardinality(v_live) + (array_position(v_live, p_scheduler_id) <= 64 % cardinality(v_live))::integer;
    end if;
    select count(*) into v_held from duly.shards where holder = p_scheduler_id;
    if v_held > v_share then
        update duly.shards set holder = null where shards.shard in (
            select shards.shard from duly.shards where holder = p_scheduler_id order by shards.shard desc limit v_held - v_share for update skip locked);
    elsif v_held < v_share then
        update duly.shards set holder = p_scheduler_id, epoch = epoch + 1 where shards.shard in (
            select shards.shard from duly.shards
             where holder is null or holder <> all (v_live)
             order by shards.shard limit v_share - v_held for update skip locked);
    end if;
    return query select shards.shard, shards.epoch from duly.shards where holder = p_scheduler_id order by 1;
end $$;
