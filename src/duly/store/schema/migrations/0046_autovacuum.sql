-- It takes more than it did: how far a batch has come.
drop function if exists duly.next_due;
delete from duly.functions where file = 'stage.sql';

-- The dead rows of these two are cleared every few seconds by maintenance, and autovacuum is a belt. Under load it came as often, for all
-- that was inserted, and then waited five seconds for a lock with which to shorten the file, in which maintenance could clear nothing.
-- No plan of a hot statement rests on their statistics, which are of a moment that is over.
alter table duly.ready set (autovacuum_vacuum_threshold = 200000, autovacuum_vacuum_insert_threshold = -1,
                            autovacuum_analyze_threshold = 1000000, autovacuum_analyze_scale_factor = 0);
alter table duly.leased set (autovacuum_vacuum_threshold = 200000, autovacuum_vacuum_insert_threshold = -1,
                             autovacuum_analyze_threshold = 1000000, autovacuum_analyze_scale_factor = 0);

-- The like of it for what is counted for charts.
alter table duly.tallies set (autovacuum_vacuum_threshold = 200000, autovacuum_vacuum_insert_threshold = -1);

-- Each fire takes a row out and puts one in, so by a fifth of the table it was read for its statistics every five seconds.
alter table duly.timers set (autovacuum_analyze_scale_factor = 5);
