-- At which report each worker is. Its shares do not know: they go when nothing is held, and a report that comes late came through.
create table duly.destination_reports (
    worker_id    uuid        primary key references duly.workers on delete cascade,
    number       bigint      not null
) with (fillfactor = 50);

alter table duly.destination_shares drop column number;
