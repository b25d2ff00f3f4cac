-- The only clock of the moves. It stands here, and not among the functions that are applied anew, because a database created for
-- tests replaces it by one that tests move.
create function duly.clock_now() returns timestamptz language sql volatile parallel safe as $$ select clock_timestamp() $$;
