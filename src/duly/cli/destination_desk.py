"""The desk for destinations: of a database, or of a Duly over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from duly.cli.connect import is_remote, opened_by_hand
from duly.cli.desk import Row
from duly.client.asynchronous.client import AsyncClient
from duly.clock import Rng
from duly.domain.duration import to_iso
from duly.domain.errors import NotFound, Refused
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.targets.webhook_url import origin_of
from duly.domain.tenancy.api_key import Secret
from duly.domain.tenancy.sealing import Keyring
from duly.moves.admin import destinations as moves
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.tables import destinations
from duly.store.tenancy.keyring import MISSING, keyring_of

_DEADLINE_SECONDS = 20.0
_PAGE = 200


class DestinationDesk(Protocol):
    """What commands ask for. What is not there raises NotFound; what is refused, Refused."""

    async def list(self, limit: int) -> Sequence[Row]:
        """List destinations."""
        ...

    async def get(self, destination_id: UUID) -> Row:
        """Read one."""
        ...

    async def make(self, url: str) -> Row:
        """Make one, if it is not there."""
        ...

    async def limit(
        self, destination_id: UUID, places: int | None, rate: float | UnsetType | None, retries: float | None
    ) -> Row:
        """Say what it may be sent; what is not given stays."""
        ...

    async def close(self, destination_id: UUID) -> Row:
        """Close its breaker."""
        ...

    async def open(self, destination_id: UUID, span: timedelta) -> Row:
        """Open its breaker for so long."""
        ...

    async def failures(self, row: Row, limit: int) -> Sequence[Row]:
        """Give what failed there last, the last first."""
        ...

    async def rotate(self, destination_id: UUID) -> Secret:
        """Give it a new secret."""
        ...

    async def secrets(self, destination_id: UUID) -> Sequence[tuple[Secret, Row]]:
        """Show its secrets, the newest first, and what else is known of each."""
        ...


@asynccontextmanager
async def at_destinations(settings: Settings) -> AsyncIterator[DestinationDesk]:
    """Go to the desk that the settings name."""
    if is_remote(settings):
        async with AsyncClient(settings.url, settings.api_key, deadline=_DEADLINE_SECONDS) as client:
            yield HttpDestinations(client)
    else:
        async with opened_by_hand(settings) as database:
            yield DatabaseDestinations(database, settings)


async def found(desk: DestinationDesk, which: str, limit: int) -> Row:
    """Find a destination by its id, or by any address at it. Raises NotFound."""
    try:
        return await desk.get(UUID(which))
    except ValueError:
        origin = origin_of(which)
    for row in await desk.list(limit):
        if row["origin"] == origin:
            return row
    raise NotFound(f"no destination {origin}; `duly destinations` lists them, and `duly destinations make` makes one")


class DatabaseDestinations:
    """Asks the database."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    async def list(self, limit: int) -> Sequence[Row]:
        """List destinations."""
        return [_row(one) for one in await destinations.page(self._database, TENANT_DEFAULT, None, limit)]

    async def get(self, destination_id: UUID) -> Row:
        """Read one."""
        one = await destinations.find(self._database, TENANT_DEFAULT, destination_id)
        if one is None:
            raise NotFound(f"no destination {destination_id}; `duly destinations` lists them")
        return _row(one)

    async def make(self, url: str) -> Row:
        """Make one, if it is not there."""
        return await self.get(await moves.make(self._database, self._keyring, TENANT_DEFAULT, origin_of(url), Rng()))

    async def limit(
        self, destination_id: UUID, places: int | None, rate: float | UnsetType | None, retries: float | None
    ) -> Row:
        """Say what it may be sent."""
        asked, share = UNSET if places is None else places, UNSET if retries is None else retries
        limit = moves.limit(self._database, TENANT_DEFAULT, destination_id, places=asked, rate=rate, retry_share=share)
        return _row(await limit)

    async def close(self, destination_id: UUID) -> Row:
        """Close its breaker."""
        return _row(await moves.close(self._database, TENANT_DEFAULT, destination_id))

    async def open(self, destination_id: UUID, span: timedelta) -> Row:
        """Open its breaker for so long."""
        return _row(await moves.leave_alone(self._database, TENANT_DEFAULT, destination_id, span))

    async def failures(self, row: Row, limit: int) -> Sequence[Row]:
        """Give what failed there last."""
        failed = await destinations.failures_page(self._database, TENANT_DEFAULT, row["origin"], None, limit)
        return [msgspec.structs.asdict(one) for one in failed]

    async def rotate(self, destination_id: UUID) -> Secret:
        """Give it a new secret."""
        return (await moves.rotate(self._database, self._keyring, TENANT_DEFAULT, destination_id, Rng())).text

    async def secrets(self, destination_id: UUID) -> Sequence[tuple[Secret, Row]]:
        """Show its secrets."""
        opened_ones = await moves.secrets_of(self._database, self._keyring, TENANT_DEFAULT, destination_id)
        return [
            (one.text, {"number": one.number, "made_at": one.kept.made_at, "retires_at": one.kept.retires_at})
            for one in opened_ones
        ]

    @property
    def _keyring(self) -> Keyring:
        keyring = keyring_of(self._settings)
        if keyring is None:
            raise Refused(MISSING)
        return keyring


