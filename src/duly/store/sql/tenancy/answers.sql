-- name: lock
-- The lock ends with the transaction. The answer is read as of the start of the statement, so one that was committed while we
-- waited for nothing is not seen here: `keep` then finds its row.
select pg_try_advisory_xact_lock(hashtextextended($1::int::text || ' ' || $2::text || ' ' || $3::text, 0)) as is_ours,
       idempotent_responses.body_hash, idempotent_responses.status, idempotent_responses.headers::text as headers, idempotent_responses.body
  from (select 1) as one
  left join duly.idempotent_responses on idempotent_responses.tenant = $1 and idempotent_responses.route = $2 and idempotent_responses.key = $3 and idempotent_responses.expires_at > duly.clock_now()

-- name: keep
select duly.api_keep_answer($1, $2, $3, $4, $5, $6::text::jsonb, $7)

-- name: forget
delete from duly.idempotent_responses where (tenant, route, key) in (
    select tenant, route, key from duly.idempotent_responses where expires_at <= (select duly.clock_now()) order by expires_at limit $1)
