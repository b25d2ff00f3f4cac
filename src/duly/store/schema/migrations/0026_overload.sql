-- Queues that have more than they can do, what is coming to them, and what was missed while everything was down.
-- docs/decisions/0032-overload-and-recovery.md says why.

-------------------------------------------------------------------------------------------------------------- overload

-- How old the oldest due run of a queue may be, where somebody has said so.
create table duly.queue_ages (
    queue        text        primary key collate "C",
    age_limit    interval    not null check (age_limit >= interval '1 second'),
    set_by       text        not null,
    set_at       timestamptz not null
);

-- How many runs of which handler a worker runs at once: by the names of targets, and under no name for functions. Empty: all alike.
alter table duly.workers add column pools jsonb not null default '{}';

alter table duly.overloads add column age_limit interval not null default interval '60 seconds';

-------------------------------------------------------------------------------------------------------------- recovery

-- After a time in which nobody staged: what was missed is held back until a person has said what becomes of it.
create table duly.recoveries (
    recovery_id  uuid        primary key,
    state        text        not null check (state in ('open', 'approved', 'dismissing', 'done', 'dismissed')),
    down_since   timestamptz,                           -- when anybody last staged; null: catch-ups under way were taken over
    opened_at    timestamptz not null,
    decided_at   timestamptz,
    decided_by   text,
    rules        jsonb       not null default '[]',     -- what becomes of whose, where it is not left to each schedule's own policy
    rate         double precision check (rate > 0),     -- runs a second, all together
    ended_at     timestamptz,
    check ((state = 'open') = (decided_at is null) or state = 'done')
);
-- At most one that is not over.
create unique index recoveries_live on duly.recoveries ((true)) where state in ('open', 'approved', 'dismissing');
create index recoveries_by_opening on duly.recoveries (opened_at);

alter table duly.backfills add column recovery_id uuid;
create index backfills_of_recovery on duly.backfills (recovery_id, state) where recovery_id is not null;
create index backfills_held on duly.backfills (recovery_id, shard, backfill_id) where recovery_id is not null and state = 'active' and due_at = 'infinity';
create index backfills_recovering on duly.backfills (recovery_id, shard) where recovery_id is not null and state = 'active' and due_at < 'infinity';
