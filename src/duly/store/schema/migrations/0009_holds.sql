-- Holds: an emergency stop that every claim reads. docs/decisions/0013-holds.md says why.

-- While a row stands here, nothing starts that it covers: everything, a queue, a tenant, or a tenant's share of a queue.
create table duly.holds (
    tenant       integer     check (tenant >= 1),       -- null: of every tenant
    queue        text        collate "C" check (queue <> ''),  -- null: of every queue
    reason       text        not null,
    held_by      text        not null,
    held_at      timestamptz not null
);
create unique index holds_by_scope on duly.holds (coalesce(tenant, 0), coalesce(queue, ''));
