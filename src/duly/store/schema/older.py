"""Older versions: what their processes use of a schema, and which of them are alive."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from duly.domain.counting import few, some
from duly.domain.errors import DulyError
from duly.store.connection.database import Connection
from duly.store.connection.statements import load

SQL = load("schema/older")
# A process records itself every five seconds, and is taken as ended when it has not for so long.
ALIVE_SECONDS = 15.0

Shapes = tuple[frozenset[str], frozenset[str]]


class Process(msgspec.Struct, frozen=True):
    """A live process of an older version."""

    role: str
    name: str
    host: str
    version: str

    @property
    def words(self) -> str:
        """Describe it."""
        return f"{self.role} {self.name} ({self.version or 'unknown version'}) on {self.host}"


class OlderAlive(DulyError):
    """Processes of an older version are in the way."""


async def shapes(connection: Connection) -> Shapes:
    """Return what programs may use, and what they have to give: columns that a new row must name."""
    rows = await connection.fetch(SQL["shapes"])
    return (
        frozenset(row["shape"] for row in rows),
        frozenset(row["shape"] for row in rows if row["is_required"]),
    )


def broken(before: Shapes, after: Shapes) -> list[str]:
    """Return what programs of before can no longer use, or would have to give: of their tables, not of new ones."""
    tables = {shape.partition(".")[0] for shape in before[0] if "." in shape.partition("(")[0]}
    required = {shape for shape in after[1] - before[1] if shape.partition(".")[0] in tables}
    return sorted(before[0] - after[0] | required)


async def older(connection: Connection, schema: int) -> list[Process]:
    """Return the live processes that know less than this schema."""
    return [Process(*row) for row in await connection.fetch(SQL["older"], schema, ALIVE_SECONDS)]


def refuse_beside(alive: Sequence[Process], why: str) -> None:
    """Raise OlderAlive if there is any."""
    if alive:
        raise OlderAlive(
            f"{why}: {some(len(alive), 'process', 'processes')} of an older version"
            f" {'runs' if len(alive) == 1 else 'run'}: {few([one.words for one in alive])}."
            f" Stop {'it' if len(alive) == 1 else 'them'}, and try again"
        )
