-- A run that has not started can be taken back from the worker that holds it ahead of its moment (docs/decisions/0054-coming-runs.md).

alter table duly.signals drop constraint signals_what_check;
alter table duly.signals add constraint signals_what_check check (what in ('cancel', 'recall'));

-- Runs that a worker gave back on request wait here until whoever asked has decided; nothing claims them meanwhile.
create index blocked_recalled on duly.blocked (blocked_at) where gate = '&recalled';

-- The next fire of a schedule that has staged its last occurrence ahead of its moment: it stays until that one starts.
create index timers_spent on duly.timers (runs_left) where run_id is null and runs_left = 0;
alter table duly.timers drop constraint timers_runs_left_check;
alter table duly.timers add constraint timers_runs_left_check check (runs_left >= 0);

-- Each takes whether its caller settles for a run that stays with its worker.
drop function if exists duly.pause_v1, duly.api_pause_v1, duly.skip_next_v2, duly.api_skip_next_v2, duly.edit_v1, duly.api_edit_v1,
    duly.trigger_v1, duly.api_trigger_v1, duly.lock_staged_v1;
delete from duly.functions where file = 'change_schedule.sql';
delete from duly.functions where file = 'trigger.sql';
delete from duly.functions where file = 'next_fire.sql';
