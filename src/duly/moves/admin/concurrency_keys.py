"""Concurrency keys: set the limits of a key while runs wait for it, or restore those that the runs carry."""

from __future__ import annotations

from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import check_gate, check_name
from duly.domain.limits.concurrency import Rate, check_rate
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, note
from duly.store.connection.database import Database
from duly.store.tables import concurrency_keys
from duly.store.tables.concurrency_keys import Gate


@audited
async def limit(database: Database, tenant: int, key: str, *, places: int | None, rate: Rate | None) -> Gate:
    """Set the limits of a key. Runs that they let through go on at once. Raises InvalidOption."""
    check_name(key, "key")
    if places is None and rate is None:
        raise InvalidOption(
            f"key {key!r} has no limit in this request; give limit, rate or both, or delete the key's limits"
        )
    if places is not None:
        check_gate(key, places)
    before = await concurrency_keys.find(database, tenant, key)
    await concurrency_keys.set_limits(database, tenant, key, places, None if rate is None else check_rate(rate)[1:])
    found = await concurrency_keys.find(database, tenant, key)
    assert found is not None
    changed = int(before is None or _limits(before) != _limits(found))
    told = dict(zip(("places", "rate_per_second", "burst"), _limits(found), strict=True))
    await note(database, tenant, Action.GATE_LIMITED, Subject("gate", key, key), changed, **told)
    return found


def _limits(gate: Gate) -> tuple[int | None, float | None, int | None]:
    return gate.limit_places, gate.limit_per_second, gate.limit_burst


@audited
async def lift(database: Database, tenant: int, key: str) -> None:
    """Remove the limits of a key: those that its runs carry count again. Raises NotFound."""
    if not await concurrency_keys.set_limits(database, tenant, key, None, None):
        raise NotFound(f"no limit is set for the key {key!r}")
    await note(database, tenant, Action.GATE_LIFTED, Subject("gate", key, key))
