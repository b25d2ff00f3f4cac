-- Events from outside that make runs, and when duties were last done. docs/decisions/0020-events-in-and-out.md says why.

-- Each event that was taken, by what names it: its source and its id. It does not move, so one that comes again has something to
-- collide with.
create table duly.events (
    tenant       integer     not null,
    digest       bytea       not null check (octet_length(digest) = 32),    -- of source and id, which may be long
    runs         uuid[]      not null,
    received_at  timestamptz not null,
    primary key (tenant, digest)
) with (fillfactor = 50);
create index events_by_time on duly.events (received_at);

-- A job that waits for events has its match where others have their trigger. Its next fire rests at infinity: it is the job's
-- mutex like any other, and is never due.
create index jobs_by_event on duly.jobs (tenant, (schedule->'on_event'->>'type'), job_id) where schedule ? 'on_event' and state = 'active';

-- When what must be done again and again was last done, by whomever: read by those who cannot see into the process that does it.
create table duly.duties (
    name         text        primary key collate "C",
    done_at      timestamptz not null
) with (fillfactor = 50);
