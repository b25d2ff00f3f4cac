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

-- Append-only, for its owner too. The stack tells who deletes: a setting could be set by anybody.
create function duly.keep_audit_v1() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_stack text;
begin
    get diagnostics v_stack = pg_context;
    if tg_op = 'DELETE' and v_stack ~ E'\nPL/pgSQL function duly\\.forget_audit_v1\\(interval,integer\\) line ' then
        return null;
    end if;
    raise exception using errcode = 'insufficient_privilege', message = format('duly.audit is append-only: %s is refused', lower(tg_op)),
        hint = 'Rows go by age alone: set retention_audit.';
end $$;
create trigger audit_is_kept before update or delete or truncate on duly.audit for each statement execute function duly.keep_audit_v1();

-- Forget what is older than it has to be kept, so many rows at most. Less than a day is no retention but a way to erase a trace.
create function duly.forget_audit_v1(p_kept interval, p_limit integer) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    v_before timestamptz := duly.clock_now() - p_kept;
    v_gone   integer;
begin
    if p_kept < interval '1 day' then
        raise exception using errcode = 'invalid_parameter_value', message = format('the audit is kept for a day at least, not %s', p_kept);
    end if;
    delete from duly.audit using (
        select old.tenant, old.at, old.audit_id from duly.tenants
         cross join lateral (select audit.tenant, audit.at, audit.audit_id from duly.audit
                              where audit.tenant = tenants.tenant and audit.at < v_before order by audit.at limit p_limit) as old
         limit p_limit) as gone
     where audit.tenant = gone.tenant and audit.at = gone.at and audit.audit_id = gone.audit_id;
    get diagnostics v_gone = row_count;
    return v_gone;
end $$;

-- A session writes of its own tenant alone.
create function duly.api_note_v1(
    p_tenant integer, p_actor_kind text, p_actor text, p_actor_name text, p_action text, p_subject_kind text, p_subject_id text,
    p_subject_name text, p_count integer, p_request_id text, p_detail jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    insert into duly.audit (tenant, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, subject_name, count, request_id, detail)
    values (p_tenant, duly.clock_now(), p_actor_kind, p_actor, p_actor_name, p_action, p_subject_kind, p_subject_id, p_subject_name, p_count,
            p_request_id, p_detail);
end $$;

alter table duly.audit enable row level security;
create policy of_its_tenant on duly.audit for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.audit to duly_api;
revoke execute on function duly.keep_audit_v1, duly.forget_audit_v1, duly.api_note_v1 from public;
grant execute on function duly.api_note_v1 to duly_api;
