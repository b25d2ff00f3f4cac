"""Gates: set what a key allows while runs wait for it, or let what runs carry count again."""

from __future__ import annotations

from duly.domain.errors import InvalidOption, NotFound
from duly.domain.gate import Rate, check_rate
from duly.domain.job import check_gate, check_gate_key
from duly.store import gates
from duly.store.database import Database
from duly.store.gates import Gate


async def limit(database: Database, tenant: int, key: str, *, places: int | None, rate: Rate | None) -> Gate:
    """Set the limits of a key. Those who may go on by them do so at once. Raises InvalidOption."""
    check_gate_key(key, "key")
    if places is None and rate is None:
        raise InvalidOption(f"nothing is to be limited at {key!r}; give limit, rate or both, or delete what is set")
    if places is not None:
        check_gate(key, places)
    await gates.set_limits(database, tenant, key, places, None if rate is None else check_rate(rate)[1:])
    found = await gates.find(database, tenant, key)
    assert found is not None
    return found


async def lift(database: Database, tenant: int, key: str) -> None:
    """Take the limits of a key away: what runs carry counts again. Raises NotFound."""
    if not await gates.set_limits(database, tenant, key, None, None):
        raise NotFound(f"no limit is set for the key {key!r}")
