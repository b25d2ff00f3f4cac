-- Schedules declared in code. docs/decisions/0011-schedules-declared-in-code.md says why.

-- What a worker's program declares, each as tenant/hash/name: how the others know which declarations are alive.
alter table duly.workers add column declares text[] not null default '{}';

alter table duly.jobs
    add column definitions  bytea[],                    -- of an owner 'code': the hashes it has had, the one in force last
    add column removed_at   timestamptz;                -- of an owner 'code': since when no program declares it

-- Remember a declared job's definitions with every change of it, so that an older version can be told from a newer one. What
-- begins anew after it was over goes on from what was known. The last 32 suffice: one that is older is taken for new, once.
create function duly.remember_definition_v1() returns trigger
language plpgsql set enable_seqscan = off set jit = off as $$
declare
    v_known bytea[] := case when tg_op = 'UPDATE' then new.definitions else (
        select jobs.definitions from duly.jobs
         where jobs.tenant = new.tenant and jobs.source = new.source and jobs.name = new.name order by jobs.created_at desc limit 1) end;
begin
    v_known := array_append(array_remove(v_known, new.definition), new.definition);
    new.definitions := v_known[greatest(1, cardinality(v_known) - 31):];
    return new;
end $$;

create trigger jobs_remember_definition before insert or update of definition on duly.jobs
   for each row when (new.owner = 'code') execute function duly.remember_definition_v1();

-- The jobs that have these names, whoever's they are; and those that a program has declared. Of one name the one that lives, else
-- the last. What was cancelled is forgotten: declared again, it begins anew.
create function duly.standing_v1(p_tenant integer, p_source text, p_names text[])
returns table (job_id uuid, name text, owner text, source text, state text, pause_reason text, generation integer,
               definition bytea, definitions bytea[], removed_at timestamptz)
language plpgsql stable set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    with found as (
        select jobs.* from unnest(p_names) as asked(name)
          join duly.jobs on jobs.tenant = p_tenant and jobs.name = asked.name and jobs.name is not null and jobs.state in ('active', 'paused')
        union all
        select jobs.* from duly.jobs
         where jobs.tenant = p_tenant and jobs.source = p_source and jobs.owner = 'code' and jobs.name is not null and jobs.state <> 'cancelled')
    select distinct on (name) job_id, name, owner, source, state, pause_reason, generation,
           coalesce(definition, ''), coalesce(definitions, '{}'), removed_at
      from found order by name, state in ('active', 'paused') desc, created_at desc, job_id;
end $$;
