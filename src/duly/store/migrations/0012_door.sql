-- What the front door remembers: answers given under idempotency keys. They do not move.
create table duly.answers (
    tenant       integer     not null,
    route        text        not null collate "C",
    key          text        not null collate "C",
    body_hash    bytea       not null,                  -- of path, query and body: another request under the same key is refused
    status       smallint    not null,
    headers      jsonb       not null,
    body         bytea       not null,
    expires_at   timestamptz not null,
    primary key (tenant, route, key)
);
create index answers_by_expiry on duly.answers (expires_at);
alter table duly.answers enable row level security;
create policy of_its_tenant on duly.answers for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.answers to duly_api;

-- Keep an answer for a day. False: another transaction was faster.
create function duly.api_keep_answer_v1(
    p_tenant integer, p_route text, p_key text, p_body_hash bytea, p_status integer, p_headers jsonb, p_body bytea) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := duly.clock_now();
begin
    perform duly.must_be_ours(p_tenant);
    insert into duly.answers (tenant, route, key, body_hash, status, headers, body, expires_at)
    values (p_tenant, p_route, p_key, p_body_hash, p_status, p_headers, p_body, v_now + interval '24 hours')
    on conflict (tenant, route, key) do update
       set body_hash = excluded.body_hash, status = excluded.status, headers = excluded.headers, body = excluded.body, expires_at = excluded.expires_at
     where answers.expires_at <= v_now;
    return found;
end $$;

------------------------------------------------------------------------------------------------------------ the lists

-- What the lists brought, for the role of the door: it reads its own tenant's rows, and edits dead letters by a guarded move.
alter table duly.job_tags enable row level security;
create policy of_its_tenant on duly.job_tags for select to duly_api using (tenant = duly.current_tenant());
-- The lists read successes and the rest apart, so each is behind the wall by itself.
alter table duly.attempts_succeeded enable row level security;
alter table duly.attempts_failed enable row level security;
create policy of_its_tenant on duly.attempts_succeeded for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.attempts_failed for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.attempts_succeeded, duly.attempts_failed, duly.job_tags, duly.listed_timers, duly.listed_blocked, duly.listed_ready, duly.listed_leased, duly.listed_dead,
                duly.listed_succeeded, duly.listed_ended to duly_api;

create function duly.api_edit_dead_v1(p_tenant integer, p_run_ids uuid[], p_payload jsonb) returns setof uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform duly.must_be_ours(p_tenant);
    return query select * from duly.edit_dead_v1(p_tenant, duly.our_runs(p_run_ids), p_payload);
end $$;

-- The moves that time zone data brought, as the door calls them.
create function duly.api_timed_by_v1(p_job_id uuid, p_tzdb text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if duly.is_our_job(p_job_id) then
        perform duly.timed_by_v1(p_job_id, p_tzdb);
    end if;
end $$;

create function duly.api_submit_backfill_v2(
    p_backfill_id uuid, p_job_id uuid, p_from timestamptz, p_to timestamptz, p_rate double precision, p_total integer, p_previous timestamptz,
    p_places integer)
returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return duly.is_our_job(p_job_id)
       and duly.submit_backfill_v2(p_backfill_id, p_job_id, p_from, p_to, p_rate, p_total, p_previous, p_places);
end $$;

-- A function is everybody's until that is taken back.
revoke execute on all functions in schema duly from public;
revoke execute on function duly.api_submit_backfill_v1 from duly_api;
grant execute on function
    duly.marks_of, duly.page_jobs_v1, duly.page_runs_v1, duly.page_runs_of_job_v1, duly.page_dead_v1, duly.api_edit_dead_v1,
    duly.api_keep_answer_v1, duly.api_timed_by_v1, duly.api_submit_backfill_v2
    to duly_api;
