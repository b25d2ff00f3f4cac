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

-- What the lists brought, for the role of the door: it reads its own tenant's rows.
alter table duly.job_tags enable row level security;
create policy of_its_tenant on duly.job_tags for select to duly_api using (tenant = duly.current_tenant());
-- The lists read successes and the rest apart, so each is behind the wall by itself.
alter table duly.attempts_succeeded enable row level security;
alter table duly.attempts_failed enable row level security;
create policy of_its_tenant on duly.attempts_succeeded for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.attempts_failed for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.attempts_succeeded, duly.attempts_failed, duly.job_tags to duly_api;
