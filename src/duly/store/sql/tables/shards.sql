-- name: lease
select shard, epoch from duly.lease_shards($1, $2, $3, $4, $5, $6, $7)

-- name: release
with removed as (delete from duly.schedulers where scheduler_id = $1)
update duly.shards set holder = null where holder = $1

-- name: forget_expired
delete from duly.schedulers where until < duly.clock_now() - interval '1 minute'

-- name: holders
select schedulers.scheduler_id, schedulers.name, schedulers.until, count(shards.shard) as shards
  from duly.schedulers left join duly.shards on shards.holder = schedulers.scheduler_id
 where schedulers.until > duly.clock_now() group by 1, 2, 3 order by 1
