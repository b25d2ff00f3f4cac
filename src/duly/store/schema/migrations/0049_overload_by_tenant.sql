-- Overload is judged per tenant and queue: the backlog of one tenant sheds and postpones nothing of another.
truncate duly.overloads;
alter table duly.overloads drop constraint overloads_pkey;
alter table duly.overloads add column tenant integer not null;
alter table duly.overloads add primary key (tenant, queue);

drop function if exists duly.overloaded();
drop function if exists duly.next_due(smallint[], text[], uuid[], smallint[], timestamptz[]);
delete from duly.functions where file = 'stage.sql';

-- When runs of a recovery were made lately, and how many: its rate holds for all schedulers together.
alter table duly.recoveries add column turns jsonb not null default '[]';
drop function if exists duly.backfill_v1(uuid[], timestamptz[], timestamptz[], timestamptz[], integer[], uuid[], timestamptz[]);
delete from duly.functions where file = 'backfill.sql';
