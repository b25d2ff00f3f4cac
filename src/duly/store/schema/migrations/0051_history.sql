-- An ended run keeps what it was: its payload, its options, its priority and the version of its definition.

-- Where the run ended; null in the records of attempts after which it went on. What is the default is not written down.
alter table duly.attempts add column generation integer,          -- the version of the definition that it used; null: 1
                          add column priority smallint,           -- null: 5
                          add column payload jsonb,
                          add column payload_stored boolean,      -- true: it stands among the payloads; false: it was too large, and is not kept
                          add column options jsonb;               -- what it carried besides its marks

-- Up to how many bytes, as they are stored, the payload of a success is kept; of all else it is kept whole. Maintenance
-- sets it; until then it is 8 KiB.
create table duly.history_limits (
    is_one       boolean     primary key default true check (is_one),
    payload_bytes integer    not null check (payload_bytes >= 0)
);

-- Until when a payload of a one-shot that has ended is kept; null: not looked at yet.
alter table duly.payloads add column kept_until timestamptz;

-- Jobs whose definition was removed, and whose history is still to go.
create table duly.purges (
    job_id       uuid        primary key,
    tenant       integer     not null,
    asked_at     timestamptz not null
);
create index purges_by_time on duly.purges (asked_at);
create index jobs_over on duly.jobs (updated_at) where state in ('completed', 'cancelled');
