-- Who is claimed first, decided at the claim; and how much may be under way at once.
-- docs/decisions/0028-who-is-claimed-first.md says why.

alter table duly.tenants add column weight integer not null default 1 check (weight between 1 and 1000);
alter table duly.workers add column weights integer[] not null default '{}';   -- of its queues, in their order; none: all alike

-- A line is what waits of a queue, a tenant and a priority, the oldest first. Which lines there are is found by this index alone.
create index ready_by_line on duly.ready (queue, tenant, priority, due_at);
drop index duly.ready_by_rank;
drop index duly.ready_of_tenant_by_rank;

-- Where there are more lines than one claim looks at, the tenant of a queue with which the next claim begins.
create table duly.turns (
    queue        text        primary key collate "C",
    tenant       integer     not null
) with (fillfactor = 50);

-- At most `places` runs are under way at once, of everything, a queue, a tenant, or a tenant's share of a queue.
create table duly.limits (
    tenant       integer     check (tenant >= 1),       -- null: of every tenant
    queue        text        collate "C" check (queue <> ''),  -- null: of every queue
    places       integer     not null check (places >= 1),
    set_by       text        not null,
    set_at       timestamptz not null
);
create unique index limits_by_scope on duly.limits (coalesce(tenant, 0), coalesce(queue, ''));

-- A line as a claim sees it: the number of its queue among those asked for, the due moment of its first run, its tenant's weight,
-- whether it comes under a limit, and how many were taken of it already.
create type duly.line as
    (number integer, queue text, tenant integer, priority smallint, due_at timestamptz, weight integer, is_limited boolean, taken integer);
