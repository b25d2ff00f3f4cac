-- People list the sessions of a key and revoke one, so each has a name that opens nothing, and tells where it was opened.
alter table duly.browser_sessions
    add column session_id uuid not null default gen_random_uuid(),
    add column last_used_at timestamptz not null default duly.clock_now(),
    add column address text not null default '',
    add column user_agent text not null default '';
alter table duly.browser_sessions alter column last_used_at drop default, alter column address drop default, alter column user_agent drop default;
create unique index browser_sessions_by_id on duly.browser_sessions (session_id);
create index browser_sessions_by_key on duly.browser_sessions (tenant, key_id, opened_at);
