-- name: claim
select {record} from duly.claim_archive($1, $2, $3, $4, $5, $6, $7, $8)

-- name: late_days
-- Days before a date whose rows missed their partition, the first ones.
select distinct (finished_at at time zone 'UTC')::date as day from duly.{source} where finished_at < $1 order by day limit 10

-- name: late_number
-- The number of the unfinished archive of a day's late rows, or of the next one.
select count(*) filter (where state not in ('exporting', 'verified')) + 1 from duly.archived_partitions where kind = $1 and day = $2 and is_late

-- name: pages
select (pg_relation_size(to_regclass('duly.' || $1)) / current_setting('block_size')::integer)::integer

-- name: rows
-- Rows of some pages of a table as the archive has them, the last column a hash of all others, which the archive does not have. A moment outside
-- of the calendar is its first or last one; sealed texts are left out, because a key that is given up would open them for ever.
select row.*, ('x' || left(md5(concat_ws('|', {columns})), 11))::bit(44)::bigint as hash
  from (select run_id::text, job_id::text, tenant, attempt, outcome::text, became::text, queue, handler, priority, {moments}, worker_id::text, fence,
               generation, reason, result::text, detail::text, {unsealed},
               case when payload_stored then (select body from duly.payloads where payloads.job_id = one.job_id
                                                 and payloads.generation = coalesce(one.generation, 1)) else payload end::text as payload,
               xid::text
          from duly.{source} as one
         where ctid >= ('(' || $1::integer || ',0)')::tid and ctid < ('(' || $2::integer || ',0)')::tid and {chosen} offset 0) as row

-- name: count
select count(*) filter (where {chosen}) as rows, count(*) filter (where not ({chosen})) as left_out from duly.{source} as one where {matching}

-- name: verified
update duly.archived_partitions
   set state = 'verified', rows = $3, left_out = $4, checksum = $5, bytes = $6, first_run = $7, last_run = $8, tenants = $9,
       archived_at = duly.clock_now(), error = null, failed_at = null
 where name = $1 and holder = $2 and state = 'exporting' returning {record}

-- name: renew
update duly.archived_partitions set until = duly.clock_now() + $3 where name = $1 and holder = $2 and state in ('exporting', 'verified') returning 1

-- name: fail
update duly.archived_partitions set error = $3, failed_at = duly.clock_now(), until = duly.clock_now() + $4
 where name = $1 and holder = $2 and state in ('exporting', 'verified')

-- name: redo
-- The archive of a partition that is still here was lost or damaged: it is exported anew.
update duly.archived_partitions set state = 'exporting', until = duly.clock_now() where name = $1 and holder = $2 and state = 'verified'

-- name: drop
select duly.drop_archived($1, $2)

-- name: forget_late
-- Delete rows that their archive has, as they were read back from it. One that came since has another transaction.
with removed as (
    delete from duly.{source} as late using unnest($1::uuid[], $2::integer[], $3::text[]) as archived(run_id, attempt, xid)
     where late.run_id = archived.run_id and late.attempt = archived.attempt and late.xid = archived.xid::xid8
       and late.finished_at >= $4 and late.finished_at < $5 returning 1)
select count(*) from removed

-- name: end_late
update duly.archived_partitions set state = 'dropped', dropped_at = duly.clock_now(), until = duly.clock_now()
 where name = $1 and holder = $2 and state = 'verified' and is_late returning 1

-- name: delete_archives
select duly.delete_archives($1, $2)

-- name: abandoned
select name, abandoned from duly.archived_partitions where abandoned <> '{}' and (until <= duly.clock_now() or holder = $1) order by name limit 100

-- name: forget_abandoned
update duly.archived_partitions set abandoned = '{}' where name = $1 and abandoned = $2

-- name: readable
-- Archives with runs of a tenant between two ids, the last ones first. The rows of one that is verified may be here as well, or have just gone.
select {record} from duly.archived_partitions
 where (state = 'dropped' or (state = 'verified' and is_late)) and last_run >= $2 and first_run < $3 and $1 = any (tenants)
   and day >= $4::date and day < $5::date
 order by last_run desc, name

-- name: list
select {record} from duly.archived_partitions where name > $1 order by name limit $2

-- name: find
select {record} from duly.archived_partitions where name = $1

-- name: failing
select name, day, kind, error, failed_at from duly.archived_partitions where error is not null and state in ('exporting', 'verified') order by failed_at limit 100

-- name: hold
-- One that is held keeps its first reason.
insert into duly.legal_holds (tenant, job_id, reason, held_at) values ($1, $2, $3, duly.clock_now())
on conflict (tenant, coalesce(job_id, '00000000-0000-0000-0000-000000000000')) do update set reason = legal_holds.reason
returning tenant, job_id, reason, held_at, xmax = 0 as is_new

-- name: release
delete from duly.legal_holds where tenant = $1 and job_id is not distinct from $2 returning 1

-- name: holds
select tenant, job_id, reason, held_at from duly.legal_holds order by tenant, job_id nulls first limit 10000

-- name: job_names
select job_id, name from duly.jobs where job_id = any ($1::uuid[]) and name is not null

-- name: rules_above
select duly.rules_above($1)
