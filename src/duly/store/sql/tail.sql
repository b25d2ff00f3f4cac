-- name: leaves
select format('duly.%I', relname) as name, size / current_setting('block_size')::int as blocks, duly.clock_now() as read_at
  from pg_partition_tree('duly.attempts') join pg_class on pg_class.oid = relid cross join lateral pg_relation_size(relid) as size
 where isleaf and size > 0

-- name: snapshot
select pg_current_snapshot()::text

-- name: unseen
-- $1: where the last snapshot ended, modulo 2^32; $2: how far below that its oldest open transaction was; $3: those that
-- were open, as distances too; $4 and $5: the bounds of the histograms; $6 and on: where to begin in each leaf.
select queue, outcome, became, skew, duration,
       width_bucket(skew, $4::float8[]) as skew_bucket, width_bucket(duration, $5::float8[]) as duration_bucket
  from (select queue, outcome::text as outcome, became::text as became,
               ((xmin::text::bigint - $1::bigint + 2147483648) & 4294967295) - 2147483648 as distance,
               case when marks->'waited' is null then date_part('epoch', started_at - due_at) end as skew, date_part('epoch', finished_at - started_at) as duration
          from only {leaf} where ctid >= ${number}::tid) as tail
 where distance >= $2::bigint and (distance >= 0 or distance = any ($3::bigint[]))

-- name: look
select pg_current_snapshot()::text as snapshot, counted.*
  from (select 1) as one left join (
       select queue, outcome, became, skew_bucket, duration_bucket, count(*) as runs, sum(skew) as skew, sum(duration) as duration
         from ({unseen}) as unseen group by 1, 2, 3, 4, 5) as counted on true
