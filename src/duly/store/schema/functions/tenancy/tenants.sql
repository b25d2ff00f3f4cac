-- Tenant isolation and quotas. docs/decisions/0037-tenant-isolation-in-the-database.md says why.
--
-- A function that the API's role may call has its owner's rights and a fixed search path, and checks itself whose the rows are: a tenant that
-- it is given with `must_be_ours`, a row with `is_ours` in its `where`. Rows of another tenant are as unknown as rows that never were.

-- Return whether a tenant's request calls, and not the engine. The setting names the role that the session took on, also inside a function with its
-- owner's rights. One expression, so that it is inlined: this comparison is all that the engine pays for the wall.
create or replace function duly.is_tenant_session() returns boolean language sql stable as $$
    select current_setting('role') = 'duly_api'
$$;

-- Return whether rows of a tenant are this session's business: every tenant's for the engine, its own tenant's for a request.
create or replace function duly.is_ours(p_tenant integer) returns boolean language sql stable as $$
    select case when duly.is_tenant_session() then coalesce(p_tenant = duly.current_tenant(), false) else true end
$$;

create or replace function duly.must_be_ours(p_tenant integer) returns void language plpgsql stable as $$
begin
    if not duly.is_ours(p_tenant) then
        raise exception using errcode = 'DU021', message = format('no tenant %s', p_tenant);
    end if;
end $$;

create or replace function duly.is_our_job(p_job_id uuid) returns boolean
language plpgsql stable {planned by index} as $$
begin
    return exists (select from duly.jobs where jobs.job_id = p_job_id and duly.is_ours(jobs.tenant));
end $$;

-- Of these runs, those of this session that are in a box: another tenant's are as unknown as those that never were.
create or replace function duly.our_runs(p_run_ids uuid[]) returns uuid[]
language plpgsql stable {planned by index} as $$
begin
    return array(
        select timers.run_id from duly.timers where timers.run_id = any (p_run_ids) and timers.run_id is not null and duly.is_ours(timers.tenant)
        union all select blocked.run_id from duly.blocked where blocked.run_id = any (p_run_ids) and duly.is_ours(blocked.tenant)
        union all select ready.run_id from duly.ready where ready.run_id = any (p_run_ids) and duly.is_ours(ready.tenant)
        union all select leased.run_id from duly.leased where leased.run_id = any (p_run_ids) and duly.is_ours(leased.tenant)
        union all select dead.run_id from duly.dead where dead.run_id = any (p_run_ids) and duly.is_ours(dead.tenant));
end $$;

-------------------------------------------------------------------------------------------------- what a tenant may add

-- Refuse what a tenant's request may not add, and all that is added to a tenant that is not in this cell. The engine adds without limits.
create or replace function duly.admit(p_tenant integer, p_schedules integer, p_runs integer) returns void
language plpgsql as $$
begin
    perform duly.check_presence(p_tenant);
    if duly.is_tenant_session() then
        perform duly.must_be_ours(p_tenant);
        perform duly.check_quotas(p_tenant, p_schedules, p_runs);
    end if;
end $$;

-- Refuse what a tenant may not add, after it was added: a refusal undoes it. The count of schedules is exact; what waits is as of the
-- last count. No settings in its head: it is asked with every submit, and each would cost as much as the rest.
create or replace function duly.check_quotas(p_tenant integer, p_schedules integer, p_runs integer) returns void
language plpgsql as $$
declare
    v_tenant duly.tenants;
    v_count  bigint;
begin
    select * into v_tenant from duly.tenants where tenants.tenant = p_tenant;
    if not found then
        raise exception using errcode = 'DU021', message = format('no tenant %s', p_tenant);
    elsif v_tenant.state = 'suspended' then
        raise exception using errcode = 'DU022', message = format('tenant %s is suspended', v_tenant.name);
    end if;
    if p_runs > 0 and v_tenant.ready_max is not null then
        v_count := p_runs + coalesce((select tenant_usage.queued from duly.tenant_usage where tenant_usage.tenant = p_tenant), 0);
        if v_count > v_tenant.ready_max then
            raise exception using errcode = 'DU023', detail = 'ready_max', message = format(
                'tenant %s would have %s runs that wait, and may have %s', v_tenant.name, v_count, v_tenant.ready_max);
        end if;
    end if;
    if p_schedules > 0 and v_tenant.schedules_max is not null then
        if duly.count_schedules(p_tenant, v_tenant.schedules_max + 1) > v_tenant.schedules_max then
            raise exception using errcode = 'DU023', detail = 'schedules_max', message = format(
                'tenant %s has %s schedules, and may have no more', v_tenant.name, v_tenant.schedules_max);
        end if;
    end if;
