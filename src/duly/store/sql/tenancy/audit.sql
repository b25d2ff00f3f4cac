-- name: record
select duly.record_audit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::jsonb)

-- name: page
-- Looked at from a position on, along the index of what leads there: so many rows at most, of which those are returned that fit.
select looked.*, looked.detail::text as detail_text,
       ($6::text is null or looked.actor = $6) and ($7::text is null or looked.action = $7) and ($8::text is null or looked.subject_id = $8) as fits
  from (select audit_id, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, subject_name, count, request_id, detail
          from duly.audit
         where tenant = $1 and (at, audit_id) < ($2, $3) and at >= $4 {lead}
         order by at desc, audit_id desc limit $5) as looked
 order by looked.at desc, looked.audit_id desc

-- name: submitter
-- The caller that submitted a one-shot, or triggered a run of a job, as recorded in the transaction that created it.
select at, actor_kind, actor, actor_name, action, request_id from duly.audit
 where tenant = $1 and subject_id = $2::text and action in ('job.created', 'run.rerun')
union all
select at, actor_kind, actor, actor_name, action, request_id from duly.audit
 where tenant = $1 and subject_id = $3::text and $2 <> $3 and action = 'job.triggered' and detail->>'run_id' = $2
   and at between $4::timestamptz - interval '1 minute' and $4::timestamptz + interval '1 hour'
 limit 1

-- name: forget
select duly.forget_audit($1, $2)
