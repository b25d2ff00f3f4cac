-- Resealing: values that are sealed already are sealed with another key. docs/decisions/0032-credentials-are-encrypted-in-place.md says why in this way.

-- Rows of a table between two of its blocks that hold something sealed with another key than this one.
create or replace function duly.sealed_before(p_table regclass, p_column text, p_key_id text, p_from bigint, p_until bigint)
returns table (tid tid, tenant integer, options jsonb) language plpgsql stable as $$
begin
    return query execute format('select ctid, tenant, %1$I from %2$s where ctid >= %3$L::tid and ctid < %4$L::tid and %1$I::text ~ %5$L',
                                p_column, p_table, format('(%s,0)', p_from), format('(%s,0)', p_until), duly.sealed_with_another(p_key_id));
end $$;

-- Write back options that were read, sealed anew. A row that has moved or changed since is left as it is: the next look finds it.
create or replace function duly.reseal(p_table regclass, p_column text, p_tids tid[], p_before jsonb[], p_after jsonb[]) returns bigint
language plpgsql as $$
declare
    v_count bigint;
begin
    execute format('update %2$s as kept set %1$I = read.after from unnest($1, $2, $3) as read(tid, before, after)'
                   ' where kept.ctid = read.tid and kept.%1$I = read.before', p_column, p_table) using p_tids, p_before, p_after;
    get diagnostics v_count = row_count;
    return v_count;
end $$;

-- The pattern of a text that has something sealed with another key than this one.
create or replace function duly.sealed_with_another(p_key_id text) returns text language sql immutable parallel safe as $$
    select '"sealed:(?!' || p_key_id || ':)[A-Za-z0-9_-]{1,64}:'
$$;

-- The number of rows that can still move and are sealed with another key, in one snapshot: a row that moves meanwhile is in one box.
create or replace function duly.sealed_left(p_key_id text) returns bigint language sql stable as $$
    select (select count(*) from duly.jobs where options::text ~ duly.sealed_with_another(p_key_id))
         + (select count(*) from duly.workflows where callbacks::text ~ duly.sealed_with_another(p_key_id))
         + (select count(*) from duly.workflow_nodes where options::text ~ duly.sealed_with_another(p_key_id))
         + (select count(*) from duly.timers where options::text ~ duly.sealed_with_another(p_key_id))
         + (select count(*) from duly.blocked where options::text ~ duly.sealed_with_another(p_key_id))
         + (select count(*) from duly.ready where options::text ~ duly.sealed_with_another(p_key_id))
         + (select count(*) from duly.leased where options::text ~ duly.sealed_with_another(p_key_id))
         + (select count(*) from duly.dead where options::text ~ duly.sealed_with_another(p_key_id))
$$;
