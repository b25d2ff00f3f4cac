-- name: jobs
select fits, number, job_id, tenant, name, state, queue, handler, priority, generation, every_seconds, anchor_at, schedule::text as schedule,
       owner, source, pause_reason, paused_at, removed_at, failures, options::text as options,
       array(select jsonb_array_elements_text(options->'tags')) as tags, created_at, updated_at, next_run_at, pending_at, runs_left
  from duly.page_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) order by number

-- name: jobs_by_name
select fits, number, job_id, tenant, name, state, queue, handler, priority, generation, every_seconds, anchor_at, schedule::text as schedule,
       owner, source, pause_reason, paused_at, removed_at, failures, options::text as options,
       array(select jsonb_array_elements_text(options->'tags')) as tags, created_at, updated_at, next_run_at, pending_at, runs_left
  from duly.page_jobs_by_name($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) order by number

-- name: jobs_by_next
select fits, number, job_id, tenant, name, state, queue, handler, priority, generation, every_seconds, anchor_at, schedule::text as schedule,
       owner, source, pause_reason, paused_at, removed_at, failures, options::text as options,
       array(select jsonb_array_elements_text(options->'tags')) as tags, created_at, updated_at, next_run_at, pending_at, runs_left
  from duly.page_jobs_by_next($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) order by number

-- name: runs
select fits, number, run_id, job_id, job_name, tenant, state, queue, handler, priority, attempt, scheduled_at, due_at, started_at, finished_at,
       worker_id, fence, reason, detail::text as detail, array(select jsonb_array_elements_text(metadata->'tags')) as tags,
       metadata->>'request_id' as request_id, metadata->>'traceparent' as traceparent, (metadata->'node'->>0)::uuid as workflow_id, metadata->'node'->>1 as node
  from duly.page_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) order by number

-- name: runs_of_job
select fits, number, run_id, job_id, job_name, tenant, state, queue, handler, priority, attempt, scheduled_at, due_at, started_at, finished_at,
       worker_id, fence, reason, detail::text as detail, array(select jsonb_array_elements_text(metadata->'tags')) as tags,
       metadata->>'request_id' as request_id, metadata->>'traceparent' as traceparent, (metadata->'node'->>0)::uuid as workflow_id, metadata->'node'->>1 as node
  from duly.page_runs_of_job($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) order by number

-- name: subtasks
select fits, number, run_id, job_id, job_name, tenant, state, queue, handler, priority, attempt, scheduled_at, due_at, started_at, finished_at,
       worker_id, fence, reason, detail::text as detail, array(select jsonb_array_elements_text(metadata->'tags')) as tags,
       metadata->>'request_id' as request_id, metadata->>'traceparent' as traceparent, (metadata->'node'->>0)::uuid as workflow_id, metadata->'node'->>1 as node
  from duly.page_subtasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) order by number

-- name: workflow_runs
select fits, number, run_id, job_id, job_name, tenant, state, queue, handler, priority, attempt, scheduled_at, due_at, started_at, finished_at,
       worker_id, fence, reason, detail::text as detail, array(select jsonb_array_elements_text(metadata->'tags')) as tags,
       metadata->>'request_id' as request_id, metadata->>'traceparent' as traceparent, (metadata->'node'->>0)::uuid as workflow_id, metadata->'node'->>1 as node
  from duly.page_workflow_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) order by number

-- name: dead
select fits, number, run_id, job_id, job_name, tenant, queue, handler, priority, attempt, scheduled_at, due_at, buried_at, reason, replays,
       array(select jsonb_array_elements_text(metadata->'tags')) as tags,
       metadata->>'request_id' as request_id, metadata->>'traceparent' as traceparent
  from duly.page_dead($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) order by number

-- name: workflows
select fits, number, workflow_id, tenant, name, state, nodes, open_nodes, tags, reason, replays, submitted_at, ended_at
  from duly.page_workflows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) order by number

-- name: dead_groups
select error, count, handlers, first_buried_at, last_buried_at, sample, looked
  from duly.group_dead($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
