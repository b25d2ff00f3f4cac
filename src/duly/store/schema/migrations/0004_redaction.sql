-- The rules by which values are hidden in what people are shown: of tenants, and of the installation, whose row names no tenant. Few rows, and
-- mostly none: one look a statement says so.
create table duly.redactions (
    tenant integer references duly.tenants,
    rules  text[] not null check (cardinality(rules) between 1 and 32),
    unique nulls not distinct (tenant)
);
alter table duly.redactions enable row level security;                  -- the API's role sees nothing of it, but what a function says
