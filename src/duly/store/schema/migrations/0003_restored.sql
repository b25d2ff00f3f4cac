-- A recovery may be that of a restored database: then the runs that were in flight at its backup wait for the decision, too.
alter table duly.recoveries add column backup_at timestamptz;
