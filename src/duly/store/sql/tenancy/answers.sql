-- name: hold
-- The lock ends with the transaction. The answer is read as of the start of the statement, so one that was committed while we
-- waited for nothing is not seen here: `keep` then finds its row.
select pg_try_advisory_xact_lock(hashtextextended($1::int::text || ' ' || $2::text || ' ' || $3::text, 0)) as is_ours,
       answers.body_hash, answers.status, answers.headers::text as headers, answers.body
  from (select 1) as one
  left join duly.answers on answers.tenant = $1 and answers.route = $2 and answers.key = $3 and answers.expires_at > duly.clock_now()

-- name: keep
select duly.api_keep_answer($1, $2, $3, $4, $5, $6::text::jsonb, $7)

-- name: forget
delete from duly.answers where (tenant, route, key) in (
    select tenant, route, key from duly.answers where expires_at <= (select duly.clock_now()) order by expires_at limit $1)
