-- Rates that go on after the database's clock was set back. docs/decisions/0042-rates-and-the-clock.md says why.

-- When what is reserved was last reckoned. A moment that is still to come was told by a clock that was set back since.
alter table duly.paces add column reckoned_at timestamptz not null default '-infinity';
create index paces_by_reckoning on duly.paces (reckoned_at);
