-- name: drain
-- Workers that register from now on begin drained. Return whether the host is known, and whether that is new.
with known as (
    select exists (select from duly.processes where host = $1 and recorded_at > duly.clock_now() - interval '1 minute') as is_known),
noted as (
    insert into duly.drained_hosts (host) select $1 from known where is_known on conflict (host) do nothing returning host),
drained as (
    update duly.workers set draining_at = duly.clock_now() from known where is_known and host = $1 and draining_at is null returning worker_id)
select is_known, exists (select from noted) or exists (select from drained) as is_new from known

-- name: resume
-- A host on which nothing runs any more is known as long as it is drained.
with forgotten as (delete from duly.drained_hosts where host = $1 returning host),
resumed as (update duly.workers set draining_at = null where host = $1 and draining_at is not null returning worker_id)
select exists (select from forgotten) or exists (select from resumed) as is_new,
       exists (select from duly.processes where host = $1 and recorded_at > duly.clock_now() - interval '1 minute') as is_known

-- name: drained
select host, since from duly.drained_hosts order by host limit 100

-- name: held
-- The runs of each live worker of a host, counted up to a bound, and the shards of each live scheduler.
select 'worker' as role, name, (select count(*) from (select from duly.leased where leased.worker_id = workers.worker_id limit $2) as held) as held
  from duly.workers where host = $1 and until > duly.clock_now()
union all
select 'scheduler', name, (select count(*) from duly.shards where holder = scheduler_id)
  from duly.schedulers where host = $1 and until > duly.clock_now() order by 1, 2

-- name: is_drained
select exists (select from duly.drained_hosts where host = $1)
