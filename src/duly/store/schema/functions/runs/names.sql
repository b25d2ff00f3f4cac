-- Ids, shards and order of runs. Each is one expression, so that it is inlined where it is called.

-- A run's name: 48 bits of its scheduled moment in milliseconds, then 74 bits of a hash (a UUID of version 8, RFC 9562).
-- One expression, stable like the parts it is made of, so that it is inlined where it is called. domain/runs/run_id.py computes the same.
create or replace function duly.run_id(p_scheduled_at timestamptz, p_name text) returns uuid language sql stable parallel safe as $$
    select encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
               substr(int8send((date_part('epoch', p_scheduled_at) * 1000000)::bigint / 1000), 3) || substr(sha256(convert_to(p_name, 'UTF8')), 1, 10),
               52, 0), 53, 0), 54, 0), 55, 1), 70, 0), 71, 1), 'hex')::uuid
$$;

create or replace function duly.occurrence_id(p_job_id uuid, p_scheduled_at timestamptz, p_origin text) returns uuid
language sql stable parallel safe as $$
    select duly.run_id(p_scheduled_at, p_job_id::text || '/' || (date_part('epoch', p_scheduled_at) * 1000000)::bigint::text || '/' || p_origin)
$$;

-- The moment a job was created: the first 48 bits of its id, as of any run.
create or replace function duly.created_at(p_job_id uuid) returns timestamptz language sql stable parallel safe as $$
    select to_timestamp(('x' || translate(left(p_job_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0)
$$;

-- The jobs submitted under a key are named after it and after the moment it was first used: a key that has expired and is used
-- later creates other jobs, although the first ones may still be waiting.
create or replace function duly.batch_name(p_tenant integer, p_key text, p_at timestamptz) returns text language sql stable parallel safe as $$
    select p_tenant::text || '/' || p_key || '/' || (date_part('epoch', p_at) * 1000000)::bigint::text || '/'
$$;

-- An id in a batch: its moment, a prefix that all share, with a hash of 50 bits, and its number in the last 24 bits. So the ids of a batch
-- ascend, and are inserted at one end of each index.
create or replace function duly.batch_prefix(p_tenant integer, p_key text, p_at timestamptz) returns text language sql stable parallel safe as $$
    select substr(translate(duly.run_id(p_at, duly.batch_name(p_tenant, p_key, p_at))::text, '-', ''), 13, 14)
$$;

create or replace function duly.id_in_batch(p_scheduled_at timestamptz, p_batch text, p_number bigint) returns uuid language sql stable parallel safe as $$
    select (lpad(to_hex((date_part('epoch', p_scheduled_at) * 1000000)::bigint / 1000), 12, '0') || p_batch || lpad(to_hex(p_number), 6, '0'))::uuid
$$;

-- Any row may stand in any shard; this spreads them evenly.
create or replace function duly.shard_of(p_job_id uuid) returns smallint language sql immutable strict parallel safe as $$
    select (get_byte(uuid_send(p_job_id), 15) & 63)::smallint
$$;

-- Thirty seconds of age make up for one priority. Rank orders, it never blocks.
create or replace function duly.rank(p_due_at timestamptz, p_priority smallint) returns double precision
language sql stable parallel safe as $$
    select date_part('epoch', p_due_at) + 30 * p_priority
$$;

create or replace function duly.moment_text(p_at timestamptz) returns text language sql stable parallel safe as $$
    select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

create or replace function duly.seconds_until(p_moment timestamptz, p_now timestamptz) returns double precision language sql immutable parallel safe as $$
    select case when p_moment > p_now then date_part('epoch', p_moment - p_now) else 0 end
$$;

grant execute on function duly.run_id, duly.occurrence_id, duly.created_at, duly.batch_name to duly_api;
