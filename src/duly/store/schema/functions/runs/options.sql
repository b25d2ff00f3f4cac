-- Options of a run: the checks of each, and the part that its record keeps.

-- A number of seconds up to a hundred years, or nothing.
create or replace function duly.is_span(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) = 'number' then p_value::numeric between 0 and 3155760000 else false end
$$;

-- The name of a queue, a key or a handler: what an index can hold besides the other columns. A longer one would be refused where a batch
-- is moved, and block all others of it.
create or replace function duly.is_name(p_value text) returns boolean language sql immutable parallel safe as $$
    select octet_length(p_value) between 1 and 1000 and btrim(p_value) <> ''
$$;

-- Return whether every program of ours can read this JSON: at most 64 levels, and no number of more than 4300 digits. What is no longer than 128
-- bytes has no room for 65 levels, nor what is no longer than 4300 for such a number.
create or replace function duly.is_readable(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when octet_length(p_value::text) <= 128 then true
                when jsonb_path_exists(p_value, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') then false
                when octet_length(p_value::text) <= 4300 then true
                else not jsonb_path_exists(p_value, 'strict $.** ? (@.type() == "number" && (@ >= 1e4300 || @ <= -1e4300))') end
$$;

-- A moment as seconds since 1970, up to the last that every program can read.
create or replace function duly.is_moment(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) = 'number' then p_value::numeric between 0 and 253402300799 else false end
$$;

-- The slowest rate, one start in a bit more than a year. The reservations of a slower one would lie where no moment is.
create or replace function duly.rate_min() returns double precision language sql immutable parallel safe as $$ select 0.00000003::double precision $$;

-- A rate: its key, how many a second, and how many at once after a rest.
create or replace function duly.is_rate(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) <> 'array' or jsonb_array_length(p_value) <> 3 then false
                when jsonb_typeof(p_value->0) <> 'string' or jsonb_typeof(p_value->1) <> 'number' then false
                else duly.is_name(p_value->>0)
                     and (p_value->1)::numeric between duly.rate_min()::numeric and 1000000 and (p_value->2)::text ~ '^[1-9][0-9]{0,5}$' end
$$;

-- Return whether this is a rule for failures: of one error, status or exit code, and what then.
create or replace function duly.is_retry_rule(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_value) <> 'object' then false
                else p_value - array['action', 'error', 'status', 'exit', 'delay_seconds'] = '{}' and (p_value->>'action' in ('retry', 'dead', 'snooze')) is true
                     and (p_value ? 'error')::integer + (p_value ? 'status')::integer + (p_value ? 'exit')::integer = 1
                     and not jsonb_path_exists(p_value - array['action', 'delay_seconds'], '$.* ? (@.type() != "string")')
                     and duly.is_span(p_value->'delay_seconds') and (p_value->>'action' <> 'snooze' or p_value ? 'delay_seconds') end
$$;

create or replace function duly.is_retry(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) <> 'object' then false
                else coalesce(p_value->'max_attempts', '1')::text ~ '^[1-9][0-9]{0,3}$'
                     and duly.is_span(p_value->'base_seconds') and duly.is_span(p_value->'cap_seconds')
                     and coalesce(p_value->>'policy', 'fixed') in ('exponential', 'linear', 'fixed', 'list')
                     and case when p_value->'delays' is null then p_value->>'policy' is distinct from 'list'
                              when jsonb_typeof(p_value->'delays') <> 'array' then false
                              else jsonb_array_length(p_value->'delays') between 1 and 100
                                   and (select bool_and(duly.is_span(delay)) from jsonb_array_elements(p_value->'delays') as delay) end
                     and (coalesce(jsonb_typeof(p_value->'jitter'), 'null') = 'null' or (duly.is_span(p_value->'jitter') and (p_value->'jitter')::numeric <= 1))
                     and (coalesce(jsonb_typeof(p_value->'max_age_seconds'), 'null') = 'null' or duly.is_span(p_value->'max_age_seconds'))
                     and case when p_value->'rules' is null then true when jsonb_typeof(p_value->'rules') <> 'array' then false
                              else jsonb_array_length(p_value->'rules') <= 32
                                   and coalesce((select bool_and(duly.is_retry_rule(rule)) from jsonb_array_elements(p_value->'rules') as rule), true) end end
$$;

-- A concurrency key: its name, and how many runs may be under way at once.
create or replace function duly.is_concurrency(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select p_value is null or (jsonb_typeof(p_value->0) = 'string' and duly.is_name(p_value->>0)
                               and p_value->2 is null and (p_value->1)::text ~ '^[1-9][0-9]{0,5}$') is true
$$;

-- At most 32 tags of 1 to 200 characters each, or none.
create or replace function duly.are_tags(p_tags jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_tags is null then true when jsonb_typeof(p_tags) <> 'array' then false
                else jsonb_array_length(p_tags) <= 32
                     and not jsonb_path_exists(p_tags, '$[*] ? (@.type() != "string")')
                     and not jsonb_path_exists(p_tags, '$[*] ? (!(@ like_regex "^.{1,200}$" flag "s"))') end
$$;

create or replace function duly.is_label(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) = 'string' then length(p_value #>> '{}') between 1 and 200 else false end
$$;

-- Return whether this names callbacks: of every end, of dead letters, or both; each a URL, or a job.
create or replace function duly.are_callbacks(p_callbacks jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_callbacks is null then true when jsonb_typeof(p_callbacks) <> 'object' then false
                else p_callbacks - array['end', 'failure'] = '{}' and p_callbacks <> '{}'
                     and not jsonb_path_exists(p_callbacks, '$.* ? (@.type() != "object")')
                     and not jsonb_path_exists(p_callbacks, '$.* ? (!(exists(@.url ? (@.type() == "string")) || exists(@.job ? (@.type() == "string"))))')
                     and not jsonb_path_exists(p_callbacks, '$.* ? (exists(@.url) && exists(@.job))') end
$$;

create or replace function duly.is_parent(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_value is null then true when jsonb_typeof(p_value) = 'string'
                then p_value #>> '{}' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' else false end
$$;

-- The dependencies of a run: 1 to 100 pairs of a job's id and the end that is required of it, each job once. domain/runs/dependencies.py says the same.
create or replace function duly.is_depends_on(p_value jsonb) returns boolean language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_value) <> 'array' or jsonb_array_length(p_value) not between 1 and 100 then false
                else (select bool_and(coalesce(jsonb_typeof(pair) = 'array' and jsonb_typeof(pair->0) = 'string'
                                               and pair->>0 ~ '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
                                               and pair->>1 in ('success', 'failure', 'always') and pair->2 is null, false))
                             and count(distinct pair->>0) = count(*)
                        from jsonb_array_elements(p_value) as pair) end
$$;

-- The options without `depends_on`, which only a one-shot may have and is checked apart.
create or replace function duly.without_dependencies(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options->'depends_on' is not null then p_options - 'depends_on' else p_options end
$$;

-- Names that say that a value is a secret: domain/targets/masking.py has the same.
create or replace function duly.is_secret_name(p_name text) returns boolean language sql immutable parallel safe as $$
    select p_name ~* ('auth|token|secret|key|cookie|pass|pwd|credential|signature|session|dsn|database_url|db_url|redis_url|broker_url|amqp_url|mongo'
                      '|connection_string|webhook_url')
$$;

-- Return whether a URL has a secret in clear text: a login, or a parameter of its query whose name says so.
create or replace function duly.is_clear_url(p_url text) returns boolean language sql immutable parallel safe as $$
    select p_url ~ '^[^/?#]*//[^/?#]*@'
        or exists (select from regexp_matches(substring(p_url from '[?](.*)$'), '([^=&;]*)=([^&;]+)', 'g') as parameter
                    where parameter[2] <> '***' and (duly.is_secret_name(parameter[1]) or lower(parameter[1]) in ('sig', 'code', 'jwt')))
$$;

-- Return whether a secret among options is not sealed. A run without a target and without callbacks pays nothing.
create or replace function duly.has_clear_secret(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select case when p_options ?| array['target', 'callbacks'] then
        exists (select from jsonb_path_query(p_options, 'lax $.target.**.headers'::jsonpath) as held
                 cross join lateral jsonb_each_text(case when jsonb_typeof(held) = 'object' then held else '{}' end) as one
                 where duly.is_secret_name(one.key) and one.value !~ '^sealed:[A-Za-z0-9_-]{1,64}:[A-Za-z0-9_-]{38,}$')
        or exists (select from jsonb_path_query(p_options, 'lax $.target.**.environment'::jsonpath) as held
                    cross join lateral jsonb_each_text(case when jsonb_typeof(held) = 'object' then held else '{}' end) as one
                    where duly.is_secret_name(one.key) and one.value !~ '^sealed:[A-Za-z0-9_-]{1,64}:[A-Za-z0-9_-]{38,}$')
        or exists (select from jsonb_path_query(p_options, 'lax $.**.url'::jsonpath) as held where duly.is_clear_url(held #>> '{}'))
        else false end
$$;

-- Options come from any language, and every worker has to read them: see store/boxes/options.py.
create or replace function duly.are_options(p_options jsonb) returns boolean language sql immutable parallel safe as $$
    select jsonb_typeof(p_options) = 'object'
       and p_options - array['retry', 'timeout_seconds', 'concurrency', 'fifo', 'rate', 'expires_at', 'expires_seconds', 'tags', 'request_id',
                             'traceparent', 'target', 'callbacks', 'parent', 'rerun_of', 'redact', 'own'] = '{}' and coalesce(p_options->'own', 'true') = 'true'
       and duly.is_retry(p_options->'retry') and duly.is_concurrency(p_options->'concurrency') and duly.is_rate(p_options->'rate')
       and (p_options->'fifo' is null or (p_options->'fifo' = 'true' and (p_options #> '{concurrency,1}') = '1') is true)
       and (jsonb_typeof(p_options->'timeout_seconds') = 'null' or duly.is_span(p_options->'timeout_seconds'))
       and duly.is_moment(p_options->'expires_at') and duly.is_span(p_options->'expires_seconds')
       and duly.are_tags(p_options->'tags') and duly.is_label(p_options->'request_id') and duly.is_label(p_options->'traceparent')
       and coalesce(jsonb_typeof(p_options->'target'), 'object') = 'object' and duly.are_callbacks(p_options->'callbacks') and duly.is_parent(p_options->'parent')
       and duly.is_parent(p_options->'rerun_of') and duly.are_rules(p_options->'redact') and not duly.has_clear_secret(p_options)
$$;

-- Refuse options, in a sentence that has no secret in it.
create or replace function duly.refuse_options(p_options jsonb) returns void language plpgsql as $$
begin
    if duly.has_clear_secret(p_options) then
        raise exception using errcode = 'DU005', message = 'the target or a callback has a secret in clear text, which is not stored',
            hint = 'Submit it over HTTP or with the Python SDK, which seal it: a header, a variable or a parameter of a URL whose name says that it is one.';
    end if;
    raise exception using errcode = 'DU005', message = format(
        'options %s are none we know', case when jsonb_typeof(p_options) = 'object' then p_options - array['target', 'callbacks'] else p_options end),
        hint = 'Known are retry, timeout_seconds, concurrency, fifo, rate, expires_at, expires_seconds, tags, request_id, traceparent, target, callbacks,'
               ' parent, depends_on, redact and own, each in its own shape.';
end $$;

-- The caller is not part of what is requested: the same job under the same key is the same, whatever request brought it.
create or replace function duly.requested_options(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_options ?| array['request_id', 'traceparent'] then nullif(p_options - array['request_id', 'traceparent'], '{}') else p_options end
$$;

-- Refuse what cannot be kept, in a sentence.
create or replace function duly.check_one(
    p_at timestamptz, p_delay interval, p_payload_bytes integer, p_priority smallint, p_options jsonb, p_now timestamptz, p_grace interval)
returns void language plpgsql set timezone = 'UTC' set intervalstyle = 'postgres' as $$
begin
    if p_at < p_now - p_grace then
        raise exception using errcode = 'DU002', message = format('at %s is in the past', p_at), detail = to_json(p_now)#>>'{}',
            hint = 'Give a later time, or leave it out to run now.';
    elsif p_delay < interval '0' then
        raise exception using errcode = 'DU003', message = format('delay %s is negative', p_delay),
            hint = 'A delay counts from now and is 0 or more.';
    elsif p_at > p_now + interval '100 years' or p_delay > interval '100 years' then
        raise exception using errcode = 'DU006', message = format('%s is more than a hundred years ahead', coalesce(p_at::text, 'delay ' || p_delay)),
            hint = 'Give a time within a hundred years.';
    elsif p_payload_bytes > 262144 then
        raise exception using errcode = 'DU004', message = format('payload has %s bytes', p_payload_bytes),
            hint = 'The limit is 262144. Store it elsewhere and pass a reference.';
    elsif p_priority not between 0 and 9 then
        raise exception using errcode = 'DU005', message = format('priority %s is outside 0 (first) to 9 (last)', p_priority),
            hint = 'Leave it out for 5.';
    elsif p_options is not null and not duly.are_options(p_options) then
        perform duly.refuse_options(p_options);
    elsif p_options->'expires_at' < to_jsonb(extract(epoch from p_now - p_grace)) then
        raise exception using errcode = 'DU005', message = format('expires_at %s is in the past', to_timestamp((p_options->>'expires_at')::float8)),
            hint = 'Give a later time, or leave it out.';
    end if;
end $$;

-- Refuse what is not the name of a handler and of a queue.
create or replace function duly.check_names(p_handler text, p_queue text) returns void language plpgsql as $$
begin
    if duly.is_name(p_handler) is not true or duly.is_name(p_queue) is not true then
        raise exception using errcode = 'DU005', message = 'a job needs the name of a handler and of a queue, of at most 1000 bytes each';
    end if;
end $$;

-- Lay what is known of a run's life over its options.
create or replace function duly.carry_on(p_options jsonb, p_carried jsonb) returns jsonb language sql immutable parallel safe as $$
    select case when p_carried is null then p_options else coalesce(p_options, '{}') || p_carried end
$$;

-- Lay over a run's options that it has waited: for a slot at its key, or until its destination was healthy. From then on it is not counted
-- among those that say the start delay of runs; that it waited is what somebody requested.
create or replace function duly.having_waited(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select p_options || '{"waited": true}'
$$;

-- The options of a run that stay with its record: its tags, and who requested it; its callbacks; its parent, its
-- node, because the end of a run is what its workflow goes on by, and what it followed; the key and the rate that it had to pass, and whether
-- it has waited. Not immutable, because what it calls is not: so it is written out where it is called, instead of called for each run. A run
-- that has none of it pays nothing: it mostly has no options at all. Of one that has nothing else, little is built.
create or replace function duly.metadata_of(p_options jsonb) returns jsonb language sql stable parallel safe as $$
    select case when p_options ?| array['tags', 'request_id', 'traceparent', 'callbacks', 'parent', 'node', 'depends_on']
                then jsonb_strip_nulls(jsonb_build_object('tags', p_options->'tags', 'request_id', p_options->'request_id', 'parent', p_options->'parent',
                                                          'traceparent', p_options->'traceparent', 'callbacks', p_options->'callbacks', 'node', p_options->'node',
                                                          'depends_on', p_options->'depends_on', 'concurrency', p_options->'concurrency', 'fifo', p_options->'fifo',
                                                          'rate', p_options->'rate', 'waited', p_options->'waited'))
                when p_options ?| array['concurrency', 'rate', 'waited']
                then case when p_options ?| array['fifo', 'rate', 'waited']
                          then jsonb_strip_nulls(jsonb_build_object('concurrency', p_options->'concurrency', 'fifo', p_options->'fifo', 'rate', p_options->'rate',
                                                                    'waited', p_options->'waited'))
                          else jsonb_build_object('concurrency', p_options->'concurrency') end end
$$;

-- The options of a run that its record keeps beside its metadata; null where there are none. Together they are the options it had. Callbacks
-- leave the metadata when they were notified, so they are kept here. History rows are written with `options_recorded`, which adds the rules of
-- redaction.
create or replace function duly.options_kept(p_options jsonb) returns jsonb language sql immutable parallel safe as $$
    select nullif(p_options - array['tags', 'request_id', 'traceparent', 'parent', 'node', 'depends_on', 'concurrency', 'fifo', 'rate', 'waited'], '{}')
$$;

grant execute on function duly.metadata_of to duly_api;
