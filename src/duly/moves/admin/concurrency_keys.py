"""Concurrency keys: set the limits of a key while runs wait for it, or restore those that the runs carry."""

from __future__ import annotations

from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import check_concurrency_key, check_name
from duly.domain.limits.concurrency import Rate, check_rate
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record
from duly.store.connection.database import Database
from duly.store.tables import concurrency_keys
from duly.store.tables.concurrency_keys import ConcurrencyKey


@audited
async def limit(database: Database, tenant: int, key: str, *, slots: int | None, rate: Rate | None) -> ConcurrencyKey:
    """Set the limits of a key. Runs that they let through go on at once. Raises InvalidOption."""
    check_name(key, "key")
    if slots is None and rate is None:
        raise InvalidOption(
            f"key {key!r} has no limit in this request; give limit, rate or both, or delete the key's limits"
        )
    if slots is not None:
        check_concurrency_key(key, slots)
    before = await concurrency_keys.find(database, tenant, key)
    await concurrency_keys.set_limits(database, tenant, key, slots, None if rate is None else check_rate(rate)[1:])
    found = await concurrency_keys.find(database, tenant, key)
    assert found is not None
    changed = int(before is None or _limits(before) != _limits(found))
    reported = dict(zip(("slots", "rate_per_second", "burst"), _limits(found), strict=True))
    await record(
        database, tenant, Action.CONCURRENCY_KEY_LIMITED, Subject("concurrency_key", key, key), changed, **reported
    )
    return found


def _limits(key: ConcurrencyKey) -> tuple[int | None, float | None, int | None]:
    return key.limit_slots, key.limit_per_second, key.limit_burst


@audited
async def unlimit(database: Database, tenant: int, key: str) -> None:
    """Remove the limits of a key: those that its runs carry count again. Raises NotFound."""
    if not await concurrency_keys.set_limits(database, tenant, key, None, None):
        raise NotFound(f"no limit is set for the key {key!r}")
    await record(database, tenant, Action.CONCURRENCY_KEY_UNLIMITED, Subject("concurrency_key", key, key))
