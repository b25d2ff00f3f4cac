-- name: look
-- For each maintenance task, whether it may have work, by the first row that it would look at.
select exists (select from duly.signals) as signals,
       exists (select from duly.blocked) as blocked,
       exists (select from duly.awaited) as awaited,
       exists (select from duly.completion_callbacks) as callbacks,
       exists (select from duly.workflow_tasks) or exists (select from duly.workflows where run_id is not null and ended_at is null) as tasks,
       exists (select from duly.dependency_checks) as dependency_checks,
       exists (select from duly.tallies) as tallies,
       exists (select from (select from duly.ready where is_unroutable order by queue, handler, tenant, priority, due_at limit 1) as one) as unroutable

-- name: record
-- At most about once a second, however many do it; what lies ahead is from before a step of the clock.
insert into duly.maintenance_tasks (name, done_at)
select name, duly.clock_now() - age * interval '1 second' from unnest($1::text[], $2::float8[]) as reported(name, age) order by name collate "C"
on conflict (name) do update set done_at = excluded.done_at
 where maintenance_tasks.done_at < excluded.done_at - interval '0.9 seconds' or maintenance_tasks.done_at > duly.clock_now()

-- name: ages
select name, greatest(0, date_part('epoch', duly.clock_now() - done_at)) as age from duly.maintenance_tasks where name = any ($1)
