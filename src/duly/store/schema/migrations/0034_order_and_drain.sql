-- Workers that are asked to take nothing more.

-- Since when it takes nothing new: it hears of that with its signals, finishes what it runs and hands back the rest.
alter table duly.workers add column draining_at timestamptz;
