-- What no live worker knows stands aside, so that no claim walks over it: docs/decisions/0046-runs-that-nobody-knows.md says why.

-- Still ready, and in no line.
alter table duly.ready add column is_aside boolean not null default false;

-- The lines, as before, of what is in line.
drop index duly.ready_by_line;
create index ready_by_line on duly.ready (queue, tenant, priority, due_at) where not is_aside;

-- What stands aside, by who could take it; and its lines, for whoever brings it back.
create index ready_aside on duly.ready (queue, handler, tenant, priority, due_at) where is_aside;
