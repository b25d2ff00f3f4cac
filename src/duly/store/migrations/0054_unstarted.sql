-- The due runs that a worker holds and has not started, as it last said: they wait for a slot, or it stands still. Until they start they
-- read `ready`.
alter table duly.workers add column unstarted uuid[] not null default '{}';
