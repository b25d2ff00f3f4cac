-- The audit log. docs/decisions/0038-audit-entries-in-the-transaction.md says why.

-- Append-only, for its owner too. The call stack shows who deletes: a setting could be set by anybody.
create or replace function duly.keep_audit() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_stack text;
begin
    get diagnostics v_stack = pg_context;
    if tg_op = 'DELETE' and v_stack ~ E'\nPL/pgSQL function duly\\.(forget_audit\\(interval,integer\\)|depart\\(integer,bigint\\)) line ' then
        return null;
    end if;
    raise exception using errcode = 'insufficient_privilege', message = format('duly.audit is append-only: %s is refused', lower(tg_op)),
        hint = 'Rows go by age alone, or with their tenant to another cell: set retention_audit.';
end $$;

-- Forget what is older than it has to be kept, so many rows at most. Less than a day is no retention but a way to erase a trace.
create or replace function duly.forget_audit(p_kept interval, p_limit integer) returns integer
language plpgsql set search_path = pg_catalog, pg_temp {planned by index} as $$
declare
    v_before timestamptz := duly.clock_now() - p_kept;
    v_removed   integer;
begin
    if p_kept < interval '1 day' then
        raise exception using errcode = 'invalid_parameter_value', message = format('the audit is kept for a day at least, not %s', p_kept);
    end if;
    delete from duly.audit using (
        select old.tenant, old.at, old.audit_id from duly.tenants
         cross join lateral (select audit.tenant, audit.at, audit.audit_id from duly.audit
                              where audit.tenant = tenants.tenant and audit.at < v_before order by audit.at limit p_limit) as old
         limit p_limit) as removed
     where audit.tenant = removed.tenant and audit.at = removed.at and audit.audit_id = removed.audit_id;
    get diagnostics v_removed = row_count;
    return v_removed;
end $$;

-- Record a change, as a part of the transaction of the change.
create or replace function duly.record_audit(
    p_tenant integer, p_actor_kind text, p_actor text, p_actor_name text, p_action text, p_subject_kind text, p_subject_id text,
    p_subject_name text, p_count integer, p_request_id text, p_detail jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    insert into duly.audit (tenant, at, actor_kind, actor, actor_name, action, subject_kind, subject_id, subject_name, count, request_id, detail)
    values (p_tenant, duly.clock_now(), p_actor_kind, p_actor, p_actor_name, p_action, p_subject_kind, p_subject_id, p_subject_name, p_count,
            p_request_id, p_detail);
end $$;

grant execute on function duly.record_audit to duly_api;
