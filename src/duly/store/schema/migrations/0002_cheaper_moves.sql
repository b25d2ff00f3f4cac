-- Submits say whether a hint is still to be sent, and a finish says whether all was there: a function that answers otherwise than before
-- has to go before its successor comes. So do the two triggers that became one.
drop function if exists duly.create_one_shot, duly.create_one_shots, duly.submit_one, duly.submit_checked, duly.submit_many,
                        duly.submit_subtasks, duly.put_one, duly.finish;
delete from duly.functions where file = 'submit.sql' or file = 'subtasks.sql' or file = 'settle.sql';

drop trigger if exists attempts_end_dependencies on duly.attempts;
drop trigger if exists attempts_tallied on duly.attempts;
drop function if exists duly.record_dependency_ends, duly.tally;

-- Each fire stores its key once more, so the pages of new jobs have room: else the first fires of many jobs would split them all.
alter index duly.timers_next_fire set (fillfactor = 70);
