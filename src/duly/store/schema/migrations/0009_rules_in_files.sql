-- Rules of notifications in files: the file that a rule belongs to, and the definition that it applied last. Null: made by hand.
alter table duly.notification_rules add column source text collate "C", add column applied jsonb;
