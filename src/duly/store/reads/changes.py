"""What is done to definitions and to workflows, as it is done: each change once, whenever its transaction ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from duly.store.connection.database import Database

ROWS_MAX = 5_000

T = TypeVar("T")


class Changes(Generic[T]):
    """Reads of one table what the last look could not see. `left_out` says whether there was more than the last one gave."""

    def __init__(self, database: Database, statements: Mapping[str, str], shape: Callable[..., T]) -> None:
        self._database = database
        self._statements = statements
        self._shape = shape
        self._seen: str | None = None
        self.left_out = False

    async def look(self, tenants: Iterable[int]) -> list[T]:
        """Give what changed since the last look, `ROWS_MAX` at most; the first look only takes its place."""
        if self._seen is None:
            self._seen = str(await self._database.fetchval(self._statements["place"]))
            return []
        rows = await self._database.fetch(self._statements["look"], self._seen, list(tenants), ROWS_MAX + 1)
        self._seen = rows[0]["snapshot"]
        self.left_out = len(rows) > ROWS_MAX
        return [self._shape(*row[1:]) for row in rows[:ROWS_MAX] if row[1] is not None]
