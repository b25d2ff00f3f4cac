-- Metrics of the whole installation: the process whose turn it is reads them, and all others read this row.
create table duly.metrics (
    is_only  boolean default true check (is_only) primary key,
    turn     bigint not null,                           -- raised at every turn, so a process that comes late writes nothing
    taken_at timestamptz not null,                      -- when the turn was taken
    read_at  timestamptz,                               -- null: not read yet
    figures  text                                       -- JSON
) with (fillfactor = 50);

-- Events that leave no row to count.
create table duly.counters (
    name  text primary key,
    value bigint not null
) with (fillfactor = 50);

-- It counts the attempts of a run, too.
drop function if exists duly.count_ended;
delete from duly.functions where file = 'tail.sql';
