-- name: note
insert into duly.audit (tenant, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, subject_name, count, request_id, detail)
values ($1, duly.clock_now(), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::jsonb)

-- name: page
-- Looked at from a position on, along the index of what leads there: so many rows at most, of which those are told that fit.
select looked.*, looked.detail::text as detail_text,
       ($6::text is null or looked.actor = $6) and ($7::text is null or looked.action = $7) and ($8::text is null or looked.subject_id = $8) as fits
  from (select audit_id, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, subject_name, count, request_id, detail
          from duly.audit
         where tenant = $1 and (at, audit_id) < ($2, $3) and at >= $4 {lead}
         order by at desc, audit_id desc limit $5) as looked
 order by looked.at desc, looked.audit_id desc

-- name: submitter
-- Who submitted a one-shot, or triggered a run of a job: that is noted in the transaction that made it.
select at, actor_kind, actor, actor_name, action, request_id from duly.audit
 where tenant = $1 and subject_id = $2::text and action in ('job.created', 'run.run_again')
union all
select at, actor_kind, actor, actor_name, action, request_id from duly.audit
 where tenant = $1 and subject_id = $3::text and $2 <> $3 and action = 'job.triggered' and detail->>'run_id' = $2
   and at between $4::timestamptz - interval '1 minute' and $4::timestamptz + interval '1 hour'
 limit 1

-- name: forget
select duly.forget_audit_v1($1, $2)

-- name: create_one
-- A one-shot, and who submitted it: one statement, because creates come by the thousand a second.
with made as materialized (select job_id, scheduled_at, replayed from duly.submit_one_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)),
noted as (
    insert into duly.audit (tenant, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, request_id, detail)
    select $1, duly.clock_now(), $11, $12, $13, 'job.created', 'job', job_id::text, $14, jsonb_build_object('handler', $3::text, 'queue', $5::text)
      from made where not replayed)
select job_id, scheduled_at, replayed from made

-- name: create_many
-- One-shots of several callers, each with a row of its own.
with made as materialized (
    select job_id, scheduled_at, replayed, number from duly.submit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
      with ordinality as made (job_id, scheduled_at, replayed, number)),
noted as (
    insert into duly.audit (tenant, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, request_id, detail)
    select $1, duly.clock_now(), asked.kind, asked.actor, asked.name, 'job.created', 'job', made.job_id::text, asked.request_id,
           jsonb_build_object('handler', asked.handler, 'queue', asked.queue)
      from made join unnest($12::text[], $13::text[], $14::text[], $15::text[], $3::text[], $5::text[])
                with ordinality as asked (kind, actor, name, request_id, handler, queue, number) using (number)
     where not made.replayed)
select job_id, scheduled_at, replayed from made order by number
