-- Triggers. In a file of their own, because to create a trigger locks its table against everybody who
-- writes there: that is done only when this text changes. Their functions are in the files of their subjects. A row in transit between cells
-- is not new, and what follows from it has followed.

------------------------------------------------------------------------------------------------------------------ jobs

create or replace trigger jobs_remember_definition before insert or update of definition on duly.jobs
   for each row when (new.owner = 'code' and not duly.is_in_transit()) execute function duly.remember_definition();

create or replace trigger jobs_tagged after insert on duly.jobs
   for each row when (new.options ? 'tags' and not duly.is_in_transit()) execute function duly.keep_job_tags();

create or replace trigger jobs_tagged_anew after update of options on duly.jobs
   for each row when (old.options->'tags' is distinct from new.options->'tags') execute function duly.keep_job_tags();

create or replace trigger jobs_versioned after update of generation on duly.jobs
   for each row when (old.generation <> new.generation) execute function duly.keep_version();

create or replace trigger jobs_created after insert on duly.jobs referencing new table as created
   for each statement when (not duly.is_in_transit()) execute function duly.record_created_jobs();

create or replace trigger jobs_changed after update of generation, state on duly.jobs
   for each row when (old.generation <> new.generation or old.state <> new.state) execute function duly.record_changed_job();

create or replace trigger backfills_held before insert on duly.backfills
   for each row when (new.origin = 'schedule' and not duly.is_in_transit()) execute function duly.defer_missed();

---------------------------------------------------------------------------------------------------------- the end of a run

-- The first by its name: what the others read is redacted.
create or replace trigger attempts_are_redacted before insert on duly.attempts
   for each row when (new.options ? 'redact' and not duly.is_in_transit()) execute function duly.redact_attempt();

create or replace trigger attempts_call_back before insert on duly.attempts
   for each row when (new.metadata ? 'callbacks' and not duly.is_in_transit()) execute function duly.completion_callbacks();

create or replace trigger attempts_end_nodes before insert on duly.attempts
   for each row when (new.metadata ? 'node' and not duly.is_in_transit()) execute function duly.record_node_end();

create or replace trigger attempts_followed_up after insert on duly.attempts referencing new table as ended
   for each statement when (not duly.is_in_transit()) execute function duly.follow_up();

create or replace trigger dead_risen after delete on duly.dead
   for each row when (old.options ? 'node' and not duly.is_in_transit()) execute function duly.record_replayed_node();

-- These two are queued once for each transaction, by the first record, and run at its end. One that can be deferred cannot be replaced.
drop trigger if exists workflows_advanced on duly.ended_nodes;
create constraint trigger workflows_advanced after insert on duly.ended_nodes deferrable initially deferred
   for each row when (new.is_first) execute function duly.advance();

drop trigger if exists dependents_advanced on duly.ended_dependencies;
create constraint trigger dependents_advanced after insert on duly.ended_dependencies deferrable initially deferred
   for each row when (new.is_first) execute function duly.advance_dependents();

-------------------------------------------------------------------------------------------------------------- elsewhere

create or replace trigger workflows_changed after update of state on duly.workflows
   for each row when (old.state <> new.state and new.state in ('running', 'paused', 'cancelling')) execute function duly.record_changed_workflow();

create or replace trigger audit_is_kept before update or delete or truncate on duly.audit
   for each statement execute function duly.keep_audit();
