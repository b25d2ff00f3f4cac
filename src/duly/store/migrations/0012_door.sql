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
create policy of_tenant on duly.answers to duly_api using (tenant = duly.current_tenant()) with check (tenant = duly.current_tenant());
grant select, insert, update on duly.answers to duly_api;
