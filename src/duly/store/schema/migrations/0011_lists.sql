-- Lists, filters and tags. docs/decisions/0014-lists.md says why.

------------------------------------------------------------------------------------------------------------------ tags

-- The tags of schedules, so that a list by tag is read in order and no further than it goes. They follow the job's options.
create table duly.job_tags (
    tenant       integer     not null,
    tag          text        not null collate "C",
    job_id       uuid        not null,
    primary key (tenant, tag, job_id)
);
create index job_tags_by_job on duly.job_tags (job_id);

--------------------------------------------------------------------------------------------------------------- history

-- A run's options end with it; what it was marked with stays with its record.
alter table duly.attempts add column marks jsonb;

------------------------------------------------------------------------------------------------------------ keys of lists

create index jobs_by_tenant on duly.jobs (tenant, job_id);
create index jobs_by_state on duly.jobs (tenant, state, job_id);
create index jobs_by_queue on duly.jobs (tenant, queue, job_id);
create index jobs_by_handler on duly.jobs (tenant, handler, job_id);
create index jobs_by_any_name on duly.jobs (tenant, name collate "C", job_id) where name is not null;

-- A tenant's runs, in each box and in history, newest first. Leased has none: it is never large.
create index timers_of_tenant on duly.timers (tenant, run_id) where run_id is not null;
create index blocked_of_tenant on duly.blocked (tenant, run_id);
create index ready_of_tenant on duly.ready (tenant, run_id);
create index dead_of_tenant on duly.dead (tenant, run_id);
create index attempts_succeeded_of_tenant on duly.attempts_succeeded (tenant, run_id);
create index attempts_ended_of_tenant on duly.attempts_failed (tenant, run_id) where became in ('cancelled', 'expired', 'skipped');

-- A schedule's runs, likewise. A one-shot is found by its run, so it pays for none of these.
drop index duly.timers_retries;
create index timers_by_job on duly.timers (job_id, run_id) where run_id is not null and run_id <> job_id;
create index blocked_by_job on duly.blocked (job_id, run_id) where run_id <> job_id;
create index ready_by_job on duly.ready (job_id, run_id) where run_id <> job_id;
create index dead_by_job on duly.dead (job_id, run_id) where run_id <> job_id;
drop index duly.attempts_by_job;
create index attempts_succeeded_by_job on duly.attempts_succeeded (job_id, run_id) where run_id <> job_id;
create index attempts_failed_by_job on duly.attempts_failed (job_id, finished_at) where run_id <> job_id;
create index attempts_ended_by_job on duly.attempts_failed (job_id, run_id) where run_id <> job_id and became in ('cancelled', 'expired', 'skipped');

drop index duly.dead_by_time;
create index dead_by_time on duly.dead (tenant, buried_at, run_id);
