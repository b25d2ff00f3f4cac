-- name: look
-- For each duty whether it may have anything to do, told by the first row that it would look at.
select exists (select from duly.signals) as signals,
       exists (select from duly.blocked) as blocked,
       exists (select from duly.awaited) as awaited,
       exists (select from duly.tellings) as tellings,
       exists (select from duly.errands) or exists (select from duly.workflows where run_id is not null and ended_at is null) as errands,
       exists (select from duly.follow_checks) as follow_checks,
       exists (select from duly.tallies) as tallies,
       exists (select from (select from duly.ready where is_aside order by queue, handler, tenant, priority, due_at limit 1) as one) as aside
