-- Schedules that a program declares, or that stand in a file. docs/decisions/0019-schedules-declared-in-code.md and
-- docs/decisions/0020-schedules-in-files.md say why.

-- Remember a declared job's definitions with every change of it, so that an older version can be distinguished from a newer one. What
-- begins anew after it was over goes on from what was known. The last 32 suffice: one that is older is taken for new, once.
create or replace function duly.remember_definition() returns trigger
language plpgsql {planned by index} as $$
declare
    v_known bytea[] := case when tg_op = 'UPDATE' then new.definitions else (
        select jobs.definitions from duly.jobs
         where jobs.tenant = new.tenant and jobs.source = new.source and jobs.name = new.name order by jobs.created_at desc limit 1) end;
begin
    v_known := array_append(array_remove(v_known, new.definition), new.definition);
    new.definitions := v_known[greatest(1, cardinality(v_known) - 31):];
    return new;
end $$;

-- The jobs that have these names, of any source; and those that a program has declared. Of one name the one that lives, else
-- the last. What was cancelled is forgotten: declared again, it begins anew.
create or replace function duly.standing(p_tenant integer, p_source text, p_names text[])
returns table (job_id uuid, name text, owner text, source text, state text, pause_reason text, generation integer,
               definition bytea, definitions bytea[], removed_at timestamptz)
language plpgsql stable {planned by index, by loop} as $$
#variable_conflict use_column
begin
    return query
    with found as (
        select jobs.* from unnest(p_names) as requested(name)
          join duly.jobs on jobs.tenant = p_tenant and jobs.name = requested.name and jobs.name is not null and jobs.state in ('active', 'paused')
        union all
        select jobs.* from duly.jobs
         where jobs.tenant = p_tenant and jobs.source = p_source and jobs.owner = 'code' and jobs.name is not null and jobs.state <> 'cancelled')
    select distinct on (name) job_id, name, owner, source, state, pause_reason, generation,
           coalesce(definition, ''), coalesce(definitions, '{}'), removed_at
      from found order by name, state in ('active', 'paused') desc, created_at desc, job_id;
end $$;

-- Record that jobs belong to a file, of which version each is by it, and who has applied it.
create or replace function duly.mark_applied(p_tenant integer, p_source text, p_job_ids uuid[], p_versions integer[], p_by text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
begin
    perform duly.must_be_ours(p_tenant);
    update duly.jobs set owner = 'file', source = p_source, applied = marked.version, removed_at = null, updated_at = duly.clock_now()
      from unnest(p_job_ids, p_versions) as marked(job_id, version)
     where jobs.job_id = marked.job_id and jobs.tenant = p_tenant;
    insert into duly.files (tenant, source, applied_at, applied_by) values (p_tenant, p_source, duly.clock_now(), p_by)
        on conflict (tenant, source) do update set applied_at = excluded.applied_at, applied_by = excluded.applied_by;
end $$;

-- Record that a file took jobs away itself, so that their cancels can be distinguished from others later.
create or replace function duly.mark_taken_out(p_tenant integer, p_job_ids uuid[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
begin
    perform duly.must_be_ours(p_tenant);
    update duly.jobs set applied = null, updated_at = duly.clock_now() where jobs.job_id = any (p_job_ids) and jobs.tenant = p_tenant;
end $$;

-- The schedules that live workers declare. A worker that has not beaten for a lease is not counted, whether or not it has been reaped.
create or replace function duly.declared() returns setof text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select distinct declared from duly.workers cross join lateral unnest(workers.declares) as declared
     where workers.until > duly.clock_now() and duly.is_ours(split_part(declared, '/', 1)::integer)
$$;

grant execute on function duly.standing, duly.declared, duly.mark_applied, duly.mark_taken_out to duly_api;
