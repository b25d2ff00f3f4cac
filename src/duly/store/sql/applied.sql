-- name: lock
-- One apply of a tenant at a time: until the end of its transaction the others wait here. The first number says "duly" in ASCII.
select pg_advisory_xact_lock(1685417081, $1)

-- name: standing
-- The jobs that have these names, whoever's they are, and all that a file has made. Of one name the one that lives, else the last.
with found as (
    select jobs.* from unnest($3::text[]) as asked(name)
      join duly.jobs on jobs.tenant = $1 and jobs.name = asked.name and jobs.name is not null and jobs.state in ('active', 'paused')
    union all
    select jobs.* from duly.jobs where jobs.tenant = $1 and jobs.source = $2 and jobs.owner = 'file' and jobs.name is not null),
last as (
    select distinct on (name) * from found order by name, state in ('active', 'paused') desc, created_at desc, job_id)
select last.job_id, last.name, last.owner, last.source, last.state, last.pause_reason, last.generation, last.applied, last.handler,
       coalesce(last.payload, payloads.body)::text, last.queue, last.priority, last.options::text, last.schedule::text,
       last.every_seconds, last.anchor_at
  from last left join duly.payloads on payloads.job_id = last.job_id and payloads.generation = last.generation
 order by last.name

-- name: exported
-- The live jobs of a file, and with $3 those made by hand that have a name.
select jobs.job_id, jobs.name, jobs.owner, jobs.source, jobs.state, jobs.pause_reason, jobs.generation, jobs.applied, jobs.handler,
       coalesce(jobs.payload, payloads.body)::text, jobs.queue, jobs.priority, jobs.options::text, jobs.schedule::text,
       jobs.every_seconds, jobs.anchor_at
  from duly.jobs left join duly.payloads on payloads.job_id = jobs.job_id and payloads.generation = jobs.generation
 where jobs.tenant = $1 and jobs.state in ('active', 'paused') and jobs.name is not null
   and not coalesce(jobs.schedule ? 'on_event', false)    -- A file has schedules only.
   and ((jobs.owner = 'file' and jobs.source = $2) or ($3 and jobs.owner = 'api'))
 order by jobs.name limit $4

-- name: sources
select source, count(*) from duly.jobs where tenant = $1 and owner = 'file' and source is not null and state in ('active', 'paused')
 group by source order by source

-- name: unnamed
select count(*) from (select from duly.jobs where tenant = $1 and name is null and owner = 'api' and state in ('active', 'paused') limit 10000) as jobs

-- name: mark_applied
select duly.mark_applied_v1($1, $2, $3, $4)

-- name: mark_taken_out
select duly.mark_taken_out_v1($1, $2)