class HttpDestinations:
    """Asks a Duly over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._asked = client.destinations

    async def list(self, limit: int) -> Sequence[Row]:
        """List destinations."""
        rows: list[Row] = []
        async for one in self._asked.list(page_size=min(limit, _PAGE)):
            rows.append(_row(one))
            if len(rows) >= limit:
                break
        return rows

    async def get(self, destination_id: UUID) -> Row:
        """Read one."""
        return _row(await self._asked.get(destination_id))

    async def make(self, url: str) -> Row:
        """Make one, if it is not there."""
        origin = origin_of(url)
        for row in await self.list(10_000):
            if row["origin"] == origin:
                return row  # Made again, its limits would be set anew.
        return _row(await self._asked.create(url))

    async def limit(
        self, destination_id: UUID, places: int | None, rate: float | UnsetType | None, retries: float | None
    ) -> Row:
        """Say what it may be sent."""
        asked, share = UNSET if places is None else places, UNSET if retries is None else retries
        limit = self._asked.limit(destination_id, places=asked, rate_per_second=rate, retry_share=share)
        return _row(await limit)

    async def close(self, destination_id: UUID) -> Row:
        """Close its breaker."""
        return _row(await self._asked.close(destination_id))

    async def open(self, destination_id: UUID, span: timedelta) -> Row:
        """Open its breaker for so long."""
        return _row(await self._asked.open(destination_id, duration=to_iso(span)))

    async def failures(self, row: Row, limit: int) -> Sequence[Row]:
        """Give what failed there last."""
        failed: list[Row] = []
        async for one in self._asked.failures(row["destination_id"], page_size=limit):
            failed.append(msgspec.structs.asdict(one))
            if len(failed) >= limit:
                break
        return failed

    async def rotate(self, destination_id: UUID) -> Secret:
        """Give it a new secret."""
        return Secret((await self._asked.rotate(destination_id)).secret)

    async def secrets(self, destination_id: UUID) -> Sequence[tuple[Secret, Row]]:
        """Show its secrets."""
        return [
            (Secret(one.secret), {"number": one.number, "made_at": one.made_at, "retires_at": one.retires_at})
            for one in (await self._asked.secrets(destination_id)).items
        ]


def _row(one: Any) -> Row:
    """Give a destination as the commands know it, from either side."""
    row = msgspec.structs.asdict(one)
    if "read_at" in row and (row["wait_until"] is None or row["wait_until"] <= row["read_at"]):
        row["wait_until"] = None
    return {name: row[name] for name in _SHOWN}


_SHOWN = (
    "destination_id",
    "origin",
    "state",
    "wait_until",
    "turned_at",
    "places",
    "rate_per_second",
    "in_flight",
    "parked",
    "steady_rate",
    "ramp_rate",
    "healthy_total",
    "failing_total",
    "retry_share",
    "retries_total",
    "turned_away_total",
    "made_at",
)
