-- Targets: what a run does, where that is no function, stands among its options; and a run whose destination is not to be called
-- now is parked: it waits in blocked, under a gate that begins with @. docs/decisions/0021-targets.md says why.

-- What an index is made of. Whether runs wait at this gate for a destination, and not for a place.
create function duly.is_parked(p_gate text) returns boolean language sql immutable parallel safe as $$
    select left(p_gate, 1) = '@'
$$;
