-- Schedules declared in code. docs/decisions/0011-schedules-declared-in-code.md says why.

-- What a worker's program declares, each as tenant/hash/name: how the others know which declarations are alive.
alter table duly.workers add column declares text[] not null default '{}';

alter table duly.jobs
    add column definitions  bytea[],                    -- of an owner 'code': the hashes it has had, the one in force last
    add column removed_at   timestamptz;                -- of an owner 'code': since when no program declares it
