-- Files of schedules: when each was last applied, and by whom. docs/decisions/0038-places.md says why.

create table duly.files (
    tenant       integer     not null,
    source       text        not null,
    applied_at   timestamptz,                           -- null: before this was noted
    applied_by   text        check (char_length(applied_by) <= 200),
    primary key (tenant, source)
) with (fillfactor = 50);
alter table duly.files enable row level security;
create policy of_its_tenant on duly.files for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.files to duly_api;

insert into duly.files (tenant, source) select distinct tenant, source from duly.jobs where owner = 'file' and source is not null;

-- Note that jobs belong to a file, of which version each is by it, and who has applied it.
create function duly.mark_applied_v2(p_tenant integer, p_source text, p_job_ids uuid[], p_versions integer[], p_by text) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
begin
    update duly.jobs set owner = 'file', source = p_source, applied = marked.version, removed_at = null, updated_at = duly.clock_now()
      from unnest(p_job_ids, p_versions) as marked(job_id, version)
     where jobs.job_id = marked.job_id and jobs.tenant = p_tenant;
    insert into duly.files (tenant, source, applied_at, applied_by) values (p_tenant, p_source, duly.clock_now(), p_by)
        on conflict (tenant, source) do update set applied_at = excluded.applied_at, applied_by = excluded.applied_by;
end $$;

-- As an older process calls it, which does not say who.
create or replace function duly.mark_applied_v1(p_tenant integer, p_source text, p_job_ids uuid[], p_versions integer[]) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
begin
    perform duly.mark_applied_v2(p_tenant, p_source, p_job_ids, p_versions, null);
end $$;

create function duly.api_mark_applied_v2(p_tenant integer, p_source text, p_job_ids uuid[], p_versions integer[], p_by text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.mark_applied_v2(p_tenant, p_source, p_job_ids, p_versions, p_by);
end $$;

revoke execute on function duly.mark_applied_v2, duly.api_mark_applied_v2 from public;
grant execute on function duly.api_mark_applied_v2 to duly_api;
