-- Work that is worthless late, and destinations that retries do not drown. docs/decisions/0031-retries-and-expiry.md says why.

----------------------------------------------------------------------------------------------------------------- expiry

-- What the indexes are made of. The moment after which a run is not started; null: it is never too late.
create function duly.expiry(p_scheduled_at timestamptz, p_options jsonb) returns timestamptz language sql immutable parallel safe as $$
    select least(case when p_options ? 'expires_at' then to_timestamp(least(greatest((p_options->>'expires_at')::double precision, 0), 253370764800)) end,
                 p_scheduled_at + make_interval(secs => (p_options->>'expires_seconds')::double precision))
$$;

-- What expires, box by box. A row that never does is in none of them; nor is a next fire, which is no run.
create index timers_expiring on duly.timers (duly.expiry(scheduled_at, options))
 where options ?| array['expires_at', 'expires_seconds'] and run_id is not null;
create index blocked_expiring on duly.blocked (duly.expiry(scheduled_at, options)) where options ?| array['expires_at', 'expires_seconds'];
create index ready_expiring on duly.ready (duly.expiry(scheduled_at, options)) where options ?| array['expires_at', 'expires_seconds'];

----------------------------------------------------------------------------------------------------------- destinations

alter table duly.destinations
    add column retry_share double precision not null default 0.2 check (retry_share between 0 and 1),   -- retries for each first attempt; 1: no budget
    add column retries_total bigint not null default 0,
    add column turned_away_total bigint not null default 0,                                            -- retries that had to wait for the budget
    add column turned_away_at timestamptz not null default '-infinity';
