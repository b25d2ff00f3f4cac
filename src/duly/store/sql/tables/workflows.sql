-- name: submit_workflow
select workflow_id, replayed, state from duly.submit_workflow(
    $1, $2, $3, $4, $5, $6::text::jsonb, $7::text::jsonb, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)

-- name: cancel_workflow
select state, is_new from duly.cancel_workflow($1, $2, $3)

-- name: pause_workflow
select state, is_new from duly.pause_workflow($1, $2)

-- name: resume_workflow
select state, is_new from duly.resume_workflow($1, $2)

-- name: replay_workflow
select duly.replay_workflow($1, $2, $3, $4, $5, $6)

-- name: add_nodes
select duly.add_nodes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)

-- name: run_workflow_task
select duly.run_workflow_task()

-- name: forget_workflows
select duly.forget_workflows($1, $2)

-- name: standing
select name, state from duly.workflows where workflow_id = $2 and tenant = $1

-- name: of_run
-- The last one, where the run was replayed and has started another.
select workflow_id from duly.workflows where run_id = $2 and tenant = $1 order by submitted_at desc, workflow_id desc limit 1

-- name: names
select name, item_of from duly.workflow_nodes where workflow_id = $2 and tenant = $1

-- name: edges
select parent, child, on_end as on from duly.workflow_edges where workflow_id = $2 and tenant = $1 order by child, parent

-- name: node_of
-- Only of a run under way: its options say it.
select (options->'node'->>0)::uuid, options->'node'->>1 from duly.leased where run_id = $2 and tenant = $1 and options ? 'node'

-- name: find_workflow
select workflow_id, tenant, name, state, nodes as node_count, open_nodes, tags, callbacks::text as callbacks, metadata->>'request_id' as request_id,
       metadata->>'traceparent' as traceparent, run_id, reason, replays, submitted_at, ended_at
  from duly.workflows where workflow_id = $2 and tenant = $1

-- name: nodes
-- The box of a run shows the state of a node that has not ended; of the others nothing is looked up.
select node.name, node.state, node.run_id, node.handler, node.queue, node.priority, node.item_of, node.items, node.added_by, node.map::text as map,
       node.replays, node.released_at, node.ended_at, node.reason, octet_length(node.result::text) as result_bytes,
       found.box, found.attempt, found.due_at, found.worker_id
  from duly.workflow_nodes as node
  left join lateral (
                  select 'timers' as box, attempt, due_at, null::uuid as worker_id from duly.timers where timers.run_id = node.run_id and timers.tenant = $1
        union all select 'blocked', attempt, due_at, null from duly.blocked where blocked.run_id = node.run_id and blocked.tenant = $1
        union all select 'ready', attempt, due_at, null from duly.ready where ready.run_id = node.run_id and ready.tenant = $1
        union all select 'leased', attempt, due_at, worker_id from duly.leased where leased.run_id = node.run_id and leased.tenant = $1
        limit 1) as found on node.state in ('waiting', 'ready')
 where node.workflow_id = $2 and node.tenant = $1
 order by node.number, node.item_of is not null, (node.map->'path'->>-1)::text, node.name

-- name: node
select node.name, node.state, node.run_id, node.handler, node.queue, node.priority, node.item_of, node.items, node.added_by, node.map::text as map,
       node.replays, node.released_at, node.ended_at, node.reason, duly.redacted(node.payload, duly.with_rules(node.options, node.tenant)->'redact')::text as payload, node.options::text as options,
       node.result::text as result
  from duly.workflow_nodes as node where node.workflow_id = $2 and node.tenant = $1 and node.name = $3

-- name: handed
select workflow_id, name, parent, is_parent, total, result::text, missing from duly.handed($1, $2, $3, $4, $5, $6)

-- name: items
-- Which part of which result items of maps are for.
select workflow_id, name, map::text from unnest($1::uuid[], $2::text[]) as requested(workflow_id, name)
  join duly.workflow_nodes using (workflow_id, name)

-- name: faults
-- Failures of nodes that others name.
select workflow_id, name, state, reason, last_attempt from unnest($1::uuid[], $2::text[]) as requested(workflow_id, name)
  join duly.workflow_nodes using (workflow_id, name) where state in ('failed', 'expired', 'cancelled', 'skipped')

-- name: to_settle
-- Runs whose workflow has ended: leased by their receiver, or not yet; or nowhere any more.
select task.task_id, flow.workflow_id, flow.name, flow.state, flow.reason, flow.replays, flow.run_id, leased.fence,
       leased.worker_id = duly.receiver() as is_awaited,
       exists (select from duly.live_runs where live_runs.run_id = flow.run_id and live_runs.state <> 'dead') as is_live
  from duly.workflow_tasks as task join duly.workflows as flow on flow.workflow_id = task.workflow_id
  left join duly.leased on leased.run_id = flow.run_id
 where task.kind = 'settle' and duly.is_workflow_task_due(task.due_at, task.tries, (select duly.clock_now())) order by task.task_id limit $1

-- name: lock_end
select state, replays from duly.workflows where workflow_id = $1 for share

-- name: postpone_workflow_task
update duly.workflow_tasks set due_at = duly.clock_now() + $2 where task_id = $1

-- name: postpone_failed_workflow_task
-- For longer each time, as run_workflow_task does.
update duly.workflow_tasks set due_at = duly.clock_now() + least(power(2, tries), 60) * interval '1 second', tries = least(tries + 1, 30) where task_id = $1

-- name: drop_workflow_task
delete from duly.workflow_tasks where task_id = $1

-- name: vacuum_endings
vacuum (skip_locked, truncate off) duly.ended_nodes
