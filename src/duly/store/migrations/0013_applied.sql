-- Schedules kept in a file. docs/decisions/0017-schedules-as-code.md says why.

alter table duly.jobs
    drop constraint jobs_owner_check,
    add constraint jobs_owner_check check (owner in ('api', 'code', 'file')),
    add column applied      integer;                    -- of an owner 'file': the version it had when its file was last applied

-- Note that jobs belong to a file, and of which version each is by it. What has another version later was changed by somebody else.
create function duly.mark_applied_v1(p_tenant integer, p_source text, p_job_ids uuid[], p_versions integer[]) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
begin
    update duly.jobs set owner = 'file', source = p_source, applied = marked.version, removed_at = null, updated_at = duly.clock_now()
      from unnest(p_job_ids, p_versions) as marked(job_id, version)
     where jobs.job_id = marked.job_id and jobs.tenant = p_tenant;
end $$;

-- Note that a file took jobs away itself, so that nobody wonders later who cancelled them.
create function duly.mark_taken_out_v1(p_tenant integer, p_job_ids uuid[]) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
begin
    update duly.jobs set applied = null, updated_at = duly.clock_now() where jobs.job_id = any (p_job_ids) and jobs.tenant = p_tenant;
end $$;

-- The same as the API calls them.
create function duly.api_mark_applied_v1(p_tenant integer, p_source text, p_job_ids uuid[], p_versions integer[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.mark_applied_v1(p_tenant, p_source, p_job_ids, p_versions);
end $$;

create function duly.api_mark_taken_out_v1(p_tenant integer, p_job_ids uuid[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.mark_taken_out_v1(p_tenant, p_job_ids);
end $$;

revoke execute on function
    duly.mark_applied_v1, duly.mark_taken_out_v1, duly.api_mark_applied_v1, duly.api_mark_taken_out_v1
    from public;
grant execute on function duly.api_mark_applied_v1, duly.api_mark_taken_out_v1 to duly_api;
