-- What failed at a destination last.

-- What the index is made of. Where a webhook's attempt was sent to, as its detail says.
create function duly.origin_told(p_detail jsonb) returns text language sql immutable parallel safe as $$
    select substring(p_detail->>'to' from '^[a-z]+://[^/?#]+')
$$;

create index attempts_failed_at on duly.attempts_failed (tenant, duly.origin_told(detail), finished_at, run_id, attempt)
 where handler = '@webhook' and outcome in ('failed', 'timed_out');
