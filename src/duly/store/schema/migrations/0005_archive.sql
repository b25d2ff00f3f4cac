-- The archive of history: which partitions were exported, where to, and whether their rows are still here. A row is written by the one
-- process that claimed it, until `until`; a partition is dropped in the transaction that records it here as dropped, and never otherwise.
create table duly.archived_partitions (
    name        text collate "C" primary key,           -- of the partition; rows that missed it: with _late_ and a number
    source      text not null collate "C",              -- the table in which its rows are
    kind        text not null check (kind in ('succeeded', 'failed')),
    day         date not null,
    is_late     boolean not null,
    state       text not null check (state in ('exporting', 'verified', 'dropped', 'deleted')),
    holder      uuid not null,
    until       timestamptz not null,
    begun_at    timestamptz not null,
    horizon     xid8 not null,                          -- the first transaction whose rows the export may have missed
    location    text not null,
    abandoned   text[] not null default '{}',           -- earlier files, which are to be deleted
    rows        bigint,                                 -- in the archive
    left_out    bigint,                                 -- successes that were not sampled
    checksum    numeric,
    bytes       bigint,
    first_run   uuid,
    last_run    uuid,
    tenants     integer[],
    error       text,
    failed_at   timestamptz,
    archived_at timestamptz,
    dropped_at  timestamptz,
    check (state = 'exporting' or num_nonnulls(rows, left_out, checksum, bytes, tenants, archived_at) = 6)
);
create index archived_partitions_by_run on duly.archived_partitions (last_run) where state in ('verified', 'dropped');

-- Tenants and jobs whose history is neither dropped nor sampled.
create table duly.legal_holds (
    tenant  integer not null,
    job_id  uuid,                                       -- null: the whole tenant
    reason  text not null,
    held_at timestamptz not null,
    xid     xid8 not null default pg_current_xact_id()  -- shows which exports may have missed it
);
create unique index legal_holds_by_scope on duly.legal_holds (tenant, coalesce(job_id, '00000000-0000-0000-0000-000000000000'));

-- When a scheduler with an archive last looked for partitions to archive. From then on attempts are dropped only once they are archived, also by a
-- scheduler without one. Null: there is no archive.
alter table duly.history_limits add column archived_at timestamptz;

-- It takes one argument more.
drop function if exists duly.drop_partition;
delete from duly.functions where file = 'history.sql';
