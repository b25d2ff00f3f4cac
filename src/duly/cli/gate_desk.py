"""The desk for gates: of a database, or of a Duly over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from duly.cli.connect import is_remote, opened_by_hand
from duly.cli.desk import Row
from duly.client.asynchronous.client import AsyncClient
from duly.domain.errors import NotFound
from duly.domain.limits.concurrency import Rate, in_words, kind_of
from duly.domain.runs.run import TENANT_DEFAULT
from duly.moves.admin import concurrency_keys as moves
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.tables import concurrency_keys
from duly.wire.gates import Gate, GateRate

_DEADLINE_SECONDS = 20.0
_PAGE = 200


class GateDesk(Protocol):
    """What commands ask for. What is not there raises NotFound; what is refused, Refused."""

    async def list(self, limit: int) -> Sequence[Row]:
        """List keys."""
        ...

    async def get(self, key: str) -> Row:
        """Read one."""
        ...

    async def limit(self, key: str, places: int | None, rate: Rate | None) -> Row:
        """Set what it allows."""
        ...

    async def lift(self, key: str) -> None:
        """Take its limits away."""
        ...


@asynccontextmanager
async def at_gates(settings: Settings) -> AsyncIterator[GateDesk]:
    """Go to the desk that the settings name."""
    if is_remote(settings):
        async with AsyncClient(settings.url, settings.api_key, deadline=_DEADLINE_SECONDS) as client:
            yield HttpGates(client)
    else:
        async with opened_by_hand(settings) as database:
            yield DatabaseGates(database)


class DatabaseGates:
    """Asks the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, limit: int) -> Sequence[Row]:
        """List keys."""
        return [_kept_row(one) for one in await concurrency_keys.page(self._database, TENANT_DEFAULT, None, limit)]

    async def get(self, key: str) -> Row:
        """Read one."""
        one = await concurrency_keys.find(self._database, TENANT_DEFAULT, key)
        if one is None:
            raise NotFound(f"no run is held back by the key {key!r}, and no limit is set for it")
        return _kept_row(one)

    async def limit(self, key: str, places: int | None, rate: Rate | None) -> Row:
        """Set what it allows."""
        return _kept_row(await moves.limit(self._database, TENANT_DEFAULT, key, places=places, rate=rate))

    async def lift(self, key: str) -> None:
        """Take its limits away."""
        await moves.lift(self._database, TENANT_DEFAULT, key)


class HttpGates:
    """Asks a Duly over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._asked = client.gates

    async def list(self, limit: int) -> Sequence[Row]:
        """List keys."""
        rows: list[Row] = []
        async for one in self._asked.list(page_size=min(limit, _PAGE)):
            rows.append(_told_row(one))
            if len(rows) >= limit:
                break
        return rows

    async def get(self, key: str) -> Row:
        """Read one."""
        return _told_row(await self._asked.get(key))

    async def limit(self, key: str, places: int | None, rate: Rate | None) -> Row:
        """Set what it allows."""
        asked = None if rate is None else GateRate(limit=rate.limit, per=_plain(rate.per), burst=rate.burst)
        return _told_row(await self._asked.limit(key, limit=places, rate=asked))

    async def lift(self, key: str) -> None:
        """Take its limits away."""
        await self._asked.lift(key)


def _kept_row(one: concurrency_keys.Gate) -> Row:
    has_places = one.places is not None or one.waiting > 0 or one.limit_places is not None
    return {
        "key": one.key,
        "kind": kind_of(one.key, is_line=one.is_line, has_places=has_places),
        "places": one.places,
        "inside": one.inside,
        "waiting": one.waiting,
        "rate": _rate_text(one.per_second, one.burst),
        "waiting_turn": one.waiting_turn,
        "limit": one.limit_places,
        "rate_limit": _rate_text(one.limit_per_second, one.limit_burst),
    }


def _told_row(one: Gate) -> Row:
    limits = one.limits
    return {
        **{name: getattr(one, name) for name in ("key", "kind", "places", "inside", "waiting")},
        "rate": _told_rate(one.rate),
        "waiting_turn": one.waiting_turn,
        "limit": None if limits is None else limits.limit,
        "rate_limit": None if limits is None else _told_rate(limits.rate),
    }


def _rate_text(per_second: float | None, burst: int | None) -> str | None:
    if per_second is None:
        return None
    told = in_words(per_second)
    return _written(told["limit"], told["per"], burst)


def _told_rate(rate: GateRate | None) -> str | None:
    return None if rate is None else _written(rate.limit, rate.per, rate.burst)


def _written(limit: float, per: Any, burst: int | None) -> str:
    return f"{limit:g}/{per}" + (f", {burst} at once" if burst is not None and burst > 1 else "")


def _plain(per: Any) -> Any:
    return per.total_seconds() if hasattr(per, "total_seconds") else per
