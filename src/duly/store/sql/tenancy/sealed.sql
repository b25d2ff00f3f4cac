-- name: blocks
-- The parts of a table, or the table itself, and how many blocks each has.
select format('duly.%I', part.relname), pg_relation_size(part.oid) / current_setting('block_size')::bigint
  from pg_class as part
 where part.relkind = 'r'
   and (part.oid = to_regclass('duly.' || $1) or part.oid in (select inhrelid from pg_inherits where inhparent = to_regclass('duly.' || $1))
        or part.oid in (select below.inhrelid from pg_inherits as above join pg_inherits as below on below.inhparent = above.inhrelid
                         where above.inhparent = to_regclass('duly.' || $1)))
 order by part.relname;

-- name: before
select tid, tenant, options from duly.sealed_before($1::text::regclass, $2, $3, $4, $5);

-- name: reseal
select duly.reseal($1::text::regclass, $2, $3::tid[], $4::text[]::jsonb[], $5::text[]::jsonb[]);

-- name: left
select duly.sealed_left($1);

-- name: unopened
-- Sealed values by the key that they name, but for these keys. Of jobs and runs so many rows each are read, and one that names several keys counts for the first.
select key_id, count(*) filter (where kind = 'secret')::int as signing_secrets, count(*) filter (where kind = 'channel')::int as channels,
       count(*) filter (where kind = 'job')::int as jobs
  from (select 'secret' as kind, key_id from duly.destination_secrets
        union all select 'channel', key_id from duly.channels
        union all select 'job', substring(options::text from '"sealed:([A-Za-z0-9_-]{1,64}):') from (
            (select options from duly.jobs limit $2) union all (select options from duly.timers limit $2)
            union all (select options from duly.blocked limit $2) union all (select options from duly.ready limit $2)) as held) as every
 where key_id <> all ($1::text[]) group by key_id order by key_id;

-- name: signing_before
select destination_id, number, tenant, sealed, key_id from duly.destination_secrets
 where key_id <> $1 and (destination_id, number) > ($2, $3) order by destination_id, number limit $4;

-- name: reseal_signing
update duly.destination_secrets set sealed = $4, key_id = $5 where destination_id = $1 and number = $2 and sealed = $3 returning 1;
