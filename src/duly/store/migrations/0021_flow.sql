-- What a run may carry to be held back, given up or followed: a rate, an order, an expiry, a place in a workflow.

-- A rate: its key, how many a second, and how many at once after a rest.
create function duly.is_rate(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) <> 'array' or jsonb_array_length(p_value) <> 3 then false
                else jsonb_typeof(p_value->0) = 'string' and left(p_value->>0, 1) not in ('', '@', '&', '~') and jsonb_typeof(p_value->1) = 'number'
                     and (p_value->1)::numeric > 0 and (p_value->1)::numeric <= 1000000 and (p_value->2)::text ~ '^[1-9][0-9]{0,5}$' end
$$;

create function duly.is_retry(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select coalesce(jsonb_typeof(p_value), 'object') = 'object' and coalesce(p_value->'max_attempts', '1')::text ~ '^[1-9][0-9]{0,3}$'
       and duly.is_span(p_value->'base_seconds') and duly.is_span(p_value->'cap_seconds')
$$;

-- A gate's name begins with none of what is kept: @ for destinations, & for parents, ~ for rates.
create function duly.is_gate(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select p_value is null or (jsonb_typeof(p_value->0) = 'string' and left(p_value->>0, 1) not in ('@', '&', '~')
                               and p_value->2 is null and (p_value->1)::text ~ '^[1-9][0-9]{0,5}$') is true
$$;

create or replace function duly.are_options(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select jsonb_typeof(p_options) = 'object'
       and p_options - array['retry', 'timeout_seconds', 'gate', 'fifo', 'rate', 'expires_at', 'expires_seconds', 'tags', 'request_id',
                             'traceparent', 'target', 'then', 'parent'] = '{}'
       and duly.is_retry(p_options->'retry') and duly.is_gate(p_options->'gate') and duly.is_rate(p_options->'rate')
       and (p_options->'fifo' is null or (p_options->'fifo' = 'true' and (p_options #> '{gate,1}') = '1') is true)
       and (jsonb_typeof(p_options->'timeout_seconds') = 'null' or duly.is_span(p_options->'timeout_seconds'))
       and coalesce(jsonb_typeof(p_options->'expires_at'), 'number') = 'number' and duly.is_span(p_options->'expires_seconds')
       and duly.are_tags(p_options->'tags') and duly.is_mark(p_options->'request_id') and duly.is_mark(p_options->'traceparent')
       and coalesce(jsonb_typeof(p_options->'target'), 'object') = 'object' and duly.are_told(p_options->'then') and duly.is_parent(p_options->'parent')
$$;
drop function duly.are_options_but_parent(jsonb);

-- What of a run's options stays with its record: also its node, because the end of a run is what its workflow goes on by.
create or replace function duly.marks_of(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options ?| array['tags', 'request_id', 'traceparent', 'then', 'parent', 'node']
                then jsonb_strip_nulls(jsonb_build_object('tags', p_options->'tags', 'request_id', p_options->'request_id', 'parent', p_options->'parent',
                                                          'traceparent', p_options->'traceparent', 'then', p_options->'then', 'node', p_options->'node')) end
$$;
drop function duly.marks_but_parent(jsonb);

-- Queues whose oldest run has waited longer than it should: recurring work of low priority is not piled on top of them.
create table duly.overloads (
    queue        text        primary key collate "C",
    oldest_due_at timestamptz not null,
    noted_at     timestamptz not null
);

revoke execute on function duly.is_rate(jsonb), duly.is_retry(jsonb), duly.is_gate(jsonb) from public;
