-- name: identity
select name, number, region, directory::text from duly.cell

-- name: become
select duly.become_cell($1, $2, $3, $4::text::uuid)

-- name: found
select gen_random_uuid()::text

-- name: leave
delete from duly.cell where name = $1 and directory = $2::text::uuid

-- name: version
select (select max(version) from duly.migrations) as schema, (select max(edition) from duly.functions) as edition,
       (select version from duly.zone_data) as tzdb, coalesce((select settled_at is null from duly.zone_data), false) as is_retiming,
       exists (select from duly.recoveries where state in ('open', 'approved', 'dismissing')) as is_recovering

-- name: add
insert into duly.cells (name, region, shown, sealed, key_id) values ($1, $2, $3, $4, $5)
on conflict (name) do update set shown = excluded.shown, sealed = excluded.sealed, key_id = excluded.key_id where cells.region = excluded.region
returning number

-- name: add_first
-- The directory's own cell; the tenants that it has are placed in it.
with added as (
    insert into duly.cells (name, number, region, shown, sealed, key_id) overriding system value
    select $1, 0, $2, $3, $4, $5 where not exists (select from duly.cells) returning name)
insert into duly.placements (tenant_name, cell) select tenants.name, added.name from added join duly.tenants on tenants.tenant > 1

-- name: cells
select name, number, region, state, shown from duly.cells order by name

-- name: address
select sealed, key_id from duly.cells where name = $1

-- name: drain
update duly.cells set state = $2 where name = $1 returning 1

-- name: remove
delete from duly.cells where name = $1 and number > 0 and not exists (select from duly.placements where placements.cell = $1 or placements.moving_to = $1) returning 1

-- name: sealed_before
select name, sealed, key_id from duly.cells where key_id <> $1 order by name

-- name: reseal
update duly.cells set sealed = $3, key_id = $4 where name = $1 and sealed = $2 returning 1

-- name: placement
select tenant_name, cell, epoch, moving_to, phase from duly.placements where tenant_name = $1

-- name: placements
select tenant_name, cell, epoch, moving_to, phase from duly.placements where $1::text is null or cell = $1 order by tenant_name

-- name: place
-- Once; a cell that is drained or removed meanwhile takes nobody.
insert into duly.placements (tenant_name, cell) select $1, cells.name from duly.cells where cells.name = $2 and cells.state = 'active' for share
on conflict do nothing

-- name: begin
update duly.placements set moving_to = $3, phase = 'leaving', epoch = epoch + 1
 where tenant_name = $1 and epoch = $2 and moving_to is null and exists (select from duly.cells where name = $3 and state = 'active')
returning tenant_name, cell, epoch, moving_to, phase

-- name: undo
update duly.placements set moving_to = null, phase = null where tenant_name = $1 and epoch = $2 and phase = 'leaving' returning 1

-- name: advance
-- A new epoch without a move, for rows that came late.
update duly.placements set epoch = epoch + 1 where tenant_name = $1 and epoch = $2 and moving_to is null
returning tenant_name, cell, epoch, moving_to, phase

-- name: arriving
update duly.placements set phase = 'arriving' where tenant_name = $1 and epoch = $2 and moving_to is not null returning 1

-- name: finish
update duly.placements set cell = moving_to, moving_to = null, phase = null where tenant_name = $1 and epoch = $2 and phase = 'arriving' returning 1

-- name: tenant
select tenants.tenant, absent_tenants.state, absent_tenants.epoch, absent_tenants.cell
  from duly.tenants left join duly.absent_tenants using (tenant) where tenants.name = $1

-- name: tenants
select tenants.name, tenants.tenant, absent_tenants.state, absent_tenants.epoch, absent_tenants.cell
  from duly.tenants left join duly.absent_tenants using (tenant) where tenants.tenant > 1 order by tenants.name

-- name: strays
select coalesce(tenants.name, held.tenant::text) as tenant, string_agg(held.table_name, ', ' order by held.table_name) as tables
  from duly.rows_of_tenants() as held left join duly.tenants using (tenant) group by 1 order by 1

-- name: departures
select tenants.name as tenant, departures.epoch, count(*) as rows
  from duly.departures left join duly.tenants using (tenant) group by 1, 2 order by 1, 2

-- name: create_tenant
insert into duly.tenants (name, created_at) values ($1, duly.clock_now()) on conflict (name) do nothing

-- name: freeze
select duly.freeze_tenant($1, $2, $3)

-- name: unfreeze
select duly.unfreeze_tenant($1, $2)

-- name: horizon
-- The open transactions of clients, whatever they read: they may not see that a tenant is frozen. Those that begin later do. A prepared one
-- has no session any more, and is older than the number.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as number,
       array(select pg_locks.virtualxid from pg_locks join pg_stat_activity using (pid)
              where pg_locks.locktype = 'virtualxid' and pg_locks.granted and pg_stat_activity.datname = current_database()
                and pg_stat_activity.usesysid is not null and pid <> pg_backend_pid()) as transactions

-- name: held
select array(select pid from pg_locks where locktype = 'virtualxid' and granted and virtualxid = any ($3::text[]) limit 11) as processes,
       exists (select from pg_prepared_xacts where database = current_database())
           and pg_snapshot_xmin(pg_current_snapshot())::text::bigint < $2 as is_prepared,
       array(select run_id from duly.leased where tenant = $1 limit 11) as runs

-- name: depart
select duly.depart($1, $2)

-- name: sequences
select (select last_value from duly.fences) as fence, (select last_value from duly.fifo_numbers) as fifo_number

-- name: departed
select number, table_name, body::text as body from duly.departures where tenant = $1 and epoch = $2 and number > $3 order by number limit $4

-- name: finish_departure
select duly.finish_departure($1, $2)

-- name: prepare_arrival
select duly.prepare_arrival($1, $2, $3, $4)

-- name: undo_arrival
select duly.undo_arrival($1, $2)

-- name: begin_arrival
select duly.begin_arrival($1, $2, $3)

-- name: put_rows
select duly.put_rows($1, $2, $3::text[]::jsonb[], $4)

-- name: finish_arrival
select duly.finish_arrival($1, $2, $3, $4)

-- name: leave_late
-- Rows that came after their tenant had gone depart, too, under a new epoch.
update duly.absent_tenants set state = 'leaving', epoch = $2, cell = $3 where tenant = $1 and state = 'gone' and epoch < $2
