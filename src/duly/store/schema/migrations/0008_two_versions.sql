-- Two versions run side by side: each process says which schema it knows, and a migration is finished once those before it are no longer
-- wanted. This one cannot run beside older processes: it renames a table, and a function gets more parameters.
alter table duly.migrations add column if not exists finished_at timestamptz;
update duly.migrations set finished_at = coalesce(finished_at, applied_at);

-- Live processes, as each records itself every five seconds: the schema it knows, and how far the clock of its host is ahead of the database's.
alter table duly.host_clocks rename to processes;
alter table duly.processes add column version text not null default '', add column schema integer not null default 0;
alter table duly.processes drop constraint host_clocks_pkey;
alter table duly.processes add primary key (role, name, host, schema);

-- Hosts that take nothing new: their workers are drained when they register, and their schedulers have no share of the shards.
create table duly.drained_hosts (
    host  text primary key,
    since timestamptz not null default duly.clock_now()
);
alter table duly.workers add column host text;
-- The shards that a scheduler takes, and no others; null: its share of those that no other names.
alter table duly.schedulers add column host text, add column shards smallint[];

drop function if exists duly.lease_shards;
delete from duly.functions where file = 'shards.sql';
