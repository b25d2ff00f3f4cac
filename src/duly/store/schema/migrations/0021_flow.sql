-- Queues whose oldest run has waited longer than it should: recurring work of low priority is not piled on top of them.
create table duly.overloads (
    queue        text        primary key collate "C",
    oldest_due_at timestamptz not null,
    noted_at     timestamptz not null
);
