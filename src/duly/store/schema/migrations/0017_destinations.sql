-- Destinations: where webhooks go to, by tenant and origin. Each row holds what a destination may be sent, how it is, and what its
-- workers share; docs/decisions/0023-destinations.md says why. What follows from the sums is decided in domain/health.py.

create table duly.destinations (
    destination_id uuid      primary key,
    tenant       integer     not null,
    origin       text        not null collate "C",
    made_at      timestamptz not null,
    places       integer     not null default 100 check (places between 1 and 100000),  -- requests under way at once
    rate_per_second double precision check (rate_per_second > 0),                       -- null: no limit
    state        text        not null default 'closed' check (state in ('closed', 'open', 'half_open')),
    turn         integer     not null default 0,        -- raised at each change of state: who has seen an old one changes nothing
    turned_at    timestamptz not null,
    openings     integer     not null default 0,        -- in a row, without calm between them
    wait_until   timestamptz not null default '-infinity',      -- of an open one: when it is tried
    asked_until  timestamptz not null default '-infinity',      -- until when it has asked to be left alone
    failures_in_a_row integer not null default 0,
    successes_in_a_row integer not null default 0,
    half_at      timestamptz not null,                  -- when the younger half of the window began
    healthy      integer     not null default 0,
    failing      integer     not null default 0,
    healthy_before integer   not null default 0,        -- in the older half
    failing_before integer   not null default 0,
    steady_rate  double precision,                      -- healthy answers a second, in stretches in which it was closed
    ramp_rate    double precision,                      -- after an outage, while something is parked: no more a second
    ramp_grows   boolean     not null default false,
    ramp_until   timestamptz not null default '-infinity',
    tokens       double precision not null default 1,   -- of the rate, as of counted_at
    counted_at   timestamptz not null,
    released_at  timestamptz not null,                  -- when runs that wait for it were last let go
    answers_at   timestamptz not null,                  -- from when on answers are counted, for their pace
    answers_before bigint    not null default 0,        -- how many there had been by then
    pace         double precision not null default 0,   -- answers a second, in the stretch before
    healthy_total bigint     not null default 0,
    failing_total bigint     not null default 0
) with (fillfactor = 50);
create unique index destinations_by_origin on duly.destinations (tenant, origin);
create index destinations_shut on duly.destinations (wait_until) where state <> 'closed';

-- What signs: the newest, and the one before until it retires. Sealed; the key that opens it is not in this database.
create table duly.destination_secrets (
    destination_id uuid      not null,
    number       integer     not null check (number >= 1),
    tenant       integer     not null,
    sealed       bytea       not null,
    key_id       text        not null,
    made_at      timestamptz not null,
    retires_at   timestamptz,
    primary key (destination_id, number)
);

-- What a worker may have under way to a destination. The sum of places never exceeds the budget, unless that was made smaller.
create table duly.destination_shares (
    destination_id uuid      not null,
    worker_id    uuid        not null,
    number       bigint      not null,                  -- of the report: one that comes late changes nothing
    places       integer     not null,
    in_flight    integer     not null,
    waiting      integer     not null,
    primary key (destination_id, worker_id)
) with (fillfactor = 50);

-- What waits for destinations, gate by gate.
create index blocked_parked on duly.blocked (tenant, gate, due_at, run_id) where duly.is_parked(gate);

alter table duly.destinations enable row level security;
alter table duly.destination_secrets enable row level security;
create policy of_its_tenant on duly.destinations for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.destination_secrets for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.destinations, duly.destination_secrets to duly_api;
