-- Channels and rules of notifications, as people change them; and what a delivery is made of.
-- docs/decisions/0052-notifications-are-rows-and-deliveries-are-runs.md says why.

-- Wait for any other change of this tenant's channels and rules, and make others wait until the transaction ends: what is counted stays true.
create or replace function duly.lock_notifications(p_tenant integer) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtext('duly.notifications'), p_tenant);
end $$;

-- Store a channel, new or changed. Returns whether it is new. The number of a tenant's channels is bounded.
create or replace function duly.put_channel(p_tenant integer, p_name text, p_kind text, p_shown jsonb, p_sealed bytea, p_key_id text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_is_new boolean;
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.lock_notifications(p_tenant);
    insert into duly.channels (tenant, name, kind, shown, sealed, key_id, updated_at)
    select p_tenant, p_name, p_kind, p_shown, p_sealed, p_key_id, duly.clock_now()
     where exists (select from duly.channels where channels.tenant = p_tenant and channels.name = p_name)
        or (select count(*) from duly.channels where channels.tenant = p_tenant) < 100
    on conflict (tenant, name) do update
       set kind = excluded.kind, shown = excluded.shown, sealed = excluded.sealed, key_id = excluded.key_id, updated_at = excluded.updated_at
    returning xmax = 0 into v_is_new;
    if not found then
        raise exception using errcode = 'DU005', message = 'this tenant has 100 channels, which is the limit',
            hint = 'Delete one that no rule uses.';
    end if;
    return v_is_new;
end $$;

-- Delete a channel that no rule uses: dropped, missing, or used by a rule. The channel is locked, so no rule comes to use it meanwhile.
create or replace function duly.drop_channel(p_tenant integer, p_name text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_user text;
begin
    perform duly.must_be_ours(p_tenant);
    perform from duly.channels where channels.tenant = p_tenant and channels.name = p_name for update;
    if not found then
        return 'missing';
    end if;
    select rules.name into v_user from duly.notification_rules as rules
     where rules.tenant = p_tenant and p_name = any (rules.channels) order by rules.name limit 1;
    if found then
        return 'used by ' || v_user;
    end if;
    delete from duly.channels where channels.tenant = p_tenant and channels.name = p_name;
    return 'dropped';
end $$;

-- Store a rule, new or changed; its notifications and deliveries stay. A new one covers what happens from now on. Returns whether it is new.
create or replace function duly.put_notification_rule(
    p_tenant integer, p_name text, p_definition jsonb, p_selects jsonb, p_events text[], p_mode text, p_channels text[],
    p_late_after interval, p_absent_after interval, p_queue_age interval) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now    timestamptz := duly.clock_now();
    v_absent text;
    v_is_new boolean;
begin
    perform duly.must_be_ours(p_tenant);
    perform duly.lock_notifications(p_tenant);
    perform from duly.channels where channels.tenant = p_tenant and channels.name = any (p_channels) order by channels.name for share;
    select used.name into v_absent from unnest(p_channels) as used(name)
     where not exists (select from duly.channels where channels.tenant = p_tenant and channels.name = used.name) limit 1;
    if found then
        raise exception using errcode = 'DU005', message = format('no channel is named %s', quote_literal(v_absent)),
            hint = 'Put the channel first; `duly notify channels` lists them.';
    end if;
    perform duly.begin_watching(v_now);
    insert into duly.notification_rules (tenant, name, definition, selects, events, mode, channels, late_after, absent_after, queue_age,
                                         created_at, updated_at, late_to, absent_to, sent_to)
    select p_tenant, p_name, p_definition, p_selects, p_events, p_mode, p_channels, p_late_after, p_absent_after, p_queue_age,
           v_now, v_now, v_now - coalesce(p_late_after, interval '0'), v_now - coalesce(p_absent_after, interval '0'),
           -- What an earlier rule of this name had noticed is not sent by this one.
           coalesce((select max(notification_id) from duly.notifications where notifications.tenant = p_tenant and notifications.rule = p_name), 0)
     where exists (select from duly.notification_rules as rules where rules.tenant = p_tenant and rules.name = p_name)
        or (select count(*) from duly.notification_rules as rules where rules.tenant = p_tenant) < 100
    on conflict (tenant, name) do update
       set definition = excluded.definition, selects = excluded.selects, events = excluded.events, mode = excluded.mode, channels = excluded.channels,
           late_after = excluded.late_after, absent_after = excluded.absent_after, queue_age = excluded.queue_age, updated_at = excluded.updated_at,
           -- An event that is new to the rule is noticed from now on, too.
           late_to = case when 'late' = any (notification_rules.events) then notification_rules.late_to else excluded.late_to end,
           absent_to = case when 'absent' = any (notification_rules.events) then notification_rules.absent_to else excluded.absent_to end
    returning xmax = 0 into v_is_new;
    if not found then
        raise exception using errcode = 'DU005', message = 'this tenant has 100 rules, which is the limit', hint = 'Delete one, or widen a filter.';
    end if;
    return v_is_new;
end $$;

-- Delete a rule with its open states; the notifications stay until they expire.
create or replace function duly.drop_notification_rule(p_tenant integer, p_name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_found boolean;
begin
    perform duly.must_be_ours(p_tenant);
    delete from duly.notification_rules where notification_rules.tenant = p_tenant and notification_rules.name = p_name;
    v_found := found;
    delete from duly.notification_states where notification_states.tenant = p_tenant and notification_states.rule = p_name;
    return v_found;
end $$;

-- Record that rules belong to a file, and are as it says. The limit of a tenant bounds how many.
create or replace function duly.mark_rules_applied(p_tenant integer, p_source text, p_names text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp {planned by index} as $$
begin
    perform duly.must_be_ours(p_tenant);
    update duly.notification_rules set source = p_source, applied = definition
     where notification_rules.tenant = p_tenant and notification_rules.name = any (p_names)
       and (notification_rules.source, notification_rules.applied) is distinct from (p_source, notification_rules.definition);
end $$;

-- Submit a delivery that only tests a channel. Null: there is no such channel. The key makes a repeated request one delivery.
create or replace function duly.test_channel(p_tenant integer, p_name text, p_key text) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_now    timestamptz := duly.clock_now();
    v_run_id uuid := duly.run_id(v_now, format('notification/%s/%s/test/%s', p_tenant, p_name, p_key));
begin
    perform duly.must_be_ours(p_tenant);
    if not exists (select from duly.channels where channels.tenant = p_tenant and channels.name = p_name) then
        return null;
    end if;
    perform duly.put_delivery(p_tenant, null, p_name, v_run_id, 0, 0, 0, v_now);
    return v_run_id;
end $$;

-- Create the run that delivers, due now: so it goes straight to ready, and needs no scheduler. All deliveries have a queue of their own, which every
-- worker serves that can deliver: no backlog of another queue is before them.
create or replace function duly.put_delivery(
    p_tenant integer, p_rule text, p_channel text, p_run_id uuid, p_after bigint, p_upto bigint, p_notifications integer, p_now timestamptz)
returns void language plpgsql as $$
begin
    insert into duly.notification_deliveries (run_id, tenant, channel, rule, after_number, upto_number, notifications, created_at)
    values (p_run_id, p_tenant, p_channel, p_rule, p_after, p_upto, p_notifications, p_now) on conflict do nothing;
    if not found then
        return;
    end if;
    insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect, payload_stored,
                            queue, handler, payload, options)
    values (p_run_id, p_run_id, p_now, p_now, 1, p_tenant, 0, 5, 0, false, false, '@notifications', '@notification', '{}',
            case when p_rule is null then '{"retry": {"max_attempts": 1}, "timeout_seconds": 30}'
                 else '{"retry": {"max_attempts": 12, "base_seconds": 2, "cap_seconds": 900}, "timeout_seconds": 30}' end::jsonb);
end $$;

grant execute on function duly.put_channel, duly.drop_channel, duly.put_notification_rule, duly.drop_notification_rule, duly.mark_rules_applied, duly.test_channel to duly_api;
