-- The app whose handlers a worker offers: its name, or else the path it was loaded from. None: a worker over HTTP, or of targets alone.
alter table duly.workers add column app text;