end $$;

-- Count schedules, up to a number. The tenant's row is locked before, so that of two who count one sees what the other has created.
create or replace function duly.count_schedules(p_tenant integer, p_limit integer) returns bigint
language plpgsql {planned by index} as $$
begin
    perform from duly.tenants where tenants.tenant = p_tenant for no key update;
    return (select count(*) from (
        select from duly.jobs where jobs.tenant = p_tenant and jobs.state in ('active', 'paused') limit p_limit) as standing);
end $$;

-- Count what waits for those tenants that may have only so much of it, and forget the counts of the others.
create or replace function duly.count_usage() returns integer
language plpgsql set jit = off as $$
declare
    v_limited integer[] := array(select tenants.tenant from duly.tenants where tenants.ready_max is not null);
begin
    delete from duly.tenant_usage where tenant_usage.tenant <> all (v_limited);
    if cardinality(v_limited) = 0 then
        return 0;
    end if;
    insert into duly.tenant_usage (tenant, queued, counted_at)
    select limited.tenant, coalesce(counted.queued, 0), duly.clock_now() from unnest(v_limited) as limited(tenant)
      left join (select waiting.tenant, count(*) as queued from (
                     select ready.tenant from duly.ready where ready.tenant = any (v_limited)
                     union all select blocked.tenant from duly.blocked where blocked.tenant = any (v_limited)
                     union all select timers.tenant from duly.timers where timers.tenant = any (v_limited) and timers.run_id is not null) as waiting
                  group by 1) as counted on counted.tenant = limited.tenant
     order by 1
    on conflict (tenant) do update set queued = excluded.queued, counted_at = excluded.counted_at;
    return cardinality(v_limited);
end $$;

-- Take tokens out of a bucket: at least p_least, and up to p_wanted; none if there are fewer. One that asks for more than the bucket
-- holds is let through when it is full, and the debt is paid before the next. Answers with what was taken and what is left.
create or replace function duly.draw(p_name text, p_rate double precision, p_burst double precision, p_least integer, p_wanted integer,
                             out drawn integer, out tokens double precision)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now     timestamptz := duly.clock_now();
    v_counted timestamptz;
begin
    insert into duly.token_buckets (name, tokens, counted_at) values (p_name, p_burst, v_now) on conflict do nothing;
    select token_buckets.tokens, token_buckets.counted_at into strict tokens, v_counted from duly.token_buckets where token_buckets.name = p_name for update;
    tokens := least(p_burst, tokens + greatest(0, date_part('epoch', v_now - v_counted)) * p_rate);
    drawn := case when tokens >= least(p_least, p_burst) then greatest(p_least, least(p_wanted, floor(tokens)::integer)) else 0 end;
    tokens := tokens - drawn;
    update duly.token_buckets set tokens = draw.tokens, counted_at = v_now where token_buckets.name = p_name;
end $$;

-- The smallest period of a tenant's schedules in seconds, for callers that may know it; null: no limit.
create or replace function duly.least_period(p_tenant integer) returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select ceil(date_part('epoch', tenants.least_period))::integer from duly.tenants where tenants.tenant = p_tenant and duly.is_ours(p_tenant)
$$;

---------------------------------------------------------------------------------------------------------------- answers

-- Keep a response for a day, in place of the progress of its request, which has status 102. False: another transaction was
-- faster.
create or replace function duly.api_keep_answer(
    p_tenant integer, p_route text, p_key text, p_body_hash bytea, p_status integer, p_headers jsonb, p_body bytea) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    perform duly.must_be_ours(p_tenant);
    insert into duly.idempotent_responses (tenant, route, key, body_hash, status, headers, body, expires_at)
    values (p_tenant, p_route, p_key, p_body_hash, p_status, p_headers, p_body, v_now + interval '24 hours')
    on conflict (tenant, route, key) do update
       set body_hash = excluded.body_hash, status = excluded.status, headers = excluded.headers, body = excluded.body, expires_at = excluded.expires_at
     where idempotent_responses.expires_at <= v_now or idempotent_responses.status = 102;
    return found;
end $$;

grant execute on function duly.least_period, duly.api_keep_answer to duly_api;
