-- The API's role sees the rows of one tenant and moves none of them by itself: docs/decisions/0037-tenant-isolation-in-the-database.md.
-- Roles belong to the cluster, so another database may be making this one at the same moment.
do $$
begin
    begin
        if not exists (select from pg_roles where rolname = 'duly_api') then
            create role duly_api nologin;
        end if;
    exception when duplicate_object or unique_violation then
        null;
    end;
    begin
        perform set_config('role', 'duly_api', true), set_config('role', requested.was, true) from (select current_setting('role') as was offset 0) as requested;
    exception when insufficient_privilege then
        begin
            execute format('grant duly_api to %I', current_user);
        exception when duplicate_object or unique_violation then
            null;
        end;
    end;
exception when insufficient_privilege or undefined_object then
    raise exception using errcode = 'DU020',
        message = format('role %s may not make the role duly_api, or become it', quote_ident(current_user)),
        detail = format('create role duly_api nologin; grant duly_api to %I;', current_user);
end $$;
