-- Notifications: where they go, what they are about, which there were, and which of them each delivery carried.

-- A receiver. `shown` is what people may see of its configuration; the whole of it is sealed, and the key is not in this database.
create table duly.channels (
    tenant     integer not null,
    name       text collate "C" not null,
    kind       text not null check (kind in ('webhook', 'email', 'apprise')),
    shown      jsonb not null,
    sealed     bytea not null,
    key_id     text not null,
    updated_at timestamptz not null,
    primary key (tenant, name)
);

-- A rule: the definition as it was requested, and what the monitor reads of it in columns of their own.
create table duly.notification_rules (
    tenant       integer not null,
    name         text collate "C" not null,
    definition   jsonb not null,
    selects      jsonb not null,                        -- the parsed filter
    events       text[] not null check (events <> '{}'),
    mode         text not null check (mode in ('every', 'on_change', 'digest')),
    channels     text[] collate "C" not null check (channels <> '{}'),
    late_after   interval,
    absent_after interval,
    queue_age    interval,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    looked_at    timestamptz not null default '-infinity', -- when the monitor last read what the rule watches besides history
    -- The last waiting run that was judged: those due later are still to be judged, each once.
    late_to      timestamptz not null,
    late_id      uuid not null default '00000000-0000-0000-0000-000000000000',
    absent_to    timestamptz not null,
    absent_id    uuid not null default '00000000-0000-0000-0000-000000000000',
    sent_to      bigint not null default 0,             -- the last notification that a delivery carries
    sent_at      timestamptz,
    primary key (tenant, name)
);
create index notification_rules_watching on duly.notification_rules (looked_at)
 where events && array['late', 'absent', 'queue_age', 'paused', 'circuit_open'];

-- What rules have noticed. Numbers of a rule rise in the order of commits, because one process at a time notices.
create table duly.notifications (
    notification_id bigint generated always as identity,
    tenant      integer not null,
    rule        text collate "C" not null,
    event       text not null,
    key         text not null,                          -- what it is about, and which time of it: each once
    subject     text not null,                          -- for people: a job, a queue, a destination
    job_id      uuid,
    run_id      uuid,
    attempt     integer,
    queue       text collate "C",
    reason      text,
    happened_at timestamptz not null,
    noticed_at  timestamptz not null,
    primary key (tenant, rule, notification_id)
);
create unique index notifications_once on duly.notifications (tenant, rule, key);
create index notifications_by_number on duly.notifications (tenant, notification_id);
create index notifications_by_time on duly.notifications (noticed_at);

-- What is wrong now under a rule: a job that failed, a backlog, a pause, an open circuit. Its end is a recovery.
create table duly.notification_states (
    tenant   integer not null,
    rule     text collate "C" not null,
    key      text not null,
    event    text not null,
    subject  text not null,
    job_id   uuid,
    since    timestamptz not null,
    last_at  timestamptz not null,
    primary key (tenant, rule, key)
);
create index notification_states_by_job on duly.notification_states (job_id) where job_id is not null;
create index notification_states_by_time on duly.notification_states (last_at);

-- Deliveries, each a run. Which notifications one carries is a range of their numbers; a test has none, and no rule.
create table duly.notification_deliveries (
    run_id        uuid primary key,
    tenant        integer not null,
    channel       text collate "C" not null,
    rule          text collate "C",
    after_number  bigint not null,
    upto_number   bigint not null,
    notifications integer not null check (notifications >= 0),
    created_at    timestamptz not null
);
create index notification_deliveries_by_channel on duly.notification_deliveries (tenant, channel, created_at);
create index notification_deliveries_by_rule on duly.notification_deliveries (tenant, rule, created_at) where rule is not null;
create index notification_deliveries_by_number on duly.notification_deliveries (tenant, rule, upto_number) where rule is not null;
create index notification_deliveries_by_time on duly.notification_deliveries (created_at);

-- How far the monitor has read history. Who holds the row is the monitor for that moment.
create table duly.notification_cursor (
    is_only   boolean default true check (is_only) primary key,
    cluster   text not null,
    ended     xid8 not null,                            -- every transaction before this one was read,
    open      xid8[] not null default '{}',             -- except these, which were still open
    looked_at timestamptz not null
) with (fillfactor = 50);

do $$
declare
    v_table text;
begin
    foreach v_table in array array['channels', 'notification_rules', 'notifications', 'notification_deliveries'] loop
        execute format('alter table duly.%I enable row level security', v_table);
        execute format('create policy of_its_tenant on duly.%I for select to duly_api using (tenant = duly.current_tenant())', v_table);
        execute format('grant select on duly.%I to duly_api', v_table);
    end loop;
    foreach v_table in array array['notification_states', 'notification_cursor'] loop
        execute format('alter table duly.%I enable row level security', v_table);
    end loop;
end $$;
