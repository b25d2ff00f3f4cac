-- name: lock
-- One apply of a tenant at a time: until the end of its transaction the others wait here. The first number says "duly" in ASCII.
select pg_advisory_xact_lock(1685417081, $1)

-- name: standing
-- The jobs that have these names, of any source, and all that a file has created. Of one name the one that lives, else the last.
with found as (
    select jobs.* from unnest($3::text[]) as requested(name)
      join duly.jobs on jobs.tenant = $1 and jobs.name = requested.name and jobs.name is not null and jobs.state in ('active', 'paused')
    union all
    select jobs.* from duly.jobs where jobs.tenant = $1 and jobs.source = $2 and jobs.owner = 'file' and jobs.name is not null),
last as (
    select distinct on (name) * from found order by name, state in ('active', 'paused') desc, created_at desc, job_id)
select last.job_id, last.name, last.owner, last.source, last.state, last.pause_reason, last.generation, last.applied, last.handler,
       coalesce(last.payload, payloads.body)::text, last.queue, last.priority, last.options::text, last.schedule::text,
       last.every_seconds, last.anchor_at, duly.rules_above($1)
  from last left join duly.payloads on payloads.job_id = last.job_id and payloads.generation = last.generation
 order by last.name

-- name: exported
-- The live jobs of a file, and with $3 those created by hand that have a name.
select jobs.job_id, jobs.name, jobs.owner, jobs.source, jobs.state, jobs.pause_reason, jobs.generation, jobs.applied, jobs.handler,
       coalesce(jobs.payload, payloads.body)::text, jobs.queue, jobs.priority, jobs.options::text, jobs.schedule::text,
       jobs.every_seconds, jobs.anchor_at, duly.rules_above($1)
  from duly.jobs left join duly.payloads on payloads.job_id = jobs.job_id and payloads.generation = jobs.generation
 where jobs.tenant = $1 and jobs.state in ('active', 'paused') and jobs.name is not null
   and ((jobs.owner = 'file' and jobs.source = $2) or ($3 and jobs.owner = 'api'))
 order by jobs.name limit $4

-- name: sources
select source, count(*) from (
    select source from duly.jobs where tenant = $1 and owner = 'file' and source is not null and state in ('active', 'paused')
    union all
    select source from duly.notification_rules where tenant = $1 and source is not null) as owned
 group by source order by source

-- name: mark_applied
select duly.mark_applied($1, $2, $3, $4, $5)

-- name: mark_taken_out
select duly.mark_taken_out($1, $2)

-- name: files
-- Files behind a name, or the one of a name, and how many of the jobs of each live and have drifted, counted up to $4 of each; and of its rules.
select files.source, files.applied_at, files.applied_by, counted.jobs, counted.drifted, ruled.rules, ruled.drifted
  from duly.files cross join lateral (
      select count(*) filter (where seen.state in ('active', 'paused')) as jobs,
             count(*) filter (where seen.state in ('active', 'paused') and seen.generation <> seen.applied
                                 or seen.state = 'cancelled' and not exists (
                                     select from duly.jobs as live where live.tenant = $1 and live.name = seen.name and live.name is not null
                                        and live.state in ('active', 'paused'))) as drifted
        from (select distinct on (jobs.name) jobs.name, jobs.state, jobs.generation, jobs.applied
                from (select * from duly.jobs where jobs.tenant = $1 and jobs.source = files.source and jobs.source is not null limit $4) as jobs
               where jobs.owner = 'file' and jobs.name is not null and jobs.applied is not null and jobs.state in ('active', 'paused', 'cancelled')
               order by jobs.name, jobs.state in ('active', 'paused') desc, jobs.created_at desc) as seen) as counted
 cross join lateral (
      select count(*) as rules, count(*) filter (where definition is distinct from applied) as drifted
        from duly.notification_rules as rules where rules.tenant = $1 and rules.source = files.source) as ruled
 where files.tenant = $1 and {which} order by files.source limit $3

-- name: file_jobs
-- The jobs of a file behind a name, each as it is and as it was applied; with $4, those that have drifted. Cancelled is one that the
-- file did not take away itself, and that nobody has created again.
with seen as (
    select distinct on (jobs.name) jobs.* from duly.jobs
     where jobs.tenant = $1 and jobs.source = $2 and jobs.source is not null and jobs.owner = 'file' and jobs.name is not null
       and jobs.applied is not null and jobs.state in ('active', 'paused', 'cancelled')
     order by jobs.name, jobs.state in ('active', 'paused') desc, jobs.created_at desc),
page as (
    select * from seen where name collate "C" > $3
       and (state <> 'cancelled' or not exists (select from duly.jobs as live where live.tenant = $1 and live.name = seen.name
                                                   and live.name is not null and live.state in ('active', 'paused')))
       and (not $4 or state = 'cancelled' or generation <> applied)
     order by name collate "C" limit $5)
select page.job_id, page.name, page.owner, page.source, page.state, page.pause_reason, page.generation, page.applied, page.handler,
       coalesce(page.payload, payloads.body)::text, page.queue, page.priority, page.options::text, page.schedule::text,
       page.every_seconds, page.anchor_at, duly.rules_above($1),
       before.generation as was_generation, before.handler as was_handler, coalesce(before.payload, were.body)::text as was_payload,
       before.queue as was_queue, before.priority as was_priority, before.options::text as was_options, before.schedule::text as was_schedule,
       before.every_seconds as was_every_seconds, before.anchor_at as was_anchor_at,
       case when page.state = 'cancelled' then page.updated_at
            else (select replaced_at from duly.job_versions as last where last.job_id = page.job_id and last.generation = page.generation - 1)
       end as changed_at
  from page
  left join duly.payloads on payloads.job_id = page.job_id and payloads.generation = page.generation
  left join duly.job_versions as before on before.job_id = page.job_id and before.generation = page.applied
  left join duly.payloads as were on were.job_id = page.job_id and were.generation = page.applied
 order by page.name collate "C"
