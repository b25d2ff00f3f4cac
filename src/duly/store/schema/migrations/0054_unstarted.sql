-- The due runs that a worker holds and has not started, as it last said: they wait for a slot, or it stands still. Until they start they
-- read `ready`.
alter table duly.workers add column unstarted uuid[] not null default '{}';

-- A stalled worker's heartbeat says what has started; a recall names when it was asked, so that each caller withdraws its own alone.
drop function if exists duly.stall_v1, duly.recall_v1, duly.put_back_v1;
delete from duly.functions where file = 'reclaim.sql';
delete from duly.functions where file = 'recall.sql';
