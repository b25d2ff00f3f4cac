-- Reads of workflows: lists of them, their runs, and the results that a node gets from its parents.

-- Workflows by falling id, which is the newest first, from a position on; no more than p_looks of them are looked at. The last one
-- looked at comes along, so that the next page begins there.
create or replace function duly.page_workflows(
    p_tenant integer, p_before uuid, p_from uuid, p_states text[], p_names text[], p_beginning text, p_tags text[], p_any_tags text[],
    p_since timestamptz, p_until timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, workflow_id uuid, tenant integer, name text, state text, nodes integer, open_nodes integer, tags text[],
    reason text, replays integer, submitted_at timestamptz, ended_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.workflow_id, page.tenant, page.name, page.state, page.nodes, page.open_nodes, page.tags, page.reason, page.replays,
           page.submitted_at, page.ended_at
      from (select walk.*, row_number() over () as number,
                   (p_states is null or walk.state = any (p_states)) and (p_names is null or walk.name = any (p_names))
                   and (p_beginning is null or starts_with(walk.name, p_beginning))
                   and (p_tags is null or walk.tags @> p_tags) and (p_any_tags is null or walk.tags && p_any_tags)
                   and (p_since is null or walk.submitted_at >= p_since) and (p_until is null or walk.submitted_at < p_until) as fits
              from (select * from duly.workflows as flow
                     where (flow.tenant, flow.workflow_id) < (p_tenant, p_before) and (flow.tenant, flow.workflow_id) >= (p_tenant, p_from)
                     order by flow.tenant desc, flow.workflow_id desc limit p_looks) as walk) as page
     where page.fits or page.number = p_looks
     order by page.number limit p_limit;
end $$;

-- The runs of a workflow's nodes by falling id, as page_runs gives runs. A workflow has a thousand nodes at most, so they are found
-- by its key and sorted, and nobody pays for an index more.
create or replace function duly.page_workflow_runs(
    p_tenant integer, p_before uuid, p_from uuid, p_workflow_id uuid, p_boxes text[], p_states text[], p_queues text[], p_handlers text[],
    p_job_ids uuid[], p_tags text[], p_any_tags text[], p_scheduled_since timestamptz, p_scheduled_before timestamptz, p_due_since timestamptz,
    p_due_before timestamptz, p_finished_since timestamptz, p_finished_before timestamptz, p_limit integer, p_looks integer)
returns table (
    fits boolean, number bigint, run_id uuid, job_id uuid, tenant integer, state text, queue text, handler text, priority smallint, attempt integer,
    scheduled_at timestamptz, due_at timestamptz, started_at timestamptz, finished_at timestamptz, worker_id uuid, fence bigint, reason text,
    detail jsonb, metadata jsonb, job_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
begin
    perform duly.must_be_ours(p_tenant);
    return query
    select page.fits, page.number, page.run_id, page.job_id, page.tenant, page.state, page.queue, page.handler, page.priority, page.attempt,
           page.scheduled_at, page.due_at, page.started_at, page.finished_at, page.worker_id, page.fence, page.reason, page.detail,
           duly.metadata_of(page.metadata), null::text
      from (select * from (
                select walk.number, walk.child_id as run_id, found.job_id, found.tenant, found.state, found.queue, found.handler, found.priority,
                       found.attempt, found.scheduled_at, found.due_at, found.started_at, found.finished_at, found.worker_id, found.fence,
                       found.reason, found.detail, found.metadata,
                       coalesce(found.tenant = p_tenant
                       and (p_states is null or found.state = any (p_states)) and (p_queues is null or found.queue = any (p_queues))
                       and (p_handlers is null or found.handler = any (p_handlers)) and (p_job_ids is null or found.job_id = any (p_job_ids))
                       and (p_tags is null or coalesce(found.metadata->'tags' ?& p_tags, false))
                       and (p_any_tags is null or coalesce(found.metadata->'tags' ?| p_any_tags, false))
                       and (p_scheduled_since is null or found.scheduled_at >= p_scheduled_since)
                       and (p_scheduled_before is null or found.scheduled_at < p_scheduled_before)
                       and (p_due_since is null or found.due_at >= p_due_since) and (p_due_before is null or found.due_at < p_due_before)
                       and (p_finished_since is null or coalesce(found.finished_at >= p_finished_since, false))
                       and (p_finished_before is null or coalesce(found.finished_at < p_finished_before, false)), false) as fits
                  from (select nodes.run_id as child_id, row_number() over () as number from (
                            select run_id from duly.workflow_nodes where workflow_id = p_workflow_id and tenant = p_tenant
                               and run_id < p_before and run_id >= p_from order by run_id desc limit p_looks) as nodes) as walk
                  left join lateral (
                        select * from (
                                  select * from duly.listed_timers where run_id = walk.child_id and 'timers' = any (p_boxes)
                        union all select * from duly.listed_blocked where run_id = walk.child_id and 'blocked' = any (p_boxes)
                        union all select * from duly.listed_ready where run_id = walk.child_id and 'ready' = any (p_boxes)
                        union all select * from duly.listed_leased where run_id = walk.child_id and 'leased' = any (p_boxes)
                        union all select * from duly.listed_dead where run_id = walk.child_id and 'dead' = any (p_boxes)
                        union all select * from duly.listed_succeeded where run_id = walk.child_id and 'succeeded' = any (p_boxes)
                        union all select * from duly.listed_ended where run_id = walk.child_id and 'ended' = any (p_boxes)) as boxes limit 1) as found on true) as looked
             where looked.fits or looked.number = p_looks order by looked.number limit p_limit) as page;
end $$;

-- The results that runs get from others: those of the parents of each, and those that it names; no more than a run may get.
-- An item of a map has the parents of its map, and not the other items. A node that has succeeded and has a reason all the same has no result
-- to hand on: it was too large, and the reason says so in `missing`. What stands in `result` then is for people. With the rights of the caller.
create or replace function duly.handed(p_workflow_ids uuid[], p_names text[], p_of_workflows uuid[], p_of_names text[], p_parents text[], p_bytes_max integer)
returns table (workflow_id uuid, name text, parent text, is_parent boolean, total bigint, result jsonb, missing text)
language plpgsql stable {planned by index, by loop, in order, once} as $$
#variable_conflict use_column
begin
    return query
    select found.workflow_id, found.name, found.parent, found.is_parent, found.total,
           case when found.total <= p_bytes_max and found.reason is null then found.result end, found.reason from (
        select wanted.workflow_id, wanted.name, wanted.parent, wanted.is_parent, node.result, node.reason,
               sum(case when node.reason is null then coalesce(octet_length(node.result::text), 0) else 0 end)
                   over (partition by wanted.workflow_id, wanted.name) as total
          from (select requested.workflow_id, requested.name, edge.parent, true as is_parent
                  from unnest(p_workflow_ids, p_names) as requested(workflow_id, name)
                  join duly.workflow_edges as edge on edge.workflow_id = requested.workflow_id and edge.child = split_part(requested.name, '[', 1)
                 where right(edge.parent, 1) <> ']'
                union all
                select named.workflow_id, named.name, named.parent, false
                  from unnest(p_of_workflows, p_of_names, p_parents) as named(workflow_id, name, parent)
                 where not exists (select from duly.workflow_edges as edge where edge.workflow_id = named.workflow_id
                                      and edge.child = split_part(named.name, '[', 1) and edge.parent = named.parent)) as wanted
          join duly.workflow_nodes as node on node.workflow_id = wanted.workflow_id and node.name = wanted.parent and node.state = 'succeeded') as found;
end $$;

grant execute on function duly.page_workflows, duly.page_workflow_runs, duly.handed to duly_api;
