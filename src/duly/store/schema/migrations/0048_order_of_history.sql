-- History is followed in the order of transactions, and not by where its rows lie. docs/decisions/0053-the-order-of-history.md says why.
alter table duly.attempts add column xid xid8 not null default pg_current_xact_id();    -- the transaction that recorded it
create index attempts_by_transaction on duly.attempts (xid);

-- So are the ends of workflows. After a replay it names the end before, until there is another.
alter table duly.workflows add column ended_xid xid8;
create index workflows_by_ending on duly.workflows (ended_xid) where ended_xid is not null;
