-- Since when a worker stands still, and in which handlers.
alter table duly.workers
    add column stalled_at timestamptz,
    add column stalled_in text[] not null default '{}';
