-- Each function stands in one place, in functions/: docs/decisions/0050-each-function-in-one-place.md says why.

-- The text of each file that was applied last, by its digest, and the edition that it is of.
create table duly.functions (
    file         text        primary key,
    digest       text        not null,
    edition      integer     not null,
    applied_at   timestamptz not null default now()
);

-- What no program calls any more. A database made by this version or a later one never had them.
drop function if exists duly.are_options_but_parent, duly.marks_but_parent, duly.choose_v1;
drop function if exists
    duly.submit_schedule_v1, duly.skip_next_v1, duly.mark_applied_v1, duly.page_dead_v1, duly.group_dead_v1, duly.group_dead_v2,
    duly.report_destinations_v1, duly.report_destinations_v2, duly.waiting_subtasks_v1, duly.handed_v1, duly.pause_workflow_v1,
    duly.resume_workflow_v1, duly.replay_workflow_v1;
drop function if exists
    duly.api_submit_backfill_v1, duly.api_skip_next_v1, duly.api_cancel_schedule_v1, duly.api_replay_v1, duly.api_mark_applied_v1,
    duly.api_settle_v1, duly.api_save_checkpoint_v1, duly.api_save_progress_v1, duly.api_waiting_subtasks_v1, duly.api_limit_destination_v1,
    duly.api_cancel_workflow_v1, duly.api_pause_workflow_v1, duly.api_resume_workflow_v1, duly.api_replay_workflow_v1;

-- These take more than they did.
drop function if exists duly.stage_v2, duly.next_due;
