-- At which report each worker is. Its shares cannot say: they go when nothing is held, and a report that came late was let through then.
create table duly.destination_reports (
    worker_id    uuid        primary key references duly.workers on delete cascade,
    number       bigint      not null
) with (fillfactor = 50);

insert into duly.destination_reports (worker_id, number)
select worker_id, max(number) from duly.destination_shares join duly.workers using (worker_id) group by worker_id;
alter table duly.destination_shares drop column number;
