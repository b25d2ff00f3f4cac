-- Schedules kept in a file. docs/decisions/0017-schedules-as-code.md says why.

alter table duly.jobs
    drop constraint jobs_owner_check,
    add constraint jobs_owner_check check (owner in ('api', 'code', 'file')),
    add column applied      integer;                    -- of an owner 'file': the version it had when its file was last applied
