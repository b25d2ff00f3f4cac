-- name: leaves
select format('duly.%I', relname) as name, size / current_setting('block_size')::int as blocks, duly.clock_now() as read_at
  from pg_partition_tree('duly.attempts') join pg_class on pg_class.oid = relid cross join lateral pg_relation_size(relid) as size
 where isleaf and size > 0

-- name: position
select pg_current_snapshot()::text as snapshot, duly.cluster() as cluster, duly.newest_end()::text::bigint as newest

-- name: first_end
select duly.first_end($1::text::xid8)::text::bigint

-- name: look
-- $1 and $3: the reader's position; $2: where to stop; $4 to $6: the bounds of the histograms.
select pg_current_snapshot()::text as snapshot, duly.cluster() as cluster, newest::text::bigint as newest,
       tenant, queue, outcome, became, delay_bucket, duration_bucket, attempts_bucket, runs, delay, duration, attempts
  from (select 1) as one
  left join duly.count_ended($1::text::xid8, $2::text::xid8, $3::text[]::xid8[], $4, $5, $6) as counted on true
