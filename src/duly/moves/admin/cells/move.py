"""Move a tenant from one cell to another while it is in use: no occurrence is lost, and none fires twice.

| step | where | from then on |
|---|---|---|
| begin | directory | the move has an epoch; each later step names it |
| prepare | target | the tenant's name and number are taken |
| freeze | source | nothing is added to the tenant, and nothing of it is claimed |
| wait | source | older transactions and held runs have ended; if not within the grace, all of this is undone |
| depart | source | every row of the tenant is on its way, so nothing of it can fire there |
| arriving | directory | the move can only go on |
| arrive | target | every row is in its table, above the fences of the source; the tenant is there |
| clear | source | the rows on their way are forgotten, and requests are referred to the target |
| finish | directory | the target is the tenant's cell |

Each step is one transaction, guarded by the epoch, and changes nothing when it is repeated. So a move that was
interrupted anywhere goes on when it is asked for again, and two that ask at once do not harm each other.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from operator import attrgetter

import msgspec

from duly.domain.counting import few
from duly.domain.duration import to_iso
from duly.domain.errors import DulyError, Refused
from duly.domain.tenancy.cells import ACTIVE, DEPARTED, GONE, LEAVING, Cell, Placement, choose
from duly.moves.admin.cells.directory import Directory
from duly.store.connection.database import Database
from duly.store.connection.together import together
from duly.store.tenancy import cells as store
from duly.store.tenancy.cells import Held, Resident

GRACE_DEFAULT = timedelta(minutes=1)
# An API remembers a key for three seconds; by then each has learnt that the tenant leaves, and its requests have begun.
FROZEN_MIN = timedelta(seconds=5)
READ = timedelta(seconds=2)  # notifications read what has ended once a second
BATCH = 1_000
_LOOK_SECONDS = 0.1
OnStep = Callable[[str], None]


class Moved(msgspec.Struct, frozen=True):
    """A finished move."""

    tenant: str
    from_cell: str
    to_cell: str
    epoch: int
    rows: int


class NotMoved(msgspec.Struct, frozen=True):
    """A tenant that a drain left where it is, and why."""

    tenant: str
    error: str


class _Move(msgspec.Struct, frozen=True):
    """A move, and the databases that it is between."""

    directory: Directory
    placement: Placement
    tenant: int
    source: Database
    target: Database
    on_step: OnStep

    @property
    def epoch(self) -> int:
        return self.placement.epoch


def _silent(_: str) -> None:
    return


async def move_tenant(
    directory: Directory,
    tenant: str,
    to: str,
    *,
    grace: timedelta = GRACE_DEFAULT,
    frozen: timedelta = FROZEN_MIN,
    on_step: OnStep = _silent,
) -> Moved:
    """Move a tenant to a cell, or go on with that move. Where it is there already, rows that came late are brought after it.

    Raises NotFound, and Refused where nothing was changed: another move is under way, the cell does not fit, or runs did
    not end within the grace. After any other error, ask again.
    """
    await directory.identity()
    found = await directory.placement(tenant)
    await directory.cell(to)
    if found.moving_to is not None and found.moving_to != to:
        raise Refused(
            f"tenant {tenant} is moving from cell {found.cell} to {found.moving_to} (epoch {found.epoch});"
            f" finish that first: duly cells move {tenant} {found.moving_to}"
        )
    if found.moving_to is None and found.cell == to:
        return await _bring_late(directory, found)
    async with directory.open(found.cell) as source, directory.open(to) as target:
        if found.moving_to is None:
            found = await _begin(directory, found, to, source, target)
            on_step("begun")
        here = await store.resident(source, tenant)
        assert here is not None
        move = _Move(directory, found, here.tenant, source, target, on_step)
        if found.phase == LEAVING:
            await _leave(move, grace, frozen)
        return Moved(tenant, found.cell, to, found.epoch, await _arrive(move))


async def drain(
    directory: Directory, name: str, *, grace: timedelta = GRACE_DEFAULT, frozen: timedelta = FROZEN_MIN
) -> list[Moved | NotMoved]:
    """Move all tenants of a draining cell to active cells of its region, one by one; one that cannot go does not hold up
    the others. Raises NotFound.
    """
    done = list[Moved | NotMoved]()
    cell = await directory.cell(name)
    for one in await store.placements(directory.database, name):
        try:
            to = one.moving_to or choose(one.tenant, await directory.cells(), cell.region, other_than=name).name
            done.append(await move_tenant(directory, one.tenant, to, grace=grace, frozen=frozen))
        except DulyError as error:
            done.append(NotMoved(one.tenant, str(error)))
    return done


# ------------------------------------------------------------------------------------------------------------- the steps


async def _begin(directory: Directory, seen: Placement, to: str, source: Database, target: Database) -> Placement:
    """Begin a move. Raises Refused where the tenant cannot go there, or another move was faster."""
    from_cell, to_cell = await directory.cell(seen.cell), await directory.cell(to)
    _check_fit(seen, from_cell, to_cell)
    await _check_common(seen, from_cell, to_cell, source, target)
    here, there = await store.resident(source, seen.tenant), await store.resident(target, seen.tenant)
    _check_residents(seen, to, here, there)
    begun = await store.begin(directory.database, seen, to)
    if begun is None:
        raise Refused(
            f"the directory has changed: tenant {seen.tenant} moves, or cell {to} takes no tenants; try again"
        )
    return begun


def _check_fit(seen: Placement, from_cell: Cell, to_cell: Cell) -> None:
    if to_cell.region != from_cell.region:
        raise Refused(
            f"tenant {seen.tenant} is in region {from_cell.region}, and cell {to_cell.name} in {to_cell.region}:"
            " its data does not leave its region"
        )
    if to_cell.state != ACTIVE:
        raise Refused(f"cell {to_cell.name} is drained and takes no tenants; choose another")


async def _check_common(seen: Placement, from_cell: Cell, to_cell: Cell, source: Database, target: Database) -> None:
    for cell, version in ((from_cell, await store.version(source)), (to_cell, await store.version(target))):
        if version.is_recovering:
            raise Refused(
                f"cell {cell.name} has a recovery to decide, which holds schedules; decide it first: duly recover"
            )
        if version.is_retiming:
            raise Refused(f"cell {cell.name} is timing its schedules anew by new time zone data; try again in a minute")
    zones = {(await store.version(one)).tzdb for one in (source, target)} - {None}
    if len(zones) > 1:
        raise Refused(
            f"cells {from_cell.name} and {to_cell.name} have time zone data {' and '.join(sorted(map(str, zones)))}, so"
            f" schedules of {seen.tenant} would fire at other moments; upgrade the older one"
        )


def _check_residents(seen: Placement, to: str, here: Resident | None, there: Resident | None) -> None:
    if here is None or here.state is not None:
        raise Refused(
            f"tenant {seen.tenant} is not in cell {seen.cell}, where the directory has it; see duly cells verify"
        )
    if there is not None and there.state is None:
        raise Refused(f"tenant {seen.tenant} is in two cells, {seen.cell} and {to}; see duly cells verify")


async def _leave(move: _Move, grace: timedelta, frozen: timedelta) -> None:
    """Take the tenant out of its cell. Raises Refused, and then it is where it was."""
    why = await store.prepare_arrival(move.target, move.tenant, move.placement)
    if why is not None:
        await _undo(move)
        raise Refused(f"tenant {move.placement.tenant} cannot move to cell {move.placement.moving_to}: {why}")
    move.on_step("prepared")
    state = await store.freeze(move.source, move.tenant, move.placement)
    if state not in (LEAVING, DEPARTED):
        raise Refused(f"tenant {move.placement.tenant} is {state} in cell {move.placement.cell}; see duly cells verify")
    move.on_step("frozen")
    if state == LEAVING:
        await _wait(move, grace, frozen)
    await store.depart(move.source, move.tenant, move.epoch)
    move.on_step("departed")
    if not await store.arriving(move.directory.database, move.placement):
        raise Refused(f"the move of tenant {move.placement.tenant} was finished or undone by another; see duly cells")
    move.on_step("arriving")


async def _wait(move: _Move, grace: timedelta, frozen: timedelta) -> None:
    """Wait for older transactions and held runs, and for readers of their ends. Raises Refused when the grace is over: then
    the move is undone.
    """
    clock, horizon = move.source.clock, await store.horizon(move.source)
    begun_at = clock.monotonic()
    quiet_at: float | None = None  # since when nothing has been in the way
    while True:
        now, held = clock.monotonic(), await store.held(move.source, move.tenant, horizon)
        passed = now - begun_at
        if held.is_clear and quiet_at is not None:
            if passed >= frozen.total_seconds() and now - quiet_at >= min(frozen, READ).total_seconds():
                return
        elif held.is_clear:  # seen again by the next look: a claim that ended during this one may have taken a run
            quiet_at = now
        elif passed >= max(grace, frozen).total_seconds() and await _undo(move):
            raise Refused(_stays(move.placement, held, grace))
        else:
            quiet_at = None
        await clock.sleep(_LOOK_SECONDS)


def _stays(placement: Placement, held: Held, grace: timedelta) -> str:
    if held.runs:
        what = f"runs did not end, {few([str(one) for one in held.runs])}"
    elif held.processes:
        what = f"transactions did not end, of server processes {few([str(one) for one in held.processes])}"
    else:
        what = "a prepared transaction did not end"
    return (
        f"tenant {placement.tenant} stays in cell {placement.cell}: within {to_iso(grace)} {what}."
        " Try again, or with a longer --grace"
    )


async def _undo(move: _Move) -> bool:
    """Undo a move that has not departed; False: it has, by another who moves it too."""
    if not await store.unfreeze(move.source, move.tenant, move.epoch):
        here = await store.resident(move.source, move.placement.tenant)
        if here is not None and here.state is not None and here.epoch == move.epoch:
            return False
    await store.undo_arrival(move.target, move.tenant, move.epoch)
    await store.undo(move.directory.database, move.placement)
    return True


async def _arrive(move: _Move) -> int:
    """Put all rows into the target, and finish. Returns how many there were."""
    rows = await _copy(move, is_late=False)
    move.on_step("arrived")
    await store.finish_departure(move.source, move.tenant, move.epoch)
    move.on_step("cleared")
    await store.finish(move.directory.database, move.placement)
    move.on_step("finished")
    return rows


async def _copy(move: _Move, *, is_late: bool) -> int:
    """Put the rows that have departed into the target, in one transaction and once."""
    above = await store.sequences(move.source)

    async def put(transaction: Database) -> int:
        if not await store.begin_arrival(transaction, move.tenant, move.epoch, is_late=is_late):
            return 0
        rows, after = 0, 0
        while batch := await store.departed(move.source, move.tenant, move.epoch, after, BATCH):
            for table, some in groupby(batch, key=attrgetter("table")):
                await store.put_rows(transaction, move.tenant, table, [one.body for one in some], is_late=is_late)
            rows, after = rows + len(batch), batch[-1].number
            move.on_step("arriving rows")
        await store.finish_arrival(transaction, move.tenant, move.epoch, above)
        return rows

    return await together(move.target, put)


async def _bring_late(directory: Directory, found: Placement) -> Moved:
    """Bring rows after a tenant that came into a cell which it had left: by an operator, or a program that missed the move."""
    rows, from_cell = 0, found.cell
    for cell in await directory.cells():
        if cell.name == found.cell:
            continue
        async with directory.open(cell.name) as source, directory.open(found.cell) as target:
            late = await _late(directory, found, source)
            if late is None:
                continue
            tenant, epoch = late
            found, from_cell = msgspec.structs.replace(found, epoch=epoch), cell.name
            move = _Move(directory, found, tenant, source, target, _silent)
            await store.depart(source, tenant, epoch)
            rows += await _copy(move, is_late=True)
            await store.finish_departure(source, tenant, epoch)
    return Moved(found.tenant, from_cell, found.cell, found.epoch, rows)


async def _late(directory: Directory, found: Placement, source: Database) -> tuple[int, int] | None:
    """Let late rows of a tenant depart from one cell. Returns its number and their epoch; None: there are none."""
    here = await store.resident(source, found.tenant)
    if here is None or here.state is None:
        return None
    if here.state in (LEAVING, DEPARTED) and here.epoch is not None:
        return here.tenant, here.epoch
    if here.state != GONE or found.tenant not in {tenant for tenant, _ in await store.strays(source)}:
        return None
    raised = await store.advance(directory.database, await directory.placement(found.tenant))
    if raised is None:
        raise Refused(f"the directory has changed: tenant {found.tenant} moves; try again")
    await store.leave_late(source, here.tenant, raised)
    return here.tenant, raised.epoch
