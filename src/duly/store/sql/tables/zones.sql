-- name: state
-- Also returns whether all live schedulers but those of version $1 have expired.
select zone_data.version, zone_data.after, zone_data.changed, zone_data.before, zone_data.settled_at is not null,
       not exists (select from duly.schedulers where until > duly.clock_now() and tzdb is distinct from $1)
  from (select) as always left join duly.zone_data on true

-- name: rules
select rules, before, changed, settled_at is not null from duly.zone_data

-- name: adopt
select duly.adopt_zones($1, $2, $3, $4, $5, $6)

-- name: page
select last_id, job_id, name, generation, scheduled_at, previous_scheduled_at, schedule, calendars, cohort, tzdb, created_at, read_at
  from duly.zoned_page($1, $2, $3)

-- name: timed_otherwise
select job_id, job_id, name, generation, scheduled_at, previous_scheduled_at, schedule, calendars, cohort, tzdb, created_at, read_at
  from duly.timed_otherwise($1)

-- name: timed_rightly
update duly.jobs set tzdb = null where job_id = any ($1::uuid[]) and tzdb = $2

-- name: retime
select * from duly.retime_zoned($1, $2, $3, $4, $5, $6, $7, $8)

-- name: swept
select duly.zones_swept($1, $2, $3)

-- name: moves
select zone_moves.job_id, jobs.name, zone_moves.tzdb, zone_moves.was_at, zone_moves.next_at, zone_moves.moved_at
  from duly.zone_moves left join duly.jobs on jobs.job_id = zone_moves.job_id
 where zone_moves.tenant = $1 and ($2::uuid is null or zone_moves.job_id = $2) order by zone_moves.moved_at desc, zone_moves.job_id limit $3

-- name: forget_moves
delete from duly.zone_moves where ctid = any (array(select ctid from duly.zone_moves where moved_at < duly.clock_now() - $1::interval limit $2))
