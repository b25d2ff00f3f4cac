-- Workers over HTTP: a worker may belong to a tenant; then it sees, holds and settles runs of that tenant alone.
-- docs/decisions/0018-workers-over-http.md says why.

alter table duly.workers
    add column tenant       integer references duly.tenants,   -- null: ours, and serves every tenant
    add column claim_number bigint  not null default 0,        -- over HTTP: the number of the last claim that took something,
    add column claim_fence  bigint  not null default 0;        -- and its fence; what it took before has a lower one

-- A tenant's worker finds its runs whatever others have queued. Partial, so that an installation with one tenant does not pay for it.
create index ready_of_tenant_by_rank on duly.ready (tenant, queue, rank) where tenant <> 1;
