-- Redaction: what rules such as `$.card` name in a payload is not written to history. docs/decisions/0049-redaction-where-values-leave.md says why.
--
-- Rules are a job's own, among its options, and those of its tenant and of the installation, in `redactions`. Where there are none of these,
-- which one look a statement says, and none of its own, a run pays nothing. `domain/redaction.py` reads the same paths and gives the same values.

-- Return whether this is a path that can be read.
create or replace function duly.is_rule(p_path text) returns boolean language sql immutable parallel safe as $$
    select length(p_path) <= 200
       and p_path ~ '^\$(\.\.[A-Za-z_][A-Za-z0-9_-]*|\.([A-Za-z_][A-Za-z0-9_-]*|\*)|\[([0-9]{1,6}|\*)\]|\[''[^''\\]+''\])+$'
$$;

-- Return whether these are the rules of a job: at most 32 paths, or none.
create or replace function duly.are_rules(p_rules jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_rules is null then true when jsonb_typeof(p_rules) <> 'array' then false
                else jsonb_array_length(p_rules) between 1 and 32
                     and not jsonb_path_exists(p_rules, '$[*] ? (@.type() != "string")')
                     and (select bool_and(duly.is_rule(path)) from jsonb_array_elements_text(p_rules) as path) end
$$;

-- The rules of a tenant and of the installation; null where there are none. A request sees those of its own tenant.
create or replace function duly.rules_above(p_tenant integer) returns text[]
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select array_agg(rule order by redactions.tenant nulls first, number)
      from duly.redactions cross join unnest(redactions.rules) with ordinality as one(rule, number)
     where (redactions.tenant is null or redactions.tenant = p_tenant) and duly.is_ours(p_tenant)
$$;

-- Lay all rules that apply to a run over its options.
create or replace function duly.with_rules(p_options jsonb, p_tenant integer) returns jsonb language plpgsql stable as $$
declare
    v_above jsonb := to_jsonb(duly.rules_above(p_tenant));
begin
    return case when v_above is null then p_options
                else coalesce(p_options, '{}') || jsonb_build_object('redact', coalesce(p_options->'redact', '[]') || v_above) end;
end $$;

-- The options that the record of a run keeps, with all rules by which it was redacted.
create or replace function duly.options_recorded(p_options jsonb, p_tenant integer) returns jsonb language sql stable as $$
    select duly.options_kept(duly.with_rules(p_options, p_tenant))
$$;

-- Return a JSON value with a mark at the end of these steps: '.name', '~name' at any depth, '[3]', and '*' for each.
create or replace function duly.marked(p_value jsonb, p_steps text[], p_mark jsonb) returns jsonb language plpgsql immutable parallel safe as $$
declare
    v_step text := p_steps[1];
    v_rest text[] := p_steps[2:];
    v_name text := substr(v_step, 2);
begin
    if v_step is null then
        return p_mark;
    elsif jsonb_typeof(p_value) = 'object' and v_step like '.%' then
        return case when p_value ? v_name then p_value || jsonb_build_object(v_name, duly.marked(p_value->v_name, v_rest, p_mark)) else p_value end;
    elsif jsonb_typeof(p_value) = 'object' then
        return coalesce((
            select jsonb_object_agg(one.key, case when v_step = '*' or (v_step like '~%' and one.key = v_name) then duly.marked(inner_value, v_rest, p_mark)
                                                  else inner_value end)
              from jsonb_each(p_value) as one
             cross join lateral (select case when v_step like '~%' then duly.marked(one.value, p_steps, p_mark) else one.value end as inner_value) as deep), '{}');
    elsif jsonb_typeof(p_value) = 'array' then
        return coalesce((
            select jsonb_agg(case when v_step = '*' or v_step = format('[%s]', one.number - 1) then duly.marked(inner_value, v_rest, p_mark)
                                  else inner_value end order by one.number)
              from jsonb_array_elements(p_value) with ordinality as one(value, number)
             cross join lateral (select case when v_step like '~%' then duly.marked(one.value, p_steps, p_mark) else one.value end as inner_value) as deep), '[]');
    end if;
    return p_value;
end $$;

-- Return a JSON value as it is shown: with `*** (rule)` in the place of what the rules name; without rules as it is.
create or replace function duly.redacted(p_value jsonb, p_rules jsonb) returns jsonb language plpgsql immutable parallel safe as $$
declare
    v_value jsonb := p_value;
    v_path  text;
    v_steps text[];
begin
    if p_value is null or p_rules is null then
        return p_value;
    end if;
    for v_path in select path from jsonb_array_elements_text(p_rules) as path loop
        v_steps := array(
            select case when found.part[1] is not null then '~' || found.part[1]
                        when found.part[2] = '*' or found.part[3] = '*' then '*'
                        when found.part[3] is not null then format('[%s]', found.part[3]::integer)
                        else '.' || coalesce(found.part[2], found.part[4]) end
              from regexp_matches(v_path, '\.\.([A-Za-z_][A-Za-z0-9_-]*)|\.([A-Za-z_][A-Za-z0-9_-]*|\*)|\[([0-9]{1,6}|\*)\]|\[''([^''\\]+)''\]', 'g')
                   with ordinality as found(part, number) order by found.number);
        v_value := duly.marked(v_value, v_steps, to_jsonb(format('*** (%s)', v_path)));
    end loop;
    return v_value;
end $$;

-- Redact the payload in the record of a run's end, before it is written. One that stood among the payloads is taken into the record, if it may
-- be that large; of a one-shot nothing else needs it then, and it goes.
create or replace function duly.redact_attempt() returns trigger
language plpgsql {planned by index} as $$
begin
    if new.payload_stored then
        new.payload := (select payloads.body from duly.payloads where payloads.job_id = new.job_id and payloads.generation = coalesce(new.generation, 1));
        if new.payload is null or (new.outcome = 'succeeded' and pg_column_size(new.payload) > coalesce((select payload_bytes from duly.history_limits), 8192)) then
            new.payload := null;
            new.payload_stored := false;
        else
            new.payload_stored := null;
        end if;
        delete from duly.payloads where payloads.job_id = new.job_id and new.job_id = new.run_id;
    end if;
    new.payload := duly.redacted(new.payload, new.options->'redact');
    return new;
end $$;

-- Set the rules of a tenant, or with none of the installation; no rules take them away. Returns whether that changed anything.
create or replace function duly.set_rules(p_tenant integer, p_rules text[]) returns boolean
language plpgsql as $$
begin
    if cardinality(p_rules) = 0 then
        delete from duly.redactions where redactions.tenant is not distinct from p_tenant;
        return found;
    end if;
    insert into duly.redactions (tenant, rules) values (p_tenant, p_rules)
    on conflict (tenant) do update set rules = excluded.rules where redactions.rules <> excluded.rules;
    return found;
end $$;

grant execute on function duly.rules_above, duly.with_rules, duly.redacted, duly.marked to duly_api;
