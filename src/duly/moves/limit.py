"""Limit and unlimit: at most so many runs of a scope are under way at once, from the next claim on.

What runs goes on. Workers hand back what they have not started of a scope whose limit is new or lower, and claim it again
under the limit; so within two seconds nothing more starts than there are places.
"""

from __future__ import annotations

from contextlib import suppress

from duly.domain.errors import DulyError, NotFound, Refused
from duly.domain.hold import Scope
from duly.domain.job import check_name
from duly.domain.limit import Limit, check_places, limits_max
from duly.moves.hold import check_scope
from duly.store import hints, limits
from duly.store.database import Database


async def limit(database: Database, scope: Scope, places: int, *, set_by: str) -> Limit:
    """Let at most `places` runs of `scope` be under way at once. Raises InvalidOption, or Refused."""
    check_scope(scope)
    if not await limits.put(database, scope, check_places(places), check_name(set_by, "who sets it")):
        raise Refused(
            f"{scope} cannot have a limit beside {limits_max(scope)} others; remove some, or limit a whole queue or tenant"
        )
    await _hint(database)
    return await _found(database, scope)


async def unlimit(database: Database, scope: Scope) -> None:
    """Take the limit of this very scope away; others stay. Raises InvalidOption, NotFound."""
    check_scope(scope)
    if not await limits.remove(database, scope):
        raise NotFound(f"no limit of {scope}; `duly limits` lists them")
    await _hint(database)


async def _found(database: Database, scope: Scope) -> Limit:
    found = await limits.find(database, scope)
    if found is None:
        raise NotFound(f"no limit of {scope}: it was removed as soon as it was set")
    return found


async def _hint(database: Database) -> None:
    with suppress(DulyError):  # A hint that is lost costs a moment: workers look by themselves.
        await hints.send_holds_changed(database)
