-- The functions that the API's role may call check the tenant themselves; their guarded twins go.
drop function if exists
    duly.api_add_nodes_v1, duly.api_already_settled_v1, duly.api_calendar_settled_v1, duly.api_cancel_awaited_v1,
    duly.api_cancel_backfill_v1, duly.api_cancel_schedule_v2, duly.api_cancel_v1, duly.api_cancel_workflow_v2,
    duly.api_change_one_shot_v1, duly.api_declared_v1, duly.api_discard_v1, duly.api_drop_calendar_v1, duly.api_edit_dead_v1,
    duly.api_edit_v1, duly.api_give_reason_v1, duly.api_hand_back_v1, duly.api_keep_secret_v1, duly.api_limit_destination_v2,
    duly.api_limit_gate_v1, duly.api_live_subtasks_v1, duly.api_make_destination_v1, duly.api_mark_applied_v2,
    duly.api_mark_taken_out_v1, duly.api_note_v1, duly.api_pause_v1, duly.api_pause_workflow_v2, duly.api_purge_job_v1,
    duly.api_put_calendar_v1, duly.api_read_logs_v1, duly.api_replay_v2, duly.api_replay_workflow_v2, duly.api_resume_v1,
    duly.api_resume_workflow_v2, duly.api_retime_v1, duly.api_retire_worker_v1, duly.api_save_checkpoint_v2,
    duly.api_save_progress_v2, duly.api_settle_v2, duly.api_signal_v1, duly.api_skip_next_v2, duly.api_submit_backfill_v2,
    duly.api_submit_one_v1, duly.api_submit_schedule_v1, duly.api_submit_subtask_v1, duly.api_submit_subtasks_v1,
    duly.api_submit_v1, duly.api_submit_workflow_v1, duly.api_take_event_v1, duly.api_timed_anew_v1, duly.api_timed_by_v1,
    duly.api_trigger_v1, duly.api_turn_destination_v1, duly.is_our_destination, duly.submit_backfill_v1, duly.submit_subtask_v1;
