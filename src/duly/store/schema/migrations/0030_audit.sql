-- The audit: who changed what. docs/decisions/0036-audit.md says why.

-- One row per change, written in the transaction of the change itself. It is never updated, and deleted by age alone.
create table duly.audit (
    tenant       integer     not null,                  -- whose thing was changed; the first tenant's where it is everybody's
    at           timestamptz not null,
    audit_id     uuid        not null default gen_random_uuid(),
    actor_kind   text        not null collate "C" check (actor_kind in ('key', 'session', 'local', 'engine')),
    actor        text        not null collate "C",      -- a key's id, local:<account>, or engine
    actor_name   text        not null collate "C",
    action       text        not null collate "C",
    subject_kind text        not null collate "C",
    subject_id   text        collate "C",               -- null: many at once
    subject_name text        collate "C",
    count        integer     not null default 1 check (count > 0),
    request_id   text        collate "C",
    detail       jsonb,
    primary key (tenant, at, audit_id)
) with (fillfactor = 100);

-- One for each filter of the list. Jobs are created by the thousand a second and all else is done by hand: those who ask for
-- creates find them along the primary key, where little else stands between them.
create index audit_by_actor on duly.audit (tenant, actor, at, audit_id);
create index audit_by_subject on duly.audit (tenant, subject_id, at, audit_id) where subject_id is not null;
create index audit_by_action on duly.audit (tenant, action, at, audit_id) where action <> 'job.created';

alter table duly.audit enable row level security;
create policy of_its_tenant on duly.audit for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.audit to duly_api;
