-- The moves as a tenant's session calls them: each has the name that it has elsewhere, and its arguments.

-- name: submit
select job_id, scheduled_at, replayed from duly.api_submit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: submit_one
select job_id, scheduled_at, replayed from duly.api_submit_one_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: purge_job
select duly.api_purge_job_v1($1, $2, $3)

-- name: change_one_shot
select duly.api_change_one_shot_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: submit_subtask
select job_id, scheduled_at, replayed from duly.api_submit_subtask_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: submit_subtasks
select job_id, scheduled_at, replayed from duly.api_submit_subtasks_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: submit_schedule
select job_id, scheduled_at, replayed, case when not replayed then duly.api_timed_by_v1(job_id, $25)::text end from duly.api_submit_schedule_v1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9::text::jsonb, $10, $11, $12::text::jsonb, $13::text::jsonb, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)

-- name: edit
select answer, floor, case when answer = 'edited' then duly.api_timed_by_v1($1, $28)::text end,
       case when answer = 'edited' and $15::timestamptz is not null then duly.api_timed_anew_v1($1, null)::text end from duly.api_edit_v1(
    $1, $2, $3, $4, $5, $6, $7::text::jsonb, $8, $9, $10::text::jsonb, $11::text::jsonb, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
    $23, $24, $25, $26::text::jsonb, $27)

-- name: cancel_schedule
select job_id from duly.api_cancel_schedule_v2($1, $2, $3::text::jsonb) as job_id

-- name: pause
select duly.api_pause_v1($1, $2, $3, $4, $5, $6)

-- name: give_reason
select duly.api_give_reason_v1($1, $2, $3)

-- name: resume
select answer, duly.api_timed_by_v1($1, $7)::text, case when answer = 'active' then duly.api_timed_anew_v1($1, null)::text end from duly.api_resume_v1($1, $2, $3, $4, $5, $6::text::jsonb) as answer

-- name: skip_next
select answer, moment, duly.api_timed_by_v1($1, $7)::text from duly.api_skip_next_v2($1, $2, $3, $4, $5, $6, $8::text::jsonb)

-- name: trigger
select run_id, answer from duly.api_trigger_v1($1, $2, $3::text::jsonb, $4, $5)

-- name: retime
select job_id, duly.api_timed_by_v1(job_id, $8)::text, duly.api_timed_anew_v1(job_id, ($7::text[])[array_position($1, job_id)]::jsonb)::text
  from duly.api_retime_v1($1, $2, $3, $4, $5, $6) as job_id

-- name: submit_backfill
select duly.api_submit_backfill_v2($1, $2, $3, $4, $5, $6, $7, $8)

-- name: cancel_backfill
select duly.api_cancel_backfill_v1($1)

-- name: put_calendar
select duly.api_put_calendar_v1($1, $2, $3::text::jsonb)

-- name: calendar_settled
select duly.api_calendar_settled_v1($1, $2, $3::text::jsonb)

-- name: drop_calendar
select duly.api_drop_calendar_v1($1, $2)

-- name: cancel
select * from duly.api_cancel_v1($1, $2)

-- name: cancel_awaited
select * from duly.api_cancel_awaited_v1($1, $2)

-- name: signal
select * from duly.api_signal_v1($1, $2)

-- name: replay
select * from duly.api_replay_v2($1, $2, $3)

-- name: discard
select * from duly.api_discard_v1($1)

-- name: read_logs
select attempt, number, logged_at, level, message, fields from duly.api_read_logs_v1($1, $2, $3)

-- name: live
select * from duly.api_declared_v1()

-- name: settle
select run_id, fence from duly.api_settle_v2($1, $2, $3, $4, $5, $6::text[]::duly.outcome[], $7::text[]::duly.state[], $8, $9, $10, $11,
                                             $12::text[]::jsonb[], $13::text[]::jsonb[], $14::text[]::jsonb[], $15)

-- name: already_settled
select run_id, fence from duly.api_already_settled_v1($1, $2, $3)

-- name: hand_back
select run_id, fence from duly.api_hand_back_v1($1, $2, $3)

-- name: retire
select has_left, run_ids, fences from duly.api_retire_worker_v1($1, $2, $3)

-- name: save_checkpoint
select * from duly.api_save_checkpoint_v2($1, $2, $3, $4)

-- name: save_progress
select * from duly.api_save_progress_v2($1, $2, $3, $4, $5, $6)

-- name: live_subtasks
select * from duly.api_live_subtasks_v1($1, $2, $3)

-- name: edit_dead
select * from duly.api_edit_dead_v1($1, $2, $3::text::jsonb)

-- name: mark_applied
select duly.api_mark_applied_v2($1, $2, $3, $4, $5)

-- name: mark_taken_out
select duly.api_mark_taken_out_v1($1, $2)

-- name: take_event
select is_duplicate, runs, queues from duly.api_take_event_v1($1, $2, $3, $4, $5::text::jsonb, $6::text::jsonb)

-- name: make_destination
select duly.api_make_destination_v1($1, $2, $3)

-- name: turn_destination
select duly.api_turn_destination_v1($1, $2, $3, $4, $5, $6, $7)

-- name: limit_destination
select duly.api_limit_destination_v2($1, $2, $3, $4, $5)

-- name: keep_secret
select duly.api_keep_secret_v1($1, $2, $3, $4, $5)

-- name: limit_gate
select duly.api_limit_gate_v1($1, $2, $3, $4, $5)

-- name: submit_workflow
select workflow_id, replayed, state from duly.api_submit_workflow_v1(
    $1, $2, $3, $4, $5, $6::text::jsonb, $7::text::jsonb, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)

-- name: cancel_workflow
select state, is_new from duly.api_cancel_workflow_v2($1, $2, $3)

-- name: pause_workflow
select state, is_new from duly.api_pause_workflow_v2($1, $2)

-- name: resume_workflow
select state, is_new from duly.api_resume_workflow_v2($1, $2)

-- name: replay_workflow
select duly.api_replay_workflow_v2($1, $2, $3, $4, $5, $6)

-- name: add_nodes
select duly.api_add_nodes_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)

-- name: note
select duly.api_note_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::jsonb)
