-- Gates at speed, lines in order, turns at a rate, and limits that are changed while runs wait.
-- docs/decisions/0029-gates-at-speed.md says why. A plain name is a concurrency key, a line or an overlap; @ stands before a
-- destination, & before what a run waits for otherwise, ~ before a rate.

create sequence duly.lines cache 1;

alter table duly.gates add column in_line boolean not null default false;      -- who is inside came from a line, and is alone there

-- What somebody has set for a key; it comes before what runs carry.
create table duly.gate_limits (
    tenant       integer     not null,
    key          text        not null collate "C",
    places       integer     check (places between 1 and 999999),
    per_second   double precision check (per_second > 0 and per_second <= 1000000),
    burst        integer     check (burst between 1 and 999999),
    changed_at   timestamptz not null,
    primary key (tenant, key),
    check ((per_second is null) = (burst is null)),
    check (places is not null or per_second is not null)
);

-- Rates in use: when the next turn is free if nobody rests. What runs ask for stands beside what was reserved by.
create table duly.paces (
    tenant       integer     not null,
    key          text        not null collate "C",
    per_second   double precision not null check (per_second > 0),
    burst        integer     not null check (burst >= 1),
    asked_per_second double precision not null,
    asked_burst  integer     not null,
    next_at      timestamptz not null,
    look_at      timestamptz not null,                  -- nothing is to be done before
    primary key (tenant, key)
) with (fillfactor = 50);
create index paces_by_look on duly.paces (look_at);

---------------------------------------------------------------------------------------------------- what a run waits for

-- What the indexes of lines are made of. A run of a line carries its number; without one it stands behind all that have one and are due at the same moment.
create function duly.line_of(p_options jsonb) returns bigint language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_options->'fifo') = 'number' then (p_options->>'fifo')::bigint else 9223372036854775807 end
$$;

-- Lines, as they stand in each box. They hold FIFO rows alone, so that others pay nothing.
create index blocked_in_line on duly.blocked (tenant, gate, due_at, duly.line_of(options), run_id) where options ? 'fifo';
create index timers_in_line on duly.timers (tenant, ((options->'gate'->>0) collate "C"), due_at, duly.line_of(options)) where options ? 'fifo';
-- Turns that were given and not taken.
create index ready_paced on duly.ready (tenant, ((options->'rate'->>0) collate "C"), due_at) where options ? 'rate';
-- Who waits for a turn, by who may take it.
create index blocked_by_taker on duly.blocked (tenant, gate, queue, handler, suspect, due_at, run_id) where left(gate, 1) = '~';

-------------------------------------------------------------------------------------------------------------- the wall

alter table duly.gate_limits enable row level security;
alter table duly.paces enable row level security;
create policy of_its_tenant on duly.gate_limits for select to duly_api using (tenant = duly.current_tenant());
create policy of_its_tenant on duly.paces for select to duly_api using (tenant = duly.current_tenant());
grant select on duly.gate_limits, duly.paces to duly_api;
