-- Files of schedules: when each was last applied, and by whom. docs/decisions/0038-places.md says why.

create table duly.files (
    tenant       integer     not null,
    source       text        not null,
    applied_at   timestamptz,                           -- null: before this was noted
    applied_by   text        check (char_length(applied_by) <= 200),
    primary key (tenant, source)
) with (fillfactor = 50);
alter table duly.files enable row level security;
create policy of_its_tenant on duly.files for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.files to duly_api;

insert into duly.files (tenant, source) select distinct tenant, source from duly.jobs where owner = 'file' and source is not null;
