-- Since when a worker stands still, and in which handlers.
alter table duly.workers
    add column stalled_at timestamptz,
    add column stalled_in text[] not null default '{}';

-- How far the clock of each process's host is ahead of the database's, as that process has measured it.
create table duly.host_clocks (
    role           text             not null,
    name           text             not null,
    host           text             not null,
    offset_seconds double precision not null,
    noted_at       timestamptz      not null,
    primary key (role, name)
) with (fillfactor = 50);

-- The latest moment that the database's clock was seen at. A clock that is behind it was set back.
create table duly.clock_high_water (
    is_only        boolean          primary key default true check (is_only),
    at             timestamptz      not null
) with (fillfactor = 50);
