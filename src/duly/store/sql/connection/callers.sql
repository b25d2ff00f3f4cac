-- The moves of jobs.sql as any driver can send them: the arguments are one JSON array, which the database takes apart.
-- `cast` and no `::` at the parameter, because SQLAlchemy would take the colons for its own.

-- name: submit_alike
select submitted.job_id, submitted.scheduled_at, submitted.replayed, submitted.needs_hint
  from (select cast($1 as jsonb) as a) as requested
 cross join lateral duly.submit_alike(
    (a->>0)::integer, a->>1, a->>2, array(select value from jsonb_array_elements_text(a->3) with ordinality order by ordinality),
    a->>4, (a->>5)::smallint, (a->>6)::timestamptz, (a->>7)::interval, a->>8, decode(a->>9, 'base64'), (a->>10)::interval) as submitted

-- name: submit_one
select submitted.job_id, submitted.scheduled_at, submitted.replayed, submitted.needs_hint
  from (select cast($1 as jsonb) as a) as requested
 cross join lateral duly.submit_one(
    (a->>0)::integer, a->>1, a->>2, a->>3, a->>4, (a->>5)::smallint, (a->>6)::timestamptz, (a->>7)::interval, a->>8, (a->>9)::interval) as submitted

-- name: prepare
select duly.run_id(clock.now, duly.batch_name((a->>0)::integer, a->>1, clock.now) || '0'), clock.now,
       (select cast(jsonb_object_agg(name, definition) as text) from duly.calendars
         where tenant = (a->>0)::integer and name = any (array(select jsonb_array_elements_text(a->2)))),
       idempotency_keys.job_id, idempotency_keys.scheduled_at, duly.created_at(idempotency_keys.job_id), duly.least_period((a->>0)::integer)
  from (select cast($1 as jsonb) as a, duly.clock_now() as now offset 0) as clock
  left join duly.idempotency_keys on idempotency_keys.tenant = (a->>0)::integer and idempotency_keys.key = a->>1 and idempotency_keys.expires_at > clock.now and idempotency_keys.body_hash = decode(a->>3, 'base64')

-- name: least_period
select cast(null as uuid), duly.least_period((a->>0)::integer) from (select cast($1 as jsonb) as a) as requested

-- name: submit_schedule
select submitted.job_id, submitted.scheduled_at, submitted.replayed,
       case when not submitted.replayed then cast(duly.timed_by(submitted.job_id, a->>24) as text) end
  from (select cast($1 as jsonb) as a) as requested
 cross join lateral duly.submit_schedule(
    (a->>0)::integer, a->>1, decode(a->>2, 'base64'), (a->>3)::uuid, a->>4, a->>5, a->>6, a->>7, (a->>8)::jsonb, a->>9, (a->>10)::smallint,
    (a->>11)::jsonb, (a->>12)::jsonb, (a->>13)::bigint, (a->>14)::integer, (a->>15)::timestamptz, (a->>16)::timestamptz, (a->>17)::integer,
    a->>18, a->>19, (a->>20)::integer, (a->>21)::integer, (a->>22)::integer, (a->>23)::integer) as submitted
