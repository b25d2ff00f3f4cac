-- Items of a map that is replayed are made anew, and their records may be gone by then: how far the attempts of each had come is kept.
alter table duly.workflow_nodes add column item_attempts jsonb;        -- of a map that was set back: the last attempt of each item, by name
