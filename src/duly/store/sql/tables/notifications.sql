-- name: put_channel
select duly.put_channel($1, $2, $3, $4::jsonb, $5, $6)

-- name: drop_channel
select duly.drop_channel($1, $2)

-- name: channels
-- With its latest delivery: which run that is, what became of it, and why it failed if it did; and the rules that use it.
select channels.name, channels.kind, channels.shown, channels.updated_at,
       array(select rules.name from duly.notification_rules as rules
              where rules.tenant = $1 and channels.name = any (rules.channels) order by rules.name) as rules,
       latest.run_id, latest.created_at, coalesce(live.state::text, ended.became::text) as state, coalesce(ended.attempt, 0) as attempts, ended.reason
  from duly.channels
  left join lateral (
       select run_id, created_at from duly.notification_deliveries as deliveries
        where deliveries.tenant = channels.tenant and deliveries.channel = channels.name order by deliveries.created_at desc limit 1) as latest on true
  left join lateral (select live_runs.state from duly.live_runs where live_runs.run_id = latest.run_id limit 1) as live on true
  left join lateral (
       select became, attempt, case when outcome <> 'succeeded' then reason end as reason from duly.attempts
        where attempts.run_id = latest.run_id order by finished_at desc limit 1) as ended on true
 where channels.tenant = $1 and ($2::text is null or channels.name = $2) order by channels.name

-- name: sealed_channel
select kind, sealed, key_id from duly.channels where tenant = $1 and name = $2

-- name: put_rule
select duly.put_notification_rule($1, $2, $3::jsonb, $4::jsonb, $5::text[], $6, $7::text[], $8, $9, $10)

-- name: drop_rule
select duly.drop_notification_rule($1, $2)

-- name: rules
select rules.name, rules.definition, rules.created_at, rules.updated_at, rules.sent_at,
       rules.source, rules.source is not null and rules.definition is distinct from rules.applied as is_drifted,
       (select count(*) from (select from duly.notifications where notifications.tenant = rules.tenant and notifications.rule = rules.name
                                  and notifications.notification_id > rules.sent_to limit 100001) as one) as waiting
  from duly.notification_rules as rules where rules.tenant = $1 and ($2::text is null or rules.name = $2) order by rules.name

-- name: ruled
select name, definition, source, applied from duly.notification_rules
 where tenant = $1 and (name = any ($3::text[]) or source = $2) order by name

-- name: exported
select name, definition from duly.notification_rules where tenant = $1 and (source = $2 or ($3 and source is null)) order by name

-- name: mark_applied
select duly.mark_rules_applied($1, $2, $3::text[])

-- name: test_channel
select duly.test_channel($1, $2, $3)

-- name: watch
select duly.watch($1)

-- name: waiting
-- Rules with notifications that no delivery carries, and when their last deliveries left, the newest first.
select rules.tenant, rules.name, rules.definition, rules.sent_to, first.noticed_at, duly.clock_now() as now,
       array(select distinct deliveries.created_at from duly.notification_deliveries as deliveries
              where deliveries.tenant = rules.tenant and deliveries.rule = rules.name order by deliveries.created_at desc limit $1) as sent
  from duly.notification_rules as rules
 cross join lateral (
       select noticed_at from duly.notifications where notifications.tenant = rules.tenant and notifications.rule = rules.name
          and notifications.notification_id > rules.sent_to order by notification_id limit 1) as first

-- name: upto
select max(notification_id) as upto, count(*)::integer as count from duly.notifications where tenant = $1 and rule = $2 and notification_id > $3

-- name: send
select duly.send_notifications($1, $2, $3, $4, $5)

-- name: delivery
select tenant, channel, rule, after_number, upto_number, notifications, created_at from duly.notification_deliveries where run_id = $1

-- name: carried
select notification_id, rule, event, subject, job_id, run_id, attempt, queue, reason, happened_at, noticed_at from duly.notifications
 where tenant = $1 and rule = $2 and notification_id > $3 and notification_id <= $4 order by notification_id limit $5

-- name: page
-- The newest first. Its deliveries are those that carry its number.
select found.*, coalesce((select jsonb_agg(jsonb_build_object('channel', sent.channel, 'run_id', sent.run_id, 'state', sent.state, 'reason', sent.reason) order by sent.channel)
                            from (select deliveries.channel, deliveries.run_id, coalesce(live.state::text, ended.became::text) as state, ended.reason
                                    from duly.notification_deliveries as deliveries
                                    left join lateral (select live_runs.state from duly.live_runs where live_runs.run_id = deliveries.run_id limit 1) as live on true
                                    left join lateral (select became, case when outcome <> 'succeeded' then reason end as reason from duly.attempts
                                                        where attempts.run_id = deliveries.run_id order by finished_at desc limit 1) as ended on true
                                   where deliveries.tenant = $1 and deliveries.rule = found.rule and deliveries.upto_number >= found.notification_id
                                     and deliveries.after_number < found.notification_id
                                   order by deliveries.upto_number limit 10) as sent), '[]') as deliveries
  from (select notification_id, rule, event, subject, job_id, run_id, attempt, queue, reason, happened_at, noticed_at from duly.notifications
         where tenant = $1 and ($2::text is null or rule = $2) and notification_id < $3 order by notification_id desc limit $4) as found

-- name: failing
-- Channels whose latest delivery gave up, or is being tried again. For the operator.
select channels.tenant, channels.name, latest.run_id, latest.state, latest.reason
  from duly.channels
 cross join lateral (
       select deliveries.run_id from duly.notification_deliveries as deliveries
        where deliveries.tenant = channels.tenant and deliveries.channel = channels.name order by deliveries.created_at desc limit 1) as last
 cross join lateral (
       select live_runs.run_id, live_runs.state::text as state,
              (select reason from duly.attempts where attempts.run_id = last.run_id order by finished_at desc limit 1) as reason
         from duly.live_runs where live_runs.run_id = last.run_id and live_runs.state in ('retrying', 'dead', 'blocked') limit 1) as latest
 order by channels.tenant, channels.name limit $1

-- name: before
-- Channels that are sealed with another key than this one.
select tenant, name, sealed, key_id from duly.channels where key_id <> $1 and (tenant, name) > ($2, $3) order by tenant, name limit $4

-- name: reseal
update duly.channels set sealed = $4, key_id = $5 where tenant = $1 and name = $2 and sealed = $3 returning true

-- name: forget
-- Notifications that wait for a delivery, which a digest or a limit may delay for a month, are kept.
with old as (
    delete from duly.notifications where ctid = any (array(
        select ctid from duly.notifications as one
         where noticed_at < duly.clock_now() - $1::interval
           and not exists (select from duly.notification_rules as rules
                            where rules.tenant = one.tenant and rules.name = one.rule and rules.sent_to < one.notification_id)
         order by noticed_at limit $2)) returning 1),
sent as (
    delete from duly.notification_deliveries where run_id = any (array(
        select run_id from duly.notification_deliveries where created_at < duly.clock_now() - $1::interval order by created_at limit $2)) returning 1),
states as (
    delete from duly.notification_states where ctid = any (array(
        select ctid from duly.notification_states
         where last_at < duly.clock_now() - $1::interval and job_id is not null order by last_at limit $2)) returning 1)
select count(*) from old
